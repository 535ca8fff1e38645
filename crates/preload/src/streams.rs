//! Sockets and the bytes in them.

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};
use posix::{calls, is_ours};

use crate::{answered, real};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    answered(calls::socket(domain, kind, protocol), || unsafe { real::socket(domain, kind, protocol) }
        as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    answered(unsafe { calls::bind(fd, addr, len) }, || unsafe { real::bind(fd, addr, len) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    answered(calls::listen(fd, backlog), || unsafe { real::listen(fd, backlog) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    unsafe { accept4(fd, addr, len, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
    let ours = unsafe { calls::accept4(fd, addr, len, flags) };
    answered(ours, || unsafe { real::accept4(fd, addr, len, flags) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    answered(unsafe { calls::connect(fd, addr, len) }, || unsafe { real::connect(fd, addr, len) } as isize)
        as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let ours = unsafe { calls::getsockname(fd, addr, len) };
    answered(ours, || unsafe { real::getsockname(fd, addr, len) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let ours = unsafe { calls::getpeername(fd, addr, len) };
    answered(ours, || unsafe { real::getpeername(fd, addr, len) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    answered(calls::shutdown(fd, how), || unsafe { real::shutdown(fd, how) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let ours = unsafe { calls::getsockopt(fd, level, name, value, len) };
    answered(ours, || unsafe { real::getsockopt(fd, level, name, value, len) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let ours = unsafe { calls::setsockopt(fd, level, name, value, len) };
    answered(ours, || unsafe { real::setsockopt(fd, level, name, value, len) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    if !is_ours(fd) {
        return unsafe { real::read(fd, buf, len) };
    }
    let ours = unsafe { calls::recvfrom(fd, buf, len, 0, std::ptr::null_mut()) };
    answered(ours, || unsafe { real::read(fd, buf, len) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, room: size_t) -> ssize_t {
    check(len, room);
    unsafe { read(fd, buf, len) }
}

/// What the fortified functions do about a buffer that is too small.
fn check(len: size_t, room: size_t) {
    if len > room {
        posix::net::say("buffer overflow detected");
        // SAFETY: never returns. Test: none; it ends the process.
        unsafe { libc::abort() };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    answered(unsafe { calls::readv(fd, iov, count) }, || unsafe { real::readv(fd, iov, count) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    if !is_ours(fd) {
        return unsafe { real::write(fd, buf, len) };
    }
    answered(unsafe { calls::sendto(fd, buf, len, 0) }, || unsafe { real::write(fd, buf, len) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    answered(unsafe { calls::writev(fd, iov, count) }, || unsafe { real::writev(fd, iov, count) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    answered(unsafe { calls::sendto(fd, buf, len, flags) }, || unsafe { real::send(fd, buf, len, flags) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    alen: socklen_t,
) -> ssize_t {
    let ours = unsafe { calls::sendto(fd, buf, len, flags) };
    answered(ours, || unsafe { real::sendto(fd, buf, len, flags, addr, alen) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    answered(unsafe { calls::sendmsg(fd, msg, flags) }, || unsafe { real::sendmsg(fd, msg, flags) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    let ours = unsafe { calls::sendmmsg(fd, msgs, count, flags) };
    answered(ours, || unsafe { real::sendmmsg(fd, msgs, count, flags) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    let ours = unsafe { calls::recvfrom(fd, buf, len, flags, std::ptr::null_mut()) };
    answered(ours, || unsafe { real::recv(fd, buf, len, flags) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    check(len, room);
    unsafe { recv(fd, buf, len, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    alen: *mut socklen_t,
) -> ssize_t {
    let wanted = if addr.is_null() { std::ptr::null_mut() } else { alen };
    let ours = unsafe { calls::recvfrom(fd, buf, len, flags, wanted) };
    answered(ours, || unsafe { real::recvfrom(fd, buf, len, flags, addr, alen) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    room: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    alen: *mut socklen_t,
) -> ssize_t {
    check(len, room);
    unsafe { recvfrom(fd, buf, len, flags, addr, alen) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    answered(unsafe { calls::recvmsg(fd, msg, flags) }, || unsafe { real::recvmsg(fd, msg, flags) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    msgs: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let limit = unsafe { crate::waits::duration_of(timeout) };
    let ours = unsafe { calls::recvmmsg(fd, msgs, count, flags, limit) };
    answered(ours, || unsafe { real::recvmmsg(fd, msgs, count, flags, timeout) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(out: c_int, file: c_int, offset: *mut i64, count: size_t) -> ssize_t {
    unsafe { sendfile64(out, file, offset, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile64(out: c_int, file: c_int, offset: *mut i64, count: size_t) -> ssize_t {
    let ours = unsafe { calls::sendfile(out, file, offset, count) };
    answered(ours, || unsafe { real::sendfile64(out, file, offset, count) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn splice(
    from: c_int,
    off_in: *mut i64,
    to: c_int,
    off_out: *mut i64,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let ours = unsafe { calls::splice(from, off_in, to, off_out, len, flags) };
    answered(ours, || unsafe { real::splice(from, off_in, to, off_out, len, flags) })
}
