//! Who runs the device: one context at a time, and nobody waits for it.
//!
//! A context that finds the device taken leaves its work where the owner will look, and goes away. For this
//! the owner looks again after it has let go. No work is stranded:
//!
//! - a leaver writes its work (*W*), passes a sequentially consistent fence, and reads the lock as taken (*L*);
//! - the owner releases the lock (*U*), passes such a fence, and reads whether there is work (*R*).
//!
//! If *L* saw the lock as it was before *U*, then the leaver's fence comes before the owner's in the single
//! order of such fences (else *L* would have had to see *U*), and so *R* sees *W*: the owner tries again.
//! If *L* saw *U* or later, the lock was free, and the leaver became the owner, or yet another context had it,
//! for which the same holds. The test under `cfg(loom)` tries all interleavings.

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{Ordering::SeqCst, fence},
};
#[cfg(not(loom))]
use parking_lot::{Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::atomic::{Ordering::SeqCst, fence};

/// Something one context at a time works on.
#[derive(Debug)]
pub(crate) struct Turn<T>(Mutex<T>);

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    #[cfg(not(loom))]
    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    #[cfg(loom)]
    fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    #[cfg(not(loom))]
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    #[cfg(loom)]
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }

    /// Does `work` if the turn is free, and again for as long as others have left `more`. The caller has
    /// published its own work before.
    pub(crate) fn run(&self, mut work: impl FnMut(&mut T), more: impl Fn() -> bool) {
        fence(SeqCst);
        while let Some(mut value) = self.try_lock() {
            work(&mut value);
            drop(value);
            fence(SeqCst);
            if !more() {
                return;
            }
        }
    }

    /// Does `work` once, if the turn is free: `None` if not. The caller then asks [`Self::run`] for what
    /// others left meanwhile.
    pub(crate) fn try_once<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let result = work(&mut *self.try_lock()?);
        fence(SeqCst);
        Some(result)
    }

    /// Waits for the turn and does `work` once. The caller then asks [`Self::run`] for what others left
    /// meanwhile.
    pub(crate) fn wait_once<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let result = work(&mut *self.lock());
        fence(SeqCst);
        result
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    /// The interface's protocol, its queue reduced to a number.
    struct Model {
        device: Turn<usize>,
        queued: AtomicUsize,
        kick: AtomicBool,
    }

    impl Model {
        fn xmit_and_kick(&self) {
            self.queued.fetch_add(1, Relaxed);
            self.kick.store(true, Relaxed);
            self.device.run(
                |sent| {
                    *sent += self.queued.swap(0, Relaxed);
                    // Also a point at which the checker lets others run between the work and the unlocking.
                    self.kick.swap(false, Relaxed);
                },
                || self.queued.load(Relaxed) > 0 || self.kick.load(Relaxed),
            );
        }
    }

    #[test]
    fn no_work_is_stranded_whoever_finds_the_turn_taken() {
        loom::model(|| {
            let (queued, kick) = (AtomicUsize::new(0), AtomicBool::new(false));
            let model = Arc::new(Model { device: Turn::new(0), queued, kick });
            let other = model.clone();
            let thread = loom::thread::spawn(move || other.xmit_and_kick());
            model.xmit_and_kick();
            thread.join().unwrap();
            assert_eq!(model.device.wait_once(|sent| *sent), 2);
            assert!(!model.kick.load(Relaxed));
        });
    }
}
