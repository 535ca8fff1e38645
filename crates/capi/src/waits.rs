//! Waiting for several descriptors, the stack's and the kernel's in one call.
//!
//! Contract. That of each call's man page.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use posix::{SigMask, calls};

use crate::sockets::either;

/// A time limit in milliseconds; negative is none.
fn millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// A `timespec`'s duration; null is none. A negative one is over at once.
///
/// # Safety
/// `ts` is null or readable.
pub(crate) unsafe fn duration_of(ts: *const timespec) -> Option<Duration> {
    if ts.is_null() {
        return None;
    }
    // SAFETY: the caller's promise. Test: crates/capi/tests/c/readiness.c.
    let ts = unsafe { ts.read_unaligned() };
    let seconds = u64::try_from(ts.tv_sec).unwrap_or(0);
    Some(Duration::new(seconds, u32::try_from(ts.tv_nsec).unwrap_or(0).min(999_999_999)))
}

/// `poll(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_poll(fds: *mut pollfd, count: nfds_t, timeout_ms: c_int) -> c_int {
    let limit = millis(timeout_ms);
    either!(calls::ppoll(fds, count, limit, SigMask::NONE), libc::poll(fds, count, timeout_ms)) as c_int
}

/// `ppoll(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    either!(
        calls::ppoll(fds, count, duration_of(timeout), SigMask::new(mask)),
        libc::ppoll(fds, count, timeout, mask)
    ) as c_int
}

/// `select(2)`. As on Linux, `*timeout` is set to the time that was left.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_select(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let begun = Instant::now();
    // SAFETY: the caller's promise. Test: crates/capi/tests/c/readiness.c.
    let limit = (!timeout.is_null()).then(|| unsafe { timeout.read_unaligned() }).map(|tv| {
        let micros = u64::try_from(tv.tv_usec).unwrap_or(0);
        Duration::from_secs(u64::try_from(tv.tv_sec).unwrap_or(0)) + Duration::from_micros(micros)
    });
    let mut ours = true;
    let n = either!(calls::pselect(nfds, readfds, writefds, exceptfds, limit, SigMask::NONE), {
        ours = false;
        libc::select(nfds, readfds, writefds, exceptfds, timeout)
    });
    if let Some(limit) = limit.filter(|_| ours) {
        let left = limit.saturating_sub(begun.elapsed());
        let tv = timeval { tv_sec: left.as_secs() as libc::time_t, tv_usec: left.subsec_micros().into() };
        // SAFETY: as above.
        unsafe { timeout.write_unaligned(tv) };
    }
    n as c_int
}

/// `pselect(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_pselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    either!(
        calls::pselect(nfds, readfds, writefds, exceptfds, duration_of(timeout), SigMask::new(mask)),
        libc::pselect(nfds, readfds, writefds, exceptfds, timeout, mask)
    ) as c_int
}

/// `epoll_create1(2)`. The set is the kernel's; sockets of a stack are added to it by `uc_epoll_ctl`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_epoll_create1(flags: c_int) -> c_int {
    either!(None, libc::epoll_create1(flags)) as c_int
}

/// `epoll_ctl(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_epoll_ctl(ep: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    either!(calls::epoll_ctl(ep, op, fd, event), libc::epoll_ctl(ep, op, fd, event)) as c_int
}

/// `epoll_wait(2)`. Sets with sockets of a stack are to be waited on by this, and not by the kernel's call.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_epoll_wait(
    ep: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout_ms: c_int,
) -> c_int {
    either!(
        calls::epoll_wait(ep, events, max, millis(timeout_ms), SigMask::NONE),
        libc::epoll_wait(ep, events, max, timeout_ms)
    ) as c_int
}

/// `epoll_pwait(2)`.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_epoll_pwait(
    ep: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout_ms: c_int,
    mask: *const sigset_t,
) -> c_int {
    either!(
        calls::epoll_wait(ep, events, max, millis(timeout_ms), SigMask::new(mask)),
        libc::epoll_pwait(ep, events, max, timeout_ms, mask)
    ) as c_int
}
