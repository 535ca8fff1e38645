//! The socket calls, with the names of POSIX behind `uc_`.
//!
//! Contract. That of each call's man page: pointers are valid as it asks.
#![allow(unsafe_code)]

use std::os::fd::RawFd;

use libc::{
    c_int, c_uint, c_ulong, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use posix::calls;
use posix::errno::Errno;

use crate::waits::duration_of;

/// What a call that only sockets of ours have says about a descriptor of the kernel's.
pub(crate) fn not_ours(fd: RawFd) -> Errno {
    // SAFETY: no memory is involved. Test: crates/capi/tests/c/misuse.c.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 { Errno::BADF } else { Errno::OPNOTSUPP }
}

/// The call as `posix` has it, or, for a descriptor of the kernel's, as libc has it.
macro_rules! either {
    ($ours:expr, $kernel:expr) => {
        $crate::guard::answered(
            || {
                #[allow(unused_unsafe, reason = "some of the calls take no pointers")]
                // SAFETY: the caller keeps the contract of the call's man page, and `posix` asks for no more.
                // Test: crates/capi/tests/c_programs.rs, through every call.
                let ours = unsafe { $ours };
                ours
            },
            // SAFETY: as above, and libc asks for no more either.
            || unsafe { $kernel } as isize,
        )
    };
}
pub(crate) use either;

/// `socket(2)`. After `uc_configure` stream sockets of `AF_INET` and `AF_INET6` are the stack's, and become the
/// kernel's again when they are bound or connected to loopback or to a network that is bypassed. All others are the
/// kernel's. `ENETDOWN`: the stack could not be started.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    either!(calls::socket(domain, kind, protocol), libc::socket(domain, kind, protocol)) as c_int
}

/// `bind(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    either!(calls::bind(fd, addr, len), libc::bind(fd, addr, len)) as c_int
}

/// `listen(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_listen(fd: c_int, backlog: c_int) -> c_int {
    either!(calls::listen(fd, backlog), libc::listen(fd, backlog)) as c_int
}

/// `accept4(2)`. The new socket is on the listener's stack, and inherits `SO_ZEROCOPY`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_accept4(
    fd: c_int,
    addr: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    either!(calls::accept4(fd, addr, len, flags), libc::accept4(fd, addr, len, flags)) as c_int
}

/// `accept(2)`: `uc_accept4` without flags.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    either!(calls::accept4(fd, addr, len, 0), libc::accept(fd, addr, len)) as c_int
}

/// `connect(2)`. `AF_UNSPEC` drops the connection and its send queue, which completes what was lent.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
    either!(calls::connect(fd, addr, len), libc::connect(fd, addr, len)) as c_int
}

/// `getsockname(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    either!(calls::getsockname(fd, addr, len), libc::getsockname(fd, addr, len)) as c_int
}

/// `getpeername(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
    either!(calls::getpeername(fd, addr, len), libc::getpeername(fd, addr, len)) as c_int
}

/// `shutdown(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_shutdown(fd: c_int, how: c_int) -> c_int {
    either!(calls::shutdown(fd, how), libc::shutdown(fd, how)) as c_int
}

/// `close(2)`. What was sent still goes out. Calls that lent with a ring or a callback complete there as ever;
/// notifications of `MSG_ZEROCOPY` are dropped with the error queue. `EBADF` also for descriptors that the
/// library itself lives on.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_close(fd: c_int) -> c_int {
    either!(calls::close(fd), libc::close(fd)) as c_int
}

/// `dup(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_dup(fd: c_int) -> c_int {
    either!(calls::fcntl(fd, libc::F_DUPFD, 0), libc::dup(fd)) as c_int
}

/// `dup2(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_dup2(old: c_int, target: c_int) -> c_int {
    either!(calls::dup3(old, target, 0), libc::dup2(old, target)) as c_int
}

/// `dup3(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_dup3(old: c_int, target: c_int, flags: c_int) -> c_int {
    either!(calls::dup3(old, target, flags), libc::dup3(old, target, flags)) as c_int
}

/// `fcntl(2)`. The argument is not optional: 0 where there is none, a pointer cast to `unsigned long` where there is.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    either!(calls::fcntl(fd, command, argument as usize), libc::fcntl(fd, command, argument)) as c_int
}

/// `ioctl(2)`: `FIONREAD`, `SIOCINQ`, `SIOCOUTQ`, `SIOCOUTQNSD` and `FIONBIO` are answered for sockets of a stack,
/// the rest is the kernel's.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    either!(calls::ioctl(fd, request, argument.cast()), libc::ioctl(fd, request, argument)) as c_int
}

/// `getsockopt(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    either!(calls::getsockopt(fd, level, name, value, len), libc::getsockopt(fd, level, name, value, len))
        as c_int
}

/// `setsockopt(2)`. What a stack does not have is `ENOPROTOOPT`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    either!(calls::setsockopt(fd, level, name, value, len), libc::setsockopt(fd, level, name, value, len))
        as c_int
}

/// `read(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
    either!(calls::recvfrom(fd, buf, len, 0, std::ptr::null_mut()), libc::read(fd, buf, len))
}

/// `readv(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_readv(fd: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    either!(calls::readv(fd, iov, iovcnt), libc::readv(fd, iov, iovcnt))
}

/// `write(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
    either!(calls::send(fd, buf, len, 0), libc::write(fd, buf, len))
}

/// `writev(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_writev(fd: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    either!(calls::writev(fd, iov, iovcnt), libc::writev(fd, iov, iovcnt))
}

/// `send(2)`. With `MSG_ZEROCOPY` and `SO_ZEROCOPY` it lends as Linux does, and the socket's error queue has the
/// notifications; `ee_pad` carries the `uc_reason`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    either!(calls::send(fd, buf, len, flags), libc::send(fd, buf, len, flags))
}

/// `sendto(2)`. As on every stream, the address is not looked at.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_sendto(
    fd: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    addr: *const sockaddr,
    addr_len: socklen_t,
) -> ssize_t {
    either!(
        calls::sendto(fd, buf, len, flags, addr, addr_len),
        libc::sendto(fd, buf, len, flags, addr, addr_len)
    )
}

/// `sendmsg(2)`; `MSG_ZEROCOPY` as `uc_send`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    either!(calls::sendmsg(fd, msg, flags), libc::sendmsg(fd, msg, flags))
}

/// `sendmmsg(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_sendmmsg(fd: c_int, msgs: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
    either!(calls::sendmmsg(fd, msgs, count, flags), libc::sendmmsg(fd, msgs, count, flags)) as c_int
}

/// `recv(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    either!(calls::recvfrom(fd, buf, len, flags, std::ptr::null_mut()), libc::recv(fd, buf, len, flags))
}

/// `recvfrom(2)`. A stream names no sender: `*addr_len` becomes 0.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_recvfrom(
    fd: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> ssize_t {
    let wanted = if addr.is_null() { std::ptr::null_mut() } else { addr_len };
    either!(calls::recvfrom(fd, buf, len, flags, wanted), libc::recvfrom(fd, buf, len, flags, addr, addr_len))
}

/// `recvmsg(2)`; with `MSG_ERRQUEUE` the next notification of `MSG_ZEROCOPY`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    either!(calls::recvmsg(fd, msg, flags), libc::recvmsg(fd, msg, flags))
}

/// `recvmmsg(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_recvmmsg(
    fd: c_int,
    msgs: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    either!(
        calls::recvmmsg(fd, msgs, count, flags, duration_of(timeout)),
        libc::recvmmsg(fd, msgs, count, flags, timeout)
    ) as c_int
}

/// `sendfile(2)`. The file's bytes are copied once, into the stack.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_sendfile(out: c_int, file: c_int, offset: *mut i64, count: size_t) -> ssize_t {
    either!(calls::sendfile(out, file, offset, count), libc::sendfile64(out, file, offset, count))
}

/// `splice(2)` between a pipe and a socket.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_splice(
    from: c_int,
    off_in: *mut i64,
    to: c_int,
    off_out: *mut i64,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    either!(
        calls::splice(from, off_in, to, off_out, len, flags),
        libc::splice(from, off_in, to, off_out, len, flags)
    )
}
