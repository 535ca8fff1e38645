//! Waiting for several descriptors.

use std::time::{Duration, Instant};

use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use posix::{SigMask, calls};

use crate::int;

/// A time limit in milliseconds; negative is none.
fn millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// Seconds and a fraction; what is negative is over at once.
fn duration(seconds: i64, fraction: i64, nanos: u32) -> Duration {
    let fraction = u32::try_from(fraction).unwrap_or(0).min(1_000_000_000 / nanos - 1);
    Duration::new(u64::try_from(seconds).unwrap_or(0), fraction * nanos)
}

/// A `timespec`'s duration; null is none.
pub(crate) unsafe fn duration_of(ts: *const timespec) -> Option<Duration> {
    if ts.is_null() {
        return None;
    }
    // SAFETY: not null, and the program's to read. Test: test_signals_interrupt of sockets.py.
    let ts = unsafe { ts.read() };
    Some(duration(ts.tv_sec, ts.tv_nsec, 1))
}

/// `select`, which on Linux says how much of the time is left.
unsafe fn select_ours(
    n: c_int,
    r: *mut fd_set,
    w: *mut fd_set,
    e: *mut fd_set,
    timeout: *mut timeval,
) -> Option<c_int> {
    // SAFETY: null, or the program's to read and write; the sets are the program's.
    // Test: test_poll_mixes_descriptors of sockets.py.
    unsafe {
        let limit =
            (!timeout.is_null()).then(|| timeout.read()).map(|tv| duration(tv.tv_sec, tv.tv_usec, 1000));
        let begun = Instant::now();
        let answer = calls::pselect(n, r, w, e, limit, SigMask::NONE)?;
        if let Some(limit) = limit {
            let left = limit.saturating_sub(begun.elapsed());
            timeout.write(timeval { tv_sec: left.as_secs() as i64, tv_usec: left.subsec_micros().into() });
        }
        int(Some(answer))
    }
}

interpose! {
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int =
        int(calls::ppoll(fds, count, millis(timeout), SigMask::NONE));
    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int =
        int(calls::ppoll(fds, count, millis(timeout), SigMask::NONE));
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int =
        int(calls::ppoll(fds, count, duration_of(timeout), SigMask::new(mask)));
    fn __ppoll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t
    ) -> c_int = int(calls::ppoll(fds, count, duration_of(timeout), SigMask::new(mask)));
    fn select(n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *mut timeval) -> c_int =
        select_ours(n, r, w, e, timeout);
    fn pselect(
        n: c_int, r: *mut fd_set, w: *mut fd_set, e: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int = int(calls::pselect(n, r, w, e, duration_of(timeout), SigMask::new(mask)));
    fn epoll_ctl(ep: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int =
        int(calls::epoll_ctl(ep, op, fd, event));
    fn epoll_wait(ep: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int =
        int(calls::epoll_wait(ep, events, max, millis(timeout), SigMask::NONE));
    fn epoll_pwait(
        ep: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int = int(calls::epoll_wait(ep, events, max, millis(timeout), SigMask::new(mask)));
    fn epoll_pwait2(
        ep: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int = int(calls::epoll_wait(ep, events, max, duration_of(timeout), SigMask::new(mask)));
}
