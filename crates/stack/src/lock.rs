//! The lock of a socket, and the backlog that means the packet side never waits for it.
//!
//! Process context takes the lock with [`OwnedLock::lock`] and may sleep for it. The packet side brings an
//! event with [`OwnedLock::deliver`]: it gets the lock at once, or leaves the event in the backlog. Whoever
//! holds the lock runs the backlog before letting go.
//!
//! No event is stranded. The deliverer publishes the event (`waiting`), then tries the lock once more; the
//! owner lets go of the lock, then looks at `waiting` once more. Both steps have a `SeqCst` fence between
//! them, so at least one of the two sees the other: either the deliverer gets the lock and runs the backlog
//! itself, or the owner sees the event and takes the lock again. (`loom` checks this: see the tests.)

use std::collections::VecDeque;

use sync::{AtomicUsize, Mutex, MutexGuard, Ordering, fence};

/// Either `parking_lot`, or `loom` under its own name for the model checker.
mod sync {
    #[cfg(loom)]
    pub(super) use loom::sync::atomic::{AtomicUsize, Ordering, fence};
    #[cfg(not(loom))]
    pub(super) use parking_lot::{Mutex, MutexGuard};
    #[cfg(not(loom))]
    pub(super) use std::sync::atomic::{AtomicUsize, Ordering, fence};

    #[cfg(loom)]
    pub(super) use loom::sync::MutexGuard;
    /// `loom`'s mutex with `parking_lot`'s signatures.
    #[cfg(loom)]
    pub(super) struct Mutex<T>(loom::sync::Mutex<T>);
    #[cfg(loom)]
    impl<T> Mutex<T> {
        pub(super) fn new(t: T) -> Self {
            Self(loom::sync::Mutex::new(t))
        }
        pub(super) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
        pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}

/// What became of a delivered event.
#[must_use]
pub(crate) enum Delivery<'a, T, E> {
    /// The lock is ours; the event was not queued.
    Now(MutexGuard<'a, T>, E),
    /// The event is in the backlog, and the lock is ours after all: run the backlog.
    Run(MutexGuard<'a, T>),
    /// The owner will run it.
    Queued,
    /// The backlog is full; the event comes back.
    Full(E),
}

pub(crate) struct OwnedLock<T, E> {
    core: Mutex<T>,
    backlog: Mutex<VecDeque<E>>,
    /// Length of the backlog, readable without its lock.
    waiting: AtomicUsize,
    bound: usize,
}

pub(crate) type Guard<'a, T> = MutexGuard<'a, T>;

impl<T, E> OwnedLock<T, E> {
    /// A lock whose backlog holds at most `bound` events.
    pub(crate) fn new(core: T, bound: usize) -> Self {
        Self {
            core: Mutex::new(core),
            backlog: Mutex::new(VecDeque::new()),
            waiting: AtomicUsize::new(0),
            bound,
        }
    }

    /// Takes the lock, waiting for it. Process context only.
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.core.lock()
    }

    /// Brings an event, never waiting for the owner.
    pub(crate) fn deliver(&self, event: E) -> Delivery<'_, T, E> {
        if self.waiting.load(Ordering::Relaxed) == 0
            && let Some(guard) = self.core.try_lock()
        {
            return Delivery::Now(guard, event);
        }
        {
            let mut backlog = self.backlog.lock();
            if backlog.len() >= self.bound {
                return Delivery::Full(event);
            }
            backlog.push_back(event);
            self.waiting.store(backlog.len(), Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        match self.core.try_lock() {
            Some(guard) => Delivery::Run(guard),
            None => Delivery::Queued,
        }
    }

    /// The next event of the backlog. For the owner.
    pub(crate) fn next_event(&self) -> Option<E> {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut backlog = self.backlog.lock();
        let event = backlog.pop_front();
        self.waiting.store(backlog.len(), Ordering::Relaxed);
        event
    }

    /// Lets go of the lock. Gives it back if events came in and nobody else has taken it: run them.
    pub(crate) fn release<'a>(&'a self, guard: Guard<'a, T>) -> Option<Guard<'a, T>> {
        drop(guard);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.core.try_lock()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn run<'a>(lock: &'a OwnedLock<Vec<u8>, u8>, mut guard: Guard<'a, Vec<u8>>) {
        loop {
            while let Some(e) = lock.next_event() {
                guard.push(e);
            }
            match lock.release(guard) {
                Some(again) => guard = again,
                None => return,
            }
        }
    }

    fn bring(lock: &OwnedLock<Vec<u8>, u8>, event: u8) {
        match lock.deliver(event) {
            Delivery::Now(mut guard, e) => {
                guard.push(e);
                run(lock, guard);
            }
            Delivery::Run(guard) => run(lock, guard),
            Delivery::Queued => {}
            Delivery::Full(_) => panic!("the backlog has room"),
        }
    }

    #[test]
    fn loom_no_event_is_stranded_and_order_is_kept() {
        loom::model(|| {
            let lock = Arc::new(OwnedLock::new(Vec::new(), 8));
            let owner = {
                let lock = lock.clone();
                thread::spawn(move || run(&lock, lock.lock()))
            };
            let packets = {
                let lock = lock.clone();
                thread::spawn(move || {
                    bring(&lock, 1);
                    bring(&lock, 2);
                })
            };
            owner.join().unwrap();
            packets.join().unwrap();
            assert_eq!(*lock.lock(), [1, 2]);
        });
    }
}
