//! The timers of a connection: an enum, and a table sized from it.

use time::Instant;

/// What may be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Timer {
    /// Retransmission (RFC 6298), SYN included.
    Retransmit,
    /// Probe of the tail (RFC 8985, 7).
    LossProbe,
    /// What may be late is lost (RFC 8985, 6.3).
    Reorder,
    /// Acknowledgment held back.
    DelayedAck,
    /// Zero-window probe.
    Persist,
    /// Keepalive probe.
    Keepalive,
    /// End of TIME-WAIT, or of an abandoned FIN-WAIT-2.
    Linger,
}

const ALL: [Timer; 7] = [
    Timer::Retransmit,
    Timer::LossProbe,
    Timer::Reorder,
    Timer::DelayedAck,
    Timer::Persist,
    Timer::Keepalive,
    Timer::Linger,
];

/// Deadlines by timer; [`Instant::MAX`] for those that are not set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timers([Instant; ALL.len()]);

impl Timers {
    pub(crate) fn new() -> Self {
        Self([Instant::MAX; ALL.len()])
    }

    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = at;
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        self.0[timer as usize] = Instant::MAX;
    }

    pub(crate) fn clear_all(&mut self) {
        *self = Self::new();
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.0[timer as usize] < Instant::MAX
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.iter().min().copied().filter(|at| *at < Instant::MAX)
    }

    /// Takes one timer that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        let due = ALL.into_iter().find(|t| self.0[*t as usize] <= now && self.is_set(*t))?;
        self.clear(due);
        Some(due)
    }
}
