//! Who sleeps for a call that has to wait, and by which clock its limit is counted.
//!
//! By default the kernel does: a futex, `ppoll`, `epoll_pwait2`. A program whose time is not the kernel's (the
//! packetdrill plug-in) brings a [`Sleeper`] of its own.

use std::sync::OnceLock;
use std::time::Instant;

/// Sleeps for the calls of this process.
pub trait Sleeper: Send + Sync {
    /// The time now, by the clock that limits are counted by. Never less than an earlier answer.
    fn now(&self) -> Instant;

    /// Sleeps until `awake` says yes or, if there is one, the time `until` has come. It may return early: its
    /// caller looks again. `awake` costs little and takes no lock.
    fn sleep(&self, awake: &dyn Fn() -> bool, until: Option<Instant>);
}

static SLEEPER: OnceLock<&'static dyn Sleeper> = OnceLock::new();

/// From now on `sleeper` sleeps for all calls. False if another one does so already: it stays.
pub fn set_sleeper(sleeper: &'static dyn Sleeper) -> bool {
    SLEEPER.set(sleeper).is_ok()
}

/// The one that was set.
pub(crate) fn sleeper() -> Option<&'static dyn Sleeper> {
    SLEEPER.get().copied()
}

/// The time that limits are counted by.
pub(crate) fn now() -> Instant {
    sleeper().map_or_else(Instant::now, Sleeper::now)
}
