//! A lock that survives `fork`.
//!
//! A lock with a queue hands itself to whoever waits. In a child the waiters do not exist, and what is handed to
//! them is never given back. This one is a number and a futex: whoever releases it, in parent or child, leaves it
//! free.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::lock_api;
use rustix::thread::futex;

/// A mutex whose guard may be released in a child of `fork`.
pub(crate) type ForkMutex<T> = lock_api::Mutex<RawForkMutex, T>;
/// Its guard.
pub(crate) type ForkGuard<'a, T> = lock_api::MutexGuard<'a, RawForkMutex, T>;
/// A guard that keeps the mutex alive.
pub(crate) type ForkArcGuard<T> = lock_api::ArcMutexGuard<RawForkMutex, T>;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep.
const AWAITED: u32 = 2;

/// The number.
pub(crate) struct RawForkMutex(AtomicU32);

// SAFETY: at most one thread takes the number from FREE to another value, by compare-and-swap or by a swap that
// found FREE, and only it stores FREE again. Acquire and release order what the lock guards.
// Test: only_one_is_inside, and a_child_finds_it_free.
unsafe impl lock_api::RawMutex for RawForkMutex {
    #[allow(clippy::declare_interior_mutable_const, reason = "lock_api's way to make one")]
    const INIT: Self = RawForkMutex(AtomicU32::new(FREE));
    type GuardMarker = lock_api::GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_slowly();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    // SAFETY: lock_api's contract: only the holder calls it.
    unsafe fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
        }
    }
}

impl RawForkMutex {
    #[cold]
    fn lock_slowly(&self) {
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            // A change or a signal: look again.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, AWAITED, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn only_one_is_inside() {
        let count = Arc::new(ForkMutex::<u64>::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let count = count.clone();
                std::thread::spawn(move || {
                    for _ in 0..50_000 {
                        let mut n = count.lock();
                        *n = std::hint::black_box(*n) + 1;
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(*count.lock(), 200_000);
    }

    /// A release in a child: the copy of a lock that others waited for is free after it.
    #[test]
    fn a_child_finds_it_free() {
        let copy = RawForkMutex(AtomicU32::new(AWAITED));
        // SAFETY: it is held, and nobody else knows of it.
        unsafe { lock_api::RawMutex::unlock(&copy) };
        assert!(lock_api::RawMutex::try_lock(&copy));
        assert!(!lock_api::RawMutex::try_lock(&copy));
    }
}
