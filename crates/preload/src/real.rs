//! The functions we stand in front of.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of libc's, looked up when it is first needed.
pub(crate) struct Real {
    name: &'static CStr,
    address: AtomicPtr<libc::c_void>,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address. A libc without it ends the program: there is nothing to call.
    #[inline]
    pub(crate) fn get(&self) -> *mut libc::c_void {
        let known = self.address.load(Ordering::Relaxed);
        if known.is_null() { self.find() } else { known }
    }

    #[cold]
    fn find(&self) -> *mut libc::c_void {
        // SAFETY: the name ends with a NUL. Test: crates/preload/tests/programs.rs.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            posix::net::say(&format!("libc has no {}", self.name.to_string_lossy()));
            // SAFETY: never returns. Test: none; no such libc is at hand.
            unsafe { libc::abort() };
        }
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Declares libc's functions as `real::name(…)`.
macro_rules! real {
    ($($name:ident = $symbol:literal ($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(
            #[inline]
            pub(crate) unsafe fn $name($($arg: $ty),*) -> $ret {
                static REAL: Real = Real::new($symbol);
                type Function = unsafe extern "C" fn($($ty),*) -> $ret;
                // SAFETY: the symbol is libc's function of that name, whose C type this is; the caller keeps
                // its contract. Test: crates/preload/tests/programs.rs.
                unsafe { std::mem::transmute::<*mut libc::c_void, Function>(REAL.get())($($arg),*) }
            }
        )*
    };
}

use libc::{
    c_int, c_void, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pollfd, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval,
};

real! {
    socket = c"socket"(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind = c"bind"(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    listen = c"listen"(fd: c_int, backlog: c_int) -> c_int;
    accept4 = c"accept4"(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    connect = c"connect"(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int;
    getsockname = c"getsockname"(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getpeername = c"getpeername"(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int;
    shutdown = c"shutdown"(fd: c_int, how: c_int) -> c_int;
    getsockopt = c"getsockopt"(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    setsockopt = c"setsockopt"(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;

    read = c"read"(fd: c_int, buf: *mut c_void, len: size_t) -> ssize_t;
    readv = c"readv"(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    write = c"write"(fd: c_int, buf: *const c_void, len: size_t) -> ssize_t;
    writev = c"writev"(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t;
    send = c"send"(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    sendto = c"sendto"(fd: c_int, buf: *const c_void, len: size_t, flags: c_int, addr: *const sockaddr, alen: socklen_t) -> ssize_t;
    sendmsg = c"sendmsg"(fd: c_int, msg: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg = c"sendmmsg"(fd: c_int, msgs: *mut mmsghdr, count: libc::c_uint, flags: c_int) -> c_int;
    recv = c"recv"(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    recvfrom = c"recvfrom"(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, addr: *mut sockaddr, alen: *mut socklen_t) -> ssize_t;
    recvmsg = c"recvmsg"(fd: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg = c"recvmmsg"(fd: c_int, msgs: *mut mmsghdr, count: libc::c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    sendfile64 = c"sendfile64"(out: c_int, file: c_int, offset: *mut i64, count: size_t) -> ssize_t;
    splice = c"splice"(from: c_int, off_in: *mut i64, to: c_int, off_out: *mut i64, len: size_t, flags: libc::c_uint) -> ssize_t;

    close = c"close"(fd: c_int) -> c_int;
    close_range = c"close_range"(first: libc::c_uint, last: libc::c_uint, flags: c_int) -> c_int;
    dup = c"dup"(fd: c_int) -> c_int;
    dup2 = c"dup2"(old: c_int, new: c_int) -> c_int;
    dup3 = c"dup3"(old: c_int, new: c_int, flags: c_int) -> c_int;
    fcntl64 = c"fcntl64"(fd: c_int, command: c_int, argument: usize) -> c_int;
    ioctl = c"ioctl"(fd: c_int, request: libc::c_ulong, argument: usize) -> c_int;

    poll = c"poll"(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    ppoll = c"ppoll"(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    select = c"select"(n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect = c"pselect"(n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_ctl = c"epoll_ctl"(ep: c_int, op: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int;
    epoll_pwait = c"epoll_pwait"(ep: c_int, events: *mut libc::epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2 = c"epoll_pwait2"(ep: c_int, events: *mut libc::epoll_event, max: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;

    fdopen = c"fdopen"(fd: c_int, mode: *const libc::c_char) -> *mut libc::FILE;
    fileno = c"fileno"(stream: *mut libc::FILE) -> c_int;
    fclose = c"fclose"(stream: *mut libc::FILE) -> c_int;

    munmap = c"munmap"(addr: *mut c_void, len: size_t) -> c_int;
    mmap64 = c"mmap64"(addr: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: libc::off64_t) -> *mut c_void;
    mremap = c"mremap"(addr: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void) -> *mut c_void;
    madvise = c"madvise"(addr: *mut c_void, len: size_t, advice: c_int) -> c_int;
    mprotect = c"mprotect"(addr: *mut c_void, len: size_t, protection: c_int) -> c_int;
    free = c"free"(block: *mut c_void) -> ();
    realloc = c"realloc"(block: *mut c_void, size: size_t) -> *mut c_void;
    exit_now = c"_exit"(status: c_int) -> c_int;
}

/// Offsets are 64 bits wide: `sendfile` and `sendfile64` are one.
const _: () = assert!(size_of::<off_t>() == 8);
