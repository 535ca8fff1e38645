//! What a socket is ready for, and who waits to hear of it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::task::Waker;

use parking_lot::{Condvar, Mutex};
use time::Duration;

bitflags::bitflags! {
    /// Poll conditions, with the numbers of `poll(2)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Ready: u32 {
        /// Data, an end of stream, or a connection to accept (`POLLIN`).
        const IN = 0x001;
        /// Urgent data (`POLLPRI`).
        const PRI = 0x002;
        /// Room to send (`POLLOUT`).
        const OUT = 0x004;
        /// A notification on the error queue, or a socket error (`POLLERR`). Always reported.
        const ERR = 0x008;
        /// Both directions are closed (`POLLHUP`). Always reported.
        const HUP = 0x010;
        /// The peer sends no more (`POLLRDHUP`).
        const RDHUP = 0x2000;
        /// Sending is shut and the peer has everything: a lingering close is over. Not of `poll(2)`.
        const DRAINED = 0x1_0000;
    }
}

impl Ready {
    /// Reported whether or not they were asked for.
    pub const ALWAYS: Ready = Ready::ERR.union(Ready::HUP);
}

#[derive(Default)]
struct Waiters {
    /// Threads in [`Readiness::wait`].
    sleeping: u32,
    /// What they sleep for, together. A writer in a full window is not woken for each completion.
    asleep_for: Ready,
    wakers: Vec<(Ready, Waker)>,
}

/// Level-triggered readiness with waiters. Sockets have one; so may whatever stands in for a socket.
#[derive(Default)]
pub struct Readiness {
    level: AtomicU32,
    /// Whether `waiters` is worth locking.
    awaited: AtomicBool,
    waiters: Mutex<Waiters>,
    changed: Condvar,
}

impl Readiness {
    /// A number that tells this socket from others alive, for traces.
    pub(crate) fn name(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// The level.
    pub fn get(&self) -> Ready {
        Ready::from_bits_truncate(self.level.load(Ordering::Acquire))
    }

    /// Stores the level as computed by the socket's owner; returns what is newly on, to be
    /// [woken](Self::wake) after the socket's lock is released. `ERR` is kept by the error queue.
    #[must_use]
    pub fn set(&self, level: Ready) -> Ready {
        let old = self.get();
        if level != old {
            // Only the socket's owner writes, so a load and a store do for a swap.
            self.level.store(level.bits(), Ordering::Release);
        }
        level.difference(old)
    }

    /// Wakes whoever waits for any of `what`. Call it with no socket lock held.
    pub fn wake(&self, what: Ready) {
        if what.is_empty() {
            return;
        }
        // Pairs with the fence of a waiter: either it sees the new level, or we see it waiting.
        fence(Ordering::SeqCst);
        if !self.awaited.load(Ordering::Relaxed) {
            return;
        }
        let mut woken = Vec::new();
        {
            let mut w = self.waiters.lock();
            let relevant = what.union(if what.intersects(Ready::ALWAYS) { Ready::all() } else { what });
            w.wakers.retain(|(interest, waker)| {
                let hit = interest.intersects(relevant);
                if hit {
                    woken.push(waker.clone());
                }
                !hit
            });
            if w.wakers.is_empty() && w.sleeping == 0 {
                self.awaited.store(false, Ordering::Relaxed);
            }
            if w.sleeping > 0 && w.asleep_for.intersects(what) {
                self.changed.notify_all();
            }
        }
        for waker in woken {
            waker.wake();
        }
    }

    /// Sleeps until `ready()` says yes or `timeout` is over; the last answer. `ready` must read the level, and
    /// say yes only for something of `interest`.
    pub(crate) fn wait(&self, interest: Ready, timeout: Option<Duration>, ready: impl Fn() -> bool) -> bool {
        let deadline = timeout.map(|t| std::time::Instant::now() + t);
        let mut w = self.waiters.lock();
        w.sleeping += 1;
        w.asleep_for |= interest;
        let mut yes;
        loop {
            self.awaited.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            yes = ready();
            if yes {
                break;
            }
            match deadline {
                None => self.changed.wait(&mut w),
                Some(d) if self.changed.wait_until(&mut w, d).timed_out() => {
                    yes = ready();
                    break;
                }
                Some(_) => {}
            }
        }
        w.sleeping -= 1;
        if w.sleeping == 0 {
            w.asleep_for = Ready::empty();
        }
        if w.sleeping == 0 && w.wakers.is_empty() {
            self.awaited.store(false, Ordering::Relaxed);
        }
        yes
    }

    /// Registers `waker` for the next time any of `interest` (or an error or hang-up) comes on. Check the
    /// level again after registering.
    pub fn register(&self, interest: Ready, waker: &Waker) {
        let interest = interest.union(Ready::ALWAYS);
        let mut w = self.waiters.lock();
        match w.wakers.iter_mut().find(|(_, known)| known.will_wake(waker)) {
            Some((known, _)) => *known = known.union(interest),
            None => w.wakers.push((interest, waker.clone())),
        }
        self.awaited.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Forgets `waker`, if it is still registered.
    pub fn deregister(&self, waker: &Waker) {
        self.waiters.lock().wakers.retain(|(_, known)| !known.will_wake(waker));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_sleeper_is_woken_by_a_level_it_waits_for() {
        let r = Arc::new(Readiness::default());
        let r2 = r.clone();
        let t = std::thread::spawn(move || r2.wait(Ready::IN, None, || r2.get().contains(Ready::IN)));
        std::thread::sleep(Duration::from_millis(20));
        let new = r.set(Ready::IN);
        assert_eq!(new, Ready::IN);
        r.wake(new);
        assert!(t.join().unwrap());
        assert!(r.set(Ready::IN).is_empty(), "already on");
    }

    #[test]
    fn a_wait_ends_with_its_timeout() {
        let r = Readiness::default();
        assert!(!r.wait(Ready::IN, Some(Duration::from_millis(5)), || false));
    }
}
