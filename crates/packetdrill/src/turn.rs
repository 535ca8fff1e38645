//! Whose turn it is: one thread at a time is inside the plug-in, however many are in its calls.
//!
//! A call takes the turn when it comes in and gives it back when it returns. A call that has to wait gives it
//! up and sleeps. Whoever has the turn and made something happen (a packet, a timer) *offers* it: every sleeper
//! gets it once, may find that its wait is over and finish its call, and only then the offerer goes on. So a
//! blocked call ends at the time of what ended it, on a clock that stands still meanwhile, whatever the kernel's
//! scheduler does.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use stack::time::Instant;

#[derive(Default)]
struct State {
    /// Somebody has the turn.
    taken: bool,
    /// Somebody offers it, and waits for the answers.
    offering: bool,
    /// Offers made.
    round: u64,
    /// Sleepers that took an offer.
    taken_up: u64,
    /// Calls that came in.
    calls: u64,
    sleepers: Vec<Sleeper>,
    next_id: u64,
}

struct Sleeper {
    id: u64,
    /// The last offer it has answered.
    seen: u64,
    until: Option<Instant>,
}

impl State {
    fn add(&mut self, until: Option<Instant>) -> u64 {
        self.next_id += 1;
        let sleeper = Sleeper { id: self.next_id, seen: self.round, until };
        self.sleepers.push(sleeper);
        self.next_id
    }

    fn remove(&mut self, id: u64) {
        self.sleepers.retain(|s| s.id != id);
    }

    fn has_answered(&self, id: u64) -> bool {
        self.sleepers.iter().all(|s| s.id != id || s.seen == self.round)
    }
}

/// The turn.
#[derive(Default)]
pub(crate) struct Turn {
    state: Mutex<State>,
    changed: Condvar,
}

/// Why a sleeper woke, with the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woke {
    /// An offer: its wait is over.
    Offered,
    /// Nobody came in for so long: move the clock yourself.
    Idle,
}

impl Turn {
    pub(crate) const fn new() -> Self {
        let state = State {
            taken: false,
            offering: false,
            round: 0,
            taken_up: 0,
            calls: 0,
            sleepers: Vec::new(),
            next_id: 0,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes the turn for a call that comes in.
    pub(crate) fn enter(&self) {
        let mut state = self.state.lock();
        state.calls += 1;
        while state.taken || state.offering {
            self.changed.wait(&mut state);
        }
        state.taken = true;
    }

    /// Gives it back.
    pub(crate) fn leave(&self) {
        self.state.lock().taken = false;
        self.changed.notify_all();
    }

    /// Calls that came in so far.
    pub(crate) fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Lets every sleeper look whether its wait is over, and those for whom it is finish their calls or sleep
    /// again; whether there were such. The caller has the turn, and has it again afterwards.
    pub(crate) fn offer(&self) -> bool {
        let mut state = self.state.lock();
        // Within another offer: the outer one goes around again.
        if state.sleepers.is_empty() || state.offering {
            return false;
        }
        let before = state.taken_up;
        state.round += 1;
        state.offering = true;
        state.taken = false;
        self.changed.notify_all();
        while state.taken || state.sleepers.iter().any(|s| s.seen < state.round) {
            self.changed.wait(&mut state);
        }
        state.offering = false;
        state.taken = true;
        state.taken_up > before
    }

    /// Gives the turn up and sleeps until an offer finds that `over` says yes, or until no call has come in for
    /// `idle`. Returns with the turn. `over` runs under this lock.
    pub(crate) fn sleep(&self, until: Option<Instant>, idle: Duration, over: impl Fn() -> bool) -> Woke {
        let mut state = self.state.lock();
        let id = state.add(until);
        let mut calls = state.calls;
        state.taken = false;
        self.changed.notify_all();
        loop {
            let timed_out = self.changed.wait_for(&mut state, idle).timed_out();
            if state.taken {
                continue;
            }
            if state.offering && !state.has_answered(id) {
                if over() {
                    state.remove(id);
                    state.taken = true;
                    state.taken_up += 1;
                    return Woke::Offered;
                }
                let round = state.round;
                for me in state.sleepers.iter_mut().filter(|s| s.id == id) {
                    me.seen = round;
                }
                self.changed.notify_all();
            } else if timed_out && !state.offering {
                if state.calls == calls {
                    state.remove(id);
                    state.taken = true;
                    return Woke::Idle;
                }
                calls = state.calls;
            }
        }
    }

    /// When the first sleeper's wait ends by itself.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.state.lock().sleepers.iter().filter_map(|s| s.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    const LONG: Duration = Duration::from_secs(60);

    /// Waits until somebody sleeps.
    fn await_sleeper(turn: &Turn) {
        while turn.state.lock().sleepers.is_empty() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn an_offer_returns_after_the_sleeper_has_finished() {
        let (turn, over, steps) = (Turn::new(), AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|s| {
            s.spawn(|| {
                turn.enter();
                assert_eq!(turn.sleep(None, LONG, || over.load(Ordering::Relaxed)), Woke::Offered);
                std::thread::sleep(Duration::from_millis(20));
                steps.store(1, Ordering::Relaxed);
                turn.leave();
            });
            await_sleeper(&turn);
            turn.enter();
            assert!(!turn.offer(), "its wait is not over");
            over.store(true, Ordering::Relaxed);
            assert!(turn.offer());
            assert_eq!(steps.load(Ordering::Relaxed), 1);
            assert!(!turn.offer(), "nobody sleeps any more");
            turn.leave();
        });
    }

    #[test]
    fn a_sleeper_whom_nobody_visits_wakes_by_itself_and_a_visited_one_does_not() {
        let turn = Turn::new();
        let idle = Duration::from_millis(40);
        std::thread::scope(|s| {
            let sleeper = s.spawn(|| {
                turn.enter();
                let began = std::time::Instant::now();
                let woke = turn.sleep(None, idle, || false);
                turn.leave();
                (woke, began.elapsed())
            });
            await_sleeper(&turn);
            for _ in 0..10 {
                turn.enter();
                turn.leave();
                std::thread::sleep(Duration::from_millis(10));
            }
            let (woke, slept) = sleeper.join().unwrap();
            assert_eq!(woke, Woke::Idle);
            assert!(slept >= Duration::from_millis(100), "{slept:?}");
        });
    }
}
