//! System calls that `rustix` has no safe form for: descriptors by number, `poll` and `epoll` with masks.
//!
//! Contract. Numbers are the program's; what they refer to is the program's business, as in C. Pointers come
//! from the program's own call and are passed on as they came.
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::errno::{Errno, Result};

/// A result of a raw call.
fn result(n: libc::c_long) -> Result<libc::c_long> {
    if n == -1 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(n)
}

/// Closes a descriptor.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: no memory is involved; the number is one that the caller was given to close.
    // Test: test_names and others of sockets.py.
    let _ = unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// `close_range`.
pub(crate) fn close_range(first: u32, last: u32, flags: i32) -> Result<()> {
    // SAFETY: no memory is involved. Test: test_closing_ranges of sockets.py.
    result(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) }).map(drop)
}

/// `fcntl` with a number as argument.
pub(crate) fn fcntl(fd: RawFd, command: i32, argument: usize) -> Result<i32> {
    // SAFETY: the argument is passed on as it came from the program. Test: test_names and others of sockets.py.
    result(unsafe { libc::syscall(libc::SYS_fcntl, fd, command, argument) }).map(|n| n as i32)
}

/// `dup3`, or `dup2` if the numbers are equal.
pub(crate) fn dup3(old: RawFd, new: RawFd, flags: i32) -> Result<RawFd> {
    // SAFETY: no memory is involved. Test: test_names and others of sockets.py.
    result(unsafe { libc::syscall(libc::SYS_dup3, old, new, flags) }).map(|n| n as RawFd)
}

/// `setsockopt` of the kernel.
pub(crate) fn setsockopt(fd: RawFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
    // SAFETY: pointer and length are of one slice. Test: test_options of sockets.py.
    result(unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, value.as_ptr(), value.len()) })
        .map(drop)
}

/// The signal mask of a waiting call: what the kernel's own calls take.
#[derive(Clone, Copy)]
pub struct SigMask {
    mask: *const libc::sigset_t,
}

/// Bytes of the kernel's signal set.
const KERNEL_SIGSET: usize = 8;

impl SigMask {
    /// No change of the mask.
    pub const NONE: SigMask = SigMask { mask: std::ptr::null() };

    /// A mask of the program's call.
    ///
    /// # Safety
    /// `mask` is null or points at a signal set for the duration of the call.
    pub unsafe fn new(mask: *const libc::sigset_t) -> Self {
        Self { mask }
    }
}

/// `ppoll`.
pub(crate) fn ppoll(
    fds: &mut [libc::pollfd],
    timeout: Option<libc::timespec>,
    mask: SigMask,
) -> Result<usize> {
    let mut timeout = timeout;
    let ts = timeout.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: array and length are of one slice, the time-out is ours, the mask is valid for the call by
    // SigMask's contract. Test: test_poll_mixes_descriptors of sockets.py.
    result(unsafe {
        libc::syscall(libc::SYS_ppoll, fds.as_mut_ptr(), fds.len(), ts, mask.mask, KERNEL_SIGSET)
    })
    .map(|n| n as usize)
}

/// Whether any of `fds` is ready now.
pub(crate) fn any_ready(fds: &[libc::pollfd]) -> bool {
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    ppoll(&mut fds.to_vec(), Some(now), SigMask::NONE).is_ok_and(|n| n > 0)
}

/// `epoll_ctl`.
pub(crate) fn epoll_ctl(ep: RawFd, op: i32, fd: RawFd, event: Option<libc::epoll_event>) -> Result<()> {
    let mut event = event;
    let ptr = event.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    // SAFETY: the event is ours, or null as the program gave it. Test: test_epoll_level_and_edge of sockets.py.
    result(unsafe { libc::syscall(libc::SYS_epoll_ctl, ep, op, fd, ptr) }).map(drop)
}

/// Whether the kernel has `epoll_pwait2` (Linux 5.11; valgrind 3.19 does not pass it on).
static HAS_PWAIT2: AtomicBool = AtomicBool::new(true);

/// `epoll_pwait2`, or what there is of it; appends to `out` at most `max` events.
pub(crate) fn epoll_wait(
    ep: RawFd,
    out: &mut Vec<libc::epoll_event>,
    max: usize,
    timeout: Option<libc::timespec>,
    mask: SigMask,
) -> Result<usize> {
    let mut timeout = timeout;
    let old = out.len();
    out.resize(old + max, libc::epoll_event { events: 0, u64: 0 });
    let room = &mut out[old..];
    let n = if HAS_PWAIT2.load(Ordering::Relaxed) {
        let ts = timeout.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        // SAFETY: array and length are of one slice; time-out and mask as in ppoll.
        // Test: posix/tests/epoll.rs.
        result(unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                ep,
                room.as_mut_ptr(),
                room.len(),
                ts,
                mask.mask,
                KERNEL_SIGSET,
            )
        })
    } else {
        Err(Errno::NOSYS)
    };
    let n = n.or_else(|e| {
        if e != Errno::NOSYS {
            return Err(e);
        }
        HAS_PWAIT2.store(false, Ordering::Relaxed);
        let ms = timeout.map_or(-1, whole_millis);
        // SAFETY: as above. Test: crates/capi/tests/c/readiness.c under valgrind.
        result(unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait,
                ep,
                room.as_mut_ptr(),
                room.len(),
                ms,
                mask.mask,
                KERNEL_SIGSET,
            )
        })
    });
    out.truncate(old + n.map_or(0, |n| n as usize));
    n.map(|n| n as usize)
}

/// Milliseconds, rounded up: a wait is never shorter than asked for.
fn whole_millis(ts: libc::timespec) -> libc::c_int {
    let ms = ts.tv_sec.saturating_mul(1000).saturating_add((ts.tv_nsec + 999_999) / 1_000_000);
    libc::c_int::try_from(ms).unwrap_or(libc::c_int::MAX)
}

/// `pread`, or `read` without an offset, by number.
pub(crate) fn read(fd: RawFd, buf: &mut [u8], offset: Option<i64>) -> Result<usize> {
    let (ptr, len) = (buf.as_mut_ptr(), buf.len());
    // SAFETY: pointer and length are of one exclusive slice. Test: test_sendfile_and_splice of sockets.py.
    let n = unsafe {
        match offset {
            Some(at) => libc::syscall(libc::SYS_pread64, fd, ptr, len, at),
            None => libc::syscall(libc::SYS_read, fd, ptr, len),
        }
    };
    result(n).map(|n| n as usize)
}

/// `write` by number.
pub(crate) fn write(fd: RawFd, buf: &[u8]) -> Result<usize> {
    // SAFETY: pointer and length are of one slice. Test: test_sendfile_and_splice of sockets.py.
    result(unsafe { libc::syscall(libc::SYS_write, fd, buf.as_ptr(), buf.len()) }).map(|n| n as usize)
}

/// `lseek`.
pub(crate) fn lseek(fd: RawFd, offset: i64, whence: i32) -> Result<i64> {
    // SAFETY: no memory is involved. Test: test_sendfile_and_splice of sockets.py.
    result(unsafe { libc::syscall(libc::SYS_lseek, fd, offset, whence) })
}

/// Raises a signal in the calling thread.
pub(crate) fn raise(signal: i32) {
    // SAFETY: no memory is involved. Test: test_names and others of sockets.py.
    let _ = unsafe { libc::raise(signal) };
}

/// Runs `f` with all signals blocked: threads made in it never run the program's handlers.
pub(crate) fn with_signals_blocked<R>(f: impl FnOnce() -> R) -> R {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset fills `all` before it is read; `old` is written by the call that succeeds.
    // Test: test_names and others of sockets.py.
    let changed = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr()) == 0
    };
    let r = f();
    if changed {
        // SAFETY: `old` was filled by the call that succeeded. Test: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
    }
    r
}
