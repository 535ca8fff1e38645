//! One timer per socket, set lazily: a deadline that moves later leaves the timer where it is, and the
//! socket looks again when it fires. A connection without a deadline soon has no timer at all.

use std::sync::{Arc, Weak};

use time::{Instant, TimerId, TimerWheel};

use crate::shared::Shared;
use crate::tcp_socket::{Core, TcpSocket};

pub(crate) struct Timers {
    wheel: TimerWheel<Weak<TcpSocket>>,
    fired: Vec<Weak<TcpSocket>>,
}

impl Timers {
    pub(crate) fn new(now: Instant) -> Self {
        Self { wheel: TimerWheel::new(now), fired: Vec::new() }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.wheel.next_deadline()
    }

    /// Takes the sockets whose timers are due; give the vector back with [`reuse`](Self::reuse).
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Weak<TcpSocket>> {
        self.wheel.expire(now, &mut self.fired);
        std::mem::take(&mut self.fired)
    }

    pub(crate) fn reuse(&mut self, mut fired: Vec<Weak<TcpSocket>>) {
        fired.clear();
        self.fired = fired;
    }
}

/// A timer that is set.
#[derive(Clone, Copy)]
pub(crate) struct Armed {
    id: TimerId,
    at: Instant,
}

/// Makes sure the socket hears of its next deadline in time. Run before its lock is released.
pub(crate) fn arm(shared: &Shared, socket: &Arc<TcpSocket>, core: &mut Core) {
    let Some(at) = core.next_timeout() else { return };
    if core.timer.is_some_and(|armed| armed.at <= at) {
        return;
    }
    let mut timers = shared.timers.lock();
    if let Some(old) = core.timer.take() {
        timers.wheel.cancel(old.id);
    }
    let id = timers.wheel.insert(at, Arc::downgrade(socket));
    core.timer = Some(Armed { id, at });
    drop(timers);
    shared.wakeup.no_later_than(at);
}

/// Takes a socket's timer back for good.
pub(crate) fn disarm(shared: &Shared, core: &mut Core) {
    if let Some(old) = core.timer.take() {
        shared.timers.lock().wheel.cancel(old.id);
    }
}
