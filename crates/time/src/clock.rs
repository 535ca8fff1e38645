//! Where time comes from, for those few who may ask.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use crate::Instant;

/// A monotonic source of time.
pub trait Clock: Send + Sync {
    /// The time now. Never less than an earlier answer.
    fn now(&self) -> Instant;
}

/// The machine's monotonic clock. Its epoch lies one second before its creation, so that no
/// timestamp derived from it is zero.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::from_secs(1) + self.start.elapsed()
    }
}

/// A clock that moves when told to: for simulations and tests.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that stands at `at`.
    pub fn new(at: Instant) -> Self {
        Self(AtomicU64::new(at.as_nanos()))
    }
    /// Moves forward by `d`.
    pub fn advance(&self, d: Duration) {
        self.set(self.now() + d);
    }
    /// Moves forward to `at`; a time in the past changes nothing.
    pub fn set(&self, at: Instant) {
        self.0.fetch_max(at.as_nanos(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}
