//! Waking the net thread out of its sleep, only when it sleeps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};
use time::Instant;

/// Until when the net thread sleeps, and the descriptor that ends its sleep.
///
/// The sleeper publishes its deadline, then looks for work once more; whoever makes work publishes it,
/// then looks at the deadline. With a `SeqCst` fence between on both sides one of them sees the other.
pub(crate) struct Wakeup {
    fd: OwnedFd,
    /// Nanoseconds of the deadline; 0 while awake.
    sleeping_until: AtomicU64,
    /// Writes to the descriptor, made or about to be made, that were not read: without any, reading it is a
    /// system call for nothing. One that comes after the read ends the next sleep early, which does no harm.
    owed: AtomicU64,
}

impl Wakeup {
    pub(crate) fn new() -> std::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd, sleeping_until: AtomicU64::new(0), owed: AtomicU64::new(0) })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Says that the thread is about to sleep until `deadline`. Look for work after this.
    pub(crate) fn about_to_sleep(&self, deadline: Option<Instant>) {
        let until = deadline.unwrap_or(Instant::MAX).as_nanos().max(1);
        self.sleeping_until.store(until, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that the thread is awake, and forgets wake-ups that came.
    pub(crate) fn awake(&self) {
        self.sleeping_until.store(0, Ordering::Relaxed);
        if self.owed.load(Ordering::Relaxed) > 0 {
            let mut count = [0u8; 8];
            if rustix::io::read(&self.fd, &mut count) == Ok(8) {
                self.owed.fetch_sub(u64::from_ne_bytes(count), Ordering::Relaxed);
            }
        }
    }

    /// Work that must begin by `at` was made.
    pub(crate) fn no_later_than(&self, at: Instant) {
        fence(Ordering::SeqCst);
        if at.as_nanos() < self.sleeping_until.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Work for right now was made.
    pub(crate) fn now(&self) {
        self.no_later_than(Instant::ZERO);
    }

    /// Ends this sleep, or the next one if there is none.
    pub(crate) fn always(&self) {
        self.wake();
    }

    fn wake(&self) {
        self.sleeping_until.store(0, Ordering::Relaxed);
        self.owed.fetch_add(1, Ordering::Relaxed);
        // Fails only when the count is full, and then it is awake.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }
}
