//! Sockets and the bytes in them.

use std::ptr::null_mut;

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use posix::calls;

use crate::waits::duration_of;
use crate::{int, size};

/// What the fortified functions do about a buffer that is too small.
fn check(len: size_t, room: size_t) {
    if len > room {
        posix::net::say("buffer overflow detected");
        std::process::abort();
    }
}

interpose! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int = int(calls::socket(domain, kind, protocol));
    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int = int(calls::bind(fd, addr, len));
    fn listen(fd: c_int, backlog: c_int) -> c_int = int(calls::listen(fd, backlog));
    fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int = int(calls::accept4(fd, addr, len, 0));
    fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int =
        int(calls::accept4(fd, addr, len, flags));
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int = int(calls::connect(fd, addr, len));
    fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int =
        int(calls::getsockname(fd, addr, len));
    fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int =
        int(calls::getpeername(fd, addr, len));
    fn shutdown(fd: c_int, how: c_int) -> c_int = int(calls::shutdown(fd, how));
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int =
        int(calls::getsockopt(fd, level, name, value, len));
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int =
        int(calls::setsockopt(fd, level, name, value, len));

    fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t = size(calls::recvfrom(fd, buf, len, 0, null_mut()));
    fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t = {
        check(len, room);
        size(calls::recvfrom(fd, buf, len, 0, null_mut()))
    };
    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t = size(calls::readv(fd, iov, count));
    fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t =
        size(calls::recvfrom(fd, buf, len, flags, null_mut()));
    fn __recv_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t = {
        check(len, room);
        size(calls::recvfrom(fd, buf, len, flags, null_mut()))
    };
    fn recvfrom(
        fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, alen: *mut socklen_t
    ) -> ssize_t = size(calls::recvfrom(fd, buf, len, flags, if addr.is_null() { null_mut() } else { alen }));
    fn __recvfrom_chk(
        fd: c_int, buf: *mut c_void, len: size_t, room: size_t, flags: c_int, addr: *mut sockaddr,
        alen: *mut socklen_t
    ) -> ssize_t = {
        check(len, room);
        size(calls::recvfrom(fd, buf, len, flags, if addr.is_null() { null_mut() } else { alen }))
    };
    fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t = size(calls::recvmsg(fd, msg, flags));
    fn recvmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int =
        int(calls::recvmmsg(fd, msgs, count, flags, duration_of(timeout)));

    fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t = size(calls::send(fd, buf, len, 0));
    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t = size(calls::writev(fd, iov, count));
    fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t =
        size(calls::send(fd, buf, len, flags));
    fn sendto(
        fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, alen: socklen_t
    ) -> ssize_t = size(calls::sendto(fd, buf, len, flags, addr, alen));
    fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t = size(calls::sendmsg(fd, msg, flags));
    fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int =
        int(calls::sendmmsg(fd, msgs, count, flags));
    fn sendfile(out: c_int, file: c_int, offset: *mut i64, count: size_t) -> ssize_t =
        size(calls::sendfile(out, file, offset, count));
    fn sendfile64(out: c_int, file: c_int, offset: *mut i64, count: size_t) -> ssize_t =
        size(calls::sendfile(out, file, offset, count));
    fn splice(
        from: c_int, off_in: *mut i64, to: c_int, off_out: *mut i64, len: size_t, flags: c_uint
    ) -> ssize_t = size(calls::splice(from, off_in, to, off_out, len, flags));
}
