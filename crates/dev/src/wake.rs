//! An eventfd that is written only while somebody sleeps on it.
//!
//! # Why no wake-up is lost
//! Consumer: `state = ARMED` (SeqCst), *then* looks at its queues, and sleeps only if they are empty.
//! Producer: puts work into a queue, a SeqCst fence, *then* looks at `state`. This is Dekker's pattern: in
//! the single order of the SeqCst operations either the producer's look comes after the consumer's store,
//! so that it sees ARMED and writes the eventfd, or it comes before, so that the consumer's look at the
//! queues, later still, sees the work. Both missing each other would need a cycle in that order.
//!
//! # Why a stale one does not spin
//! A producer that wins the swap ARMED -> IDLE owes exactly one write. The write may come late, after the
//! consumer found the work by itself. `owed` counts swaps won and not yet read; [`Wake::prepare`] reads the
//! eventfd only when something is owed and subtracts what it read, so a late write is consumed by the next
//! `arm` and the usual case, nothing owed, makes no system call.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::event::{EventfdFlags, eventfd};

const IDLE: u32 = 0;
const ARMED: u32 = 1;

/// One consumer's doorbell; any number of producers.
#[derive(Debug)]
pub struct Wake {
    fd: OwnedFd,
    state: AtomicU32,
    owed: AtomicU64,
    signals: AtomicU64,
}

impl Wake {
    /// Errors: the process has no descriptor left (`EMFILE`, `ENFILE`, `ENOMEM`).
    pub fn new() -> std::io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd, state: AtomicU32::new(IDLE), owed: AtomicU64::new(0), signals: AtomicU64::new(0) })
    }

    /// The descriptor to sleep on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Producer: after work was queued. Writes the eventfd if the consumer sleeps or is about to.
    pub fn signal(&self) {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) != ARMED {
            return;
        }
        if self.state.swap(IDLE, Ordering::SeqCst) == ARMED {
            self.owed.fetch_add(1, Ordering::SeqCst);
            self.signals.fetch_add(1, Ordering::Relaxed);
            // The counter cannot overflow (each write is owed and read); nothing else can fail.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Consumer: before the last look at the queues. Consumes stale wake-ups.
    pub fn prepare(&self) {
        if self.owed.load(Ordering::SeqCst) > 0 {
            let mut count = [0u8; 8];
            if rustix::io::read(&self.fd, &mut count) == Ok(8) {
                self.owed.fetch_sub(u64::from_ne_bytes(count), Ordering::SeqCst);
            }
        }
        self.state.store(ARMED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Consumer: the last look found work, so there will be no sleep.
    pub fn cancel(&self) {
        self.state.store(IDLE, Ordering::SeqCst);
    }

    /// Whether the consumer sleeps or is about to.
    pub fn is_armed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.state.load(Ordering::SeqCst) == ARMED
    }

    /// How many times the descriptor was written: the system calls this device cost its producers.
    pub fn signals(&self) -> u64 {
        self.signals.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    fn readable(w: &Wake) -> bool {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(w, PollFlags::IN)], Some(&zero)) == Ok(1)
    }

    impl AsFd for Wake {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.fd()
        }
    }

    #[test]
    fn nobody_is_woken_who_does_not_sleep() {
        let w = Wake::new().unwrap();
        w.signal();
        assert!(!readable(&w));
        assert_eq!(w.signals(), 0);
    }

    #[test]
    fn a_sleeper_is_woken_once_and_a_stale_wake_up_is_consumed() {
        let w = Wake::new().unwrap();
        w.prepare();
        w.signal();
        w.signal();
        assert!(readable(&w));
        assert_eq!(w.signals(), 1);
        w.prepare();
        assert!(!readable(&w), "prepare consumed the wake-up");
    }

    #[test]
    fn no_wake_up_is_lost_between_threads() {
        const ROUNDS: usize = 20_000;
        let w = Arc::new(Wake::new().unwrap());
        let work = Arc::new(AtomicUsize::new(0));
        let (w2, work2) = (w.clone(), work.clone());
        let producer = std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                work2.fetch_add(1, Ordering::Release);
                w2.signal();
            }
        });
        let mut seen = 0;
        while seen < ROUNDS {
            seen += work.swap(0, Ordering::Acquire);
            w.prepare();
            if work.load(Ordering::SeqCst) > 0 || seen == ROUNDS {
                w.cancel();
                continue;
            }
            let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
            let n = poll(&mut [PollFd::new(&*w, PollFlags::IN)], Some(&limit)).unwrap();
            assert_eq!(n, 1, "slept through a wake-up after {seen}");
        }
        producer.join().unwrap();
    }
}
