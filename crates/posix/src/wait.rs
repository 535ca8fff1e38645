//! Sleeping: one parker per thread, on a futex, so that signals interrupt calls as they do in the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use rustix::thread::futex;
use rustix::time::Timespec;
use stack::Ready;

use crate::endpoint::Endpoint;
use crate::errno::{Errno, Result};
use crate::sleep;

/// A thread that can be woken from anywhere.
#[derive(Debug, Default)]
struct Parker(AtomicU32);

const WOKEN: u32 = 1;

impl Parker {
    /// Sleeps until woken, or the deadline; the caller's condition decides which it was.
    fn sleep(&self, deadline: Deadline) -> Result<()> {
        let left = deadline.left()?.map(timespec);
        if let Some(sleeper) = sleep::sleeper() {
            sleeper.sleep(&|| self.0.load(Ordering::Acquire) == WOKEN, deadline.at());
            return Ok(());
        }
        match futex::wait(&self.0, futex::Flags::PRIVATE, 0, left.as_ref()) {
            // Woken, or about to be, or time is up.
            Ok(()) | Err(Errno::AGAIN | Errno::TIMEDOUT) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.0.swap(WOKEN, Ordering::Release) != WOKEN {
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
        }
    }
}

thread_local! {
    static PARKER: (Arc<Parker>, Waker) = {
        let parker = Arc::new(Parker::default());
        (parker.clone(), Waker::from(parker))
    };
}

/// When a wait is over. The kernel's rule for signals depends on it: a wait without a limit is resumed after
/// a handler with `SA_RESTART`, one with a limit never is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        // A time too far to be counted is no limit.
        Self(timeout.and_then(|t| sleep::now().checked_add(t)))
    }

    /// The time it passes at; `None` is never.
    pub(crate) fn at(self) -> Option<Instant> {
        self.0
    }

    pub(crate) fn is_over(self) -> bool {
        self.left().is_err()
    }

    /// Time left; `Err` when there is none.
    pub(crate) fn left(self) -> Result<Option<Duration>> {
        let Some(at) = self.0 else { return Ok(None) };
        match at.checked_duration_since(sleep::now()) {
            Some(left) if !left.is_zero() => Ok(Some(left)),
            _ => Err(Errno::AGAIN),
        }
    }
}

/// Sleeps until `endpoint` is ready for any of `interest`, or `enough` says that it need not wait.
///
/// # Errors
/// `EAGAIN`: the deadline passed. `EINTR`: a signal handler ran.
pub(crate) fn wait(endpoint: &dyn Endpoint, interest: Ready, deadline: Deadline) -> Result<()> {
    wait_until(endpoint, interest, deadline, || endpoint.ready().intersects(interest))
}

/// As [`wait`], with a condition of the caller's that news of `interest` may make true.
pub(crate) fn wait_until(
    endpoint: &dyn Endpoint,
    interest: Ready,
    deadline: Deadline,
    enough: impl Fn() -> bool,
) -> Result<()> {
    PARKER.with(|(parker, waker)| {
        let result = loop {
            parker.0.store(0, Ordering::Relaxed);
            endpoint.register(interest, waker);
            if enough() {
                break Ok(());
            }
            if let Err(e) = parker.sleep(deadline) {
                break if enough() { Ok(()) } else { Err(e) };
            }
        };
        endpoint.deregister(waker);
        result
    })
}

/// A duration as the kernel takes it.
pub(crate) fn timespec(d: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(d.subsec_nanos()) }
}
