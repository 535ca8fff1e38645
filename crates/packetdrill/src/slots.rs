//! The calls, in the order of packetdrill's record.
//!
//! Contract. Each function has the contract of the call it is named after; pointers are the script's, null where
//! the script says so. Results are libc's: -1 and `errno`. Descriptors that are not ours, and sockets that the
//! stack does not have, are the kernel's, and the call is passed on to it.

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;
use std::time::Duration;

use libc::{
    c_int, c_uint, c_ulong, epoll_event, iovec, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t,
    timeval,
};
use posix::SigMask;
use posix::calls::{self, Answer};
use posix::errno::Errno;

use crate::options;
use crate::world::{self, TURN};

/// Calls in the record.
pub(crate) const COUNT: usize = 32;

/// Their addresses.
pub(crate) fn all() -> [*const c_void; COUNT] {
    [
        free as *const c_void,
        socket as *const c_void,
        bind as *const c_void,
        listen as *const c_void,
        accept as *const c_void,
        connect as *const c_void,
        read as *const c_void,
        readv as *const c_void,
        recv as *const c_void,
        recvfrom as *const c_void,
        recvmsg as *const c_void,
        write as *const c_void,
        writev as *const c_void,
        send as *const c_void,
        sendto as *const c_void,
        sendmsg as *const c_void,
        fcntl as *const c_void,
        ioctl as *const c_void,
        close as *const c_void,
        shutdown as *const c_void,
        getsockopt as *const c_void,
        setsockopt as *const c_void,
        poll as *const c_void,
        netdev_send as *const c_void,
        netdev_receive as *const c_void,
        usleep as *const c_void,
        gettimeofday as *const c_void,
        epoll_create as *const c_void,
        epoll_ctl as *const c_void,
        epoll_wait as *const c_void,
        pipe as *const c_void,
        splice as *const c_void,
    ]
}

/// packetdrill's first argument, which is ours and not needed: it loads one plug-in.
type User = *mut c_void;

/// The last errno of this thread.
fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn set_errno(e: i32) {
    // SAFETY: errno's cell is the calling thread's own. Test: tests/arguments.rs.
    unsafe { *libc::__errno_location() = e };
}

/// One call: ours, or else the kernel's, for which others may have their turn meanwhile.
pub(crate) fn call(ours: impl FnOnce() -> Answer, kernels: impl FnOnce() -> isize) -> isize {
    let Some(world) = world::current() else {
        return kernels();
    };
    let outcome = world.call(|| match ours() {
        Some(result) => result.map_err(Errno::raw_os_error),
        None => {
            TURN.leave();
            let n = kernels();
            let outcome = if n < 0 { Err(errno()) } else { Ok(n) };
            TURN.enter();
            outcome
        }
    });
    match outcome {
        Ok(n) => n,
        Err(e) => {
            set_errno(e);
            -1
        }
    }
}

/// Declares calls that are `posix`'s, or else libc's.
macro_rules! slots {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty { ours: $ours:expr, kernels: $kernels:expr $(,)? })*) => {
        $(
            #[allow(unused_unsafe, reason = "some take no pointers")]
            unsafe extern "C" fn $name(_: User, $($arg: $ty),*) -> $ret {
                // SAFETY: pointers and lengths are the caller's, and keep the contract of the call of that name.
                // Test: tests/arguments.rs, where they are as wrong as scripts make them.
                call(|| unsafe { $ours }, || unsafe { $kernels as isize }) as $ret
            }
        )*
    };
}

slots! {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        ours: calls::socket(domain, kind, protocol),
        kernels: libc::socket(domain, kind, protocol),
    }
    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
        ours: {
            learn(addr, len);
            calls::bind(fd, addr, len)
        },
        kernels: libc::bind(fd, addr, len),
    }
    fn listen(fd: c_int, backlog: c_int) -> c_int {
        ours: calls::listen(fd, backlog),
        kernels: libc::listen(fd, backlog),
    }
    fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int {
        ours: calls::accept4(fd, addr, len, 0),
        kernels: libc::accept(fd, addr, len),
    }
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int {
        ours: calls::connect(fd, addr, len),
        kernels: libc::connect(fd, addr, len),
    }
    fn read(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t {
        ours: calls::recvfrom(fd, buf, len, 0, std::ptr::null_mut()),
        kernels: libc::read(fd, buf, len),
    }
    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
        ours: calls::readv(fd, iov, count),
        kernels: libc::readv(fd, iov, count),
    }
    fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        ours: calls::recvfrom(fd, buf, len, flags, std::ptr::null_mut()),
        kernels: libc::recv(fd, buf, len, flags),
    }
    fn recvfrom(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t)
        -> ssize_t
    {
        ours: calls::recvfrom(fd, buf, len, flags, addr_len),
        kernels: libc::recvfrom(fd, buf, len, flags, addr, addr_len),
    }
    fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
        ours: calls::recvmsg(fd, msg, flags),
        kernels: libc::recvmsg(fd, msg, flags),
    }
    fn write(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t {
        ours: calls::send(fd, buf, len, 0),
        kernels: libc::write(fd, buf, len),
    }
    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
        ours: calls::writev(fd, iov, count),
        kernels: libc::writev(fd, iov, count),
    }
    fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        ours: calls::send(fd, buf, len, flags),
        kernels: libc::send(fd, buf, len, flags),
    }
    fn sendto(fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, addr_len: socklen_t)
        -> ssize_t
    {
        ours: calls::sendto(fd, buf, len, flags, addr, addr_len),
        kernels: libc::sendto(fd, buf, len, flags, addr, addr_len),
    }
    fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
        ours: calls::sendmsg(fd, msg, flags),
        kernels: libc::sendmsg(fd, msg, flags),
    }
    // Variadic in C: an argument that the command does not have is whatever was in the register, and one that it
    // has is an int.
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        ours: calls::fcntl(fd, command, argument as c_int as usize),
        kernels: libc::fcntl(fd, command, argument as c_int),
    }
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_int) -> c_int {
        ours: calls::ioctl(fd, request, argument),
        kernels: libc::ioctl(fd, request, argument),
    }
    fn close(fd: c_int) -> c_int {
        ours: calls::close(fd),
        kernels: libc::close(fd),
    }
    fn shutdown(fd: c_int, how: c_int) -> c_int {
        ours: calls::shutdown(fd, how),
        kernels: libc::shutdown(fd, how),
    }
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
        ours: options::get(fd, level, name, value, len),
        kernels: libc::getsockopt(fd, level, name, value, len),
    }
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
        ours: calls::setsockopt(fd, level, name, value, options::readable(level, name, len)),
        kernels: libc::setsockopt(fd, level, name, value, len),
    }
    fn epoll_create(size: c_int) -> c_int {
        ours: None,
        kernels: libc::epoll_create(size),
    }
    fn epoll_ctl(ep: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        ours: calls::epoll_ctl(ep, op, fd, event),
        kernels: libc::epoll_ctl(ep, op, fd, event),
    }
    fn pipe(fds: *mut c_int) -> c_int {
        ours: None,
        kernels: libc::pipe(fds),
    }
    fn splice(from: c_int, off_in: *mut i64, to: c_int, off_out: *mut i64, len: size_t, flags: c_uint) -> c_int {
        ours: calls::splice(from, offset(from, off_in), to, offset(to, off_out), len, flags),
        kernels: libc::splice(from, offset(from, off_in), to, offset(to, off_out), len, flags),
    }
    // The two that wait wait in virtual time, for the kernel's descriptors too.
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        ours: calls::ppoll(fds, count, limit(timeout), SigMask::NONE)
            .or_else(|| Some(waiting(timeout, || libc::poll(fds, count, 0)))),
        kernels: libc::poll(fds, count, timeout),
    }
    fn epoll_wait(ep: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int {
        ours: calls::epoll_wait(ep, events, max, limit(timeout), SigMask::NONE)
            .or_else(|| Some(waiting(timeout, || libc::epoll_wait(ep, events, max, 0)))),
        kernels: libc::epoll_wait(ep, events, max, timeout),
    }
}

extern "C" fn free(_: User) {
    world::end();
}

unsafe extern "C" fn netdev_send(_: User, packet: *const c_void, len: size_t) -> c_int {
    let Some(world) = world::current().filter(|_| !packet.is_null()) else { return -1 };
    // SAFETY: packetdrill's packet, for the call. Test: tests/handshake.rs.
    let packet = unsafe { std::slice::from_raw_parts(packet.cast::<u8>(), len) };
    if world.inject(packet) { 0 } else { -1 }
}

unsafe extern "C" fn netdev_receive(
    _: User,
    buf: *mut c_void,
    len: *mut size_t,
    time_usecs: *mut libc::c_longlong,
) -> c_int {
    let sent = world::current().and_then(|world| world.receive());
    // SAFETY: packetdrill's buffer of `*len` bytes, and two variables. Test: tests/handshake.rs.
    unsafe {
        // An empty packet fails the script: nothing will come.
        let bytes = sent.as_ref().map_or(&[][..], |s| &s.bytes);
        let n = bytes.len().min(len.read());
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buf.cast::<u8>(), n);
        len.write(n);
        time_usecs.write(sent.map_or(0, |s| s.at.as_micros() as libc::c_longlong));
    }
    0
}

extern "C" fn usleep(_: User, micros: c_uint) -> c_int {
    if let Some(world) = world::current() {
        world.sleep(Duration::from_micros(micros.into()));
    }
    0
}

unsafe extern "C" fn gettimeofday(_: User, now: *mut timeval, _zone: *mut c_void) -> c_int {
    let micros = world::current().map_or_else(world::reading, |world| world.time_of_day());
    let (tv_sec, tv_usec) = ((micros / 1_000_000) as libc::time_t, (micros % 1_000_000) as libc::suseconds_t);
    // SAFETY: packetdrill's variable. Test: tests/handshake.rs.
    unsafe { now.write(timeval { tv_sec, tv_usec }) };
    0
}

/// The address that a script binds to becomes the stack's.
///
/// # Safety
/// `addr` is null or readable for `len` bytes.
unsafe fn learn(addr: *const sockaddr, len: socklen_t) {
    let len = len as usize;
    let Some(world) = world::current().filter(|_| !addr.is_null() && len >= size_of::<sockaddr>()) else {
        return;
    };
    // SAFETY: both structs are plain bytes, and the length was looked at. Test: tests/handshake.rs.
    let local: Option<IpAddr> = unsafe {
        match i32::from((*addr).sa_family) {
            libc::AF_INET => {
                let at = addr.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(at.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
                let at = addr.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(at.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    };
    if let Some(local) = local {
        world.learn(local);
    }
}

/// `poll`'s milliseconds.
fn limit(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// A waiting call on the kernel's descriptors only: `look` does not wait.
fn waiting(timeout: c_int, look: impl Fn() -> c_int) -> Result<isize, Errno> {
    let until = limit(timeout).map(|t| world::now() + t);
    loop {
        match look() {
            0 if until.is_some_and(|at| world::now() >= at) => return Ok(0),
            0 => world::sleep(&|| look() != 0, until),
            n if n < 0 => return Err(Errno::from_raw_os_error(errno())),
            n => return Ok(n as isize),
        }
    }
}

/// packetdrill has no null offsets: a pointer to 0 stands for one, where an offset makes no sense.
///
/// # Safety
/// `off` is null or points at an offset.
unsafe fn offset(fd: RawFd, off: *mut i64) -> *mut i64 {
    // SAFETY: the caller's promise. Test: tests/arguments.rs.
    if !off.is_null() && unsafe { off.read_unaligned() } == 0 && !can_seek(fd) {
        return std::ptr::null_mut();
    }
    off
}

fn can_seek(fd: RawFd) -> bool {
    // SAFETY: no memory is involved. Test: tests/arguments.rs.
    unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) >= 0 }
}
