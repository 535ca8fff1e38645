//! The timers of a connection: an enum, and a table sized from it.

use time::Instant;

/// What may be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Timer {
    /// Retransmission (RFC 6298), SYN included.
    Retransmit,
    /// Acknowledgment held back.
    DelayedAck,
    /// Zero-window probe.
    Persist,
    /// Keepalive probe.
    Keepalive,
    /// End of TIME-WAIT, or of an abandoned FIN-WAIT-2.
    Linger,
}

const ALL: [Timer; 5] =
    [Timer::Retransmit, Timer::DelayedAck, Timer::Persist, Timer::Keepalive, Timer::Linger];

/// Deadlines by timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers([Option<Instant>; ALL.len()]);

impl Timers {
    pub(crate) fn new() -> Self {
        Self([None; ALL.len()])
    }

    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = Some(at);
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(crate) fn clear_all(&mut self) {
        *self = Self::new();
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize].is_some()
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// Takes one timer that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        let due = ALL.into_iter().find(|t| self.0[*t as usize].is_some_and(|at| at <= now))?;
        self.clear(due);
        Some(due)
    }
}
