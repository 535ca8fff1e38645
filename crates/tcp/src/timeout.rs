//! What happens when a timer runs out.

use time::Instant;

use crate::outcome::{Outcome, Released, TcpError};
use crate::state::State;
use crate::tcb::Tcb;
use crate::timers::Timer;

impl Tcb {
    /// The next time [`on_timeout`](Self::on_timeout) has something to do. `None` while idle.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Runs the timers that are due.
    pub fn on_timeout(&mut self, now: Instant, released: &mut Released) -> Outcome {
        self.look_again();
        self.more = false;
        let mut outcome = Outcome::empty();
        while let Some(timer) = self.timers.take_due(now) {
            outcome |= match timer {
                Timer::Retransmit => self.retransmit_timeout(now, released),
                Timer::LossProbe => {
                    self.probe_tail(now);
                    Outcome::empty()
                }
                Timer::Reorder => {
                    self.reorder_timeout(now);
                    Outcome::empty()
                }
                Timer::DelayedAck => {
                    self.owed.ack = true;
                    Outcome::empty()
                }
                Timer::Persist => self.persist_timeout(now, released),
                Timer::Keepalive => self.keepalive_timeout(now, released),
                Timer::Linger => {
                    self.end(None, released);
                    Outcome::CLOSED
                }
            };
        }
        outcome
    }

    fn retransmit_timeout(&mut self, now: Instant, released: &mut Released) -> Outcome {
        self.rto.back_off();
        if let Some(h) = &mut self.handshake {
            let timeouts = self.recovery.timeouts.saturating_add(1);
            self.recovery.timeouts = timeouts;
            let waits_for_data = h.acked && timeouts < self.cfg.defer_accept;
            h.send = !waits_for_data;
            let retries = if h.passive { self.cfg.synack_retries } else { self.cfg.syn_retries };
            if timeouts > retries && !waits_for_data {
                return self.give_up(released);
            }
            if waits_for_data {
                self.arm_retransmit(now);
            }
            return Outcome::empty();
        }
        if self.rtx.is_empty() {
            return Outcome::empty();
        }
        self.recovery.timeouts = self.recovery.timeouts.saturating_add(1);
        if self.recovery.timeouts > self.cfg.retries || self.too_long_without_progress(now) {
            return self.give_up(released);
        }
        self.counts.total_rto = self.counts.total_rto.wrapping_add(1);
        self.enter_loss(now);
        self.arm_retransmit(now);
        Outcome::empty()
    }

    fn persist_timeout(&mut self, now: Instant, released: &mut Released) -> Outcome {
        if self.unsent() == 0 {
            return Outcome::empty();
        }
        if self.too_long_without_progress(now) || (self.orphan && self.recovery.timeouts > self.cfg.retries) {
            return self.give_up(released);
        }
        self.rto.back_off();
        if self.snd.wnd == 0 {
            //= rfc9293#section-3.8.6.1
            //# The transmitting host SHOULD send the first zero-window probe when a zero window has existed
            //# for the retransmission timeout period, and SHOULD increase exponentially the interval between
            //# successive probes
            self.owed.probe = true;
            self.probes_out = self.probes_out.saturating_add(1);
            self.recovery.timeouts = self.recovery.timeouts.saturating_add(u8::from(self.orphan));
        } else {
            self.owed.force = true;
        }
        self.timers.set(Timer::Persist, now + self.rto.timeout());
        Outcome::empty()
    }

    fn keepalive_timeout(&mut self, now: Instant, released: &mut Released) -> Outcome {
        let k = self.cfg.keepalive;
        let due = self.last_heard + k.idle;
        // Data in flight has its own timer.
        if self.keepalive_probes == 0 && (due > now || !self.rtx.is_empty()) {
            self.timers.set(Timer::Keepalive, due.max(now + k.interval));
            return Outcome::empty();
        }
        // The user timeout, if there is one, says how long in place of how often (RFC 5482, 5).
        let given_up = match self.cfg.user_timeout {
            Some(limit) => self.keepalive_probes > 0 && now - self.last_heard >= limit,
            None => self.keepalive_probes >= k.probes,
        };
        if given_up {
            return self.give_up(released);
        }
        self.keepalive_probes += 1;
        self.probes_out = self.probes_out.saturating_add(1);
        self.owed.probe = true;
        self.timers.set(Timer::Keepalive, now + k.interval);
        Outcome::empty()
    }

    fn too_long_without_progress(&self, now: Instant) -> bool {
        self.cfg.user_timeout.is_some_and(|t| now - self.progress_at >= t)
    }

    fn give_up(&mut self, released: &mut Released) -> Outcome {
        let error = self.soft.unwrap_or(TcpError::TimedOut);
        let tell = self.state.is_synchronized();
        let seq = self.snd.nxt;
        self.end(Some(error), released);
        if tell && self.state == State::Closed {
            self.owed.reset = Some(seq);
        }
        Outcome::ERROR | Outcome::CLOSED
    }
}
