//! Waiting for several descriptors.

use std::time::Duration;

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use posix::{SigMask, calls};

use crate::{answered, real};

/// A time limit in milliseconds; negative is none.
fn millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// A `timespec`'s duration; null is none. A negative one is over at once.
pub(crate) unsafe fn duration_of(ts: *const timespec) -> Option<Duration> {
    if ts.is_null() {
        return None;
    }
    // SAFETY: not null, and the program's to read. Test: crates/preload/tests/programs.rs.
    let ts = unsafe { ts.read() };
    let seconds = u64::try_from(ts.tv_sec).unwrap_or(0);
    Some(Duration::new(seconds, u32::try_from(ts.tv_nsec).unwrap_or(0).min(999_999_999)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let ours = unsafe { calls::ppoll(fds, count, millis(timeout), SigMask::NONE) };
    answered(ours, || unsafe { real::poll(fds, count, timeout) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, _room: size_t) -> c_int {
    unsafe { poll(fds, count, timeout) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let ours = unsafe { calls::ppoll(fds, count, duration_of(timeout), SigMask::new(mask)) };
    answered(ours, || unsafe { real::ppoll(fds, count, timeout, mask) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _room: size_t,
) -> c_int {
    unsafe { ppoll(fds, count, timeout, mask) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn select(
    n: c_int,
    r: *mut fd_set,
    w: *mut fd_set,
    e: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let limit = if timeout.is_null() {
        None
    } else {
        // SAFETY: not null, and the program's. Test: crates/preload/tests/programs.rs.
        let tv = unsafe { timeout.read() };
        let micros = u64::try_from(tv.tv_usec).unwrap_or(0);
        Some(Duration::from_secs(u64::try_from(tv.tv_sec).unwrap_or(0)) + Duration::from_micros(micros))
    };
    let begun = std::time::Instant::now();
    let Some(ours) = (unsafe { calls::pselect(n, r, w, e, limit, SigMask::NONE) }) else {
        return unsafe { real::select(n, r, w, e, timeout) };
    };
    if let Some(limit) = limit {
        // As Linux: what is left of the time.
        let left = limit.saturating_sub(begun.elapsed());
        let tv = timeval { tv_sec: left.as_secs() as libc::time_t, tv_usec: left.subsec_micros().into() };
        // SAFETY: as above.
        unsafe { timeout.write(tv) };
    }
    crate::libc_result(ours) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pselect(
    n: c_int,
    r: *mut fd_set,
    w: *mut fd_set,
    e: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let ours = unsafe { calls::pselect(n, r, w, e, duration_of(timeout), SigMask::new(mask)) };
    answered(ours, || unsafe { real::pselect(n, r, w, e, timeout, mask) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(ep: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let ours = unsafe { calls::epoll_ctl(ep, op, fd, event) };
    answered(ours, || unsafe { real::epoll_ctl(ep, op, fd, event) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_wait(
    ep: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> c_int {
    unsafe { epoll_pwait(ep, events, max, timeout, std::ptr::null()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait(
    ep: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    let ours = unsafe { calls::epoll_wait(ep, events, max, millis(timeout), SigMask::new(mask)) };
    answered(ours, || unsafe { real::epoll_pwait(ep, events, max, timeout, mask) } as isize) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_pwait2(
    ep: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let ours = unsafe { calls::epoll_wait(ep, events, max, duration_of(timeout), SigMask::new(mask)) };
    answered(ours, || unsafe { real::epoll_pwait2(ep, events, max, timeout, mask) } as isize) as c_int
}
