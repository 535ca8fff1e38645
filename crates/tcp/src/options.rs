//! Socket options of a running connection, and the counts that `ioctl` gives.

use std::sync::Arc;

use time::Instant;

use crate::config::Config;
use crate::congestion;
use crate::state::State;
use crate::tcb::{QUICK_ACKS, Tcb};
use crate::timers::Timer;

impl Tcb {
    /// The parameters.
    pub fn config(&self) -> &Arc<Config> {
        &self.cfg
    }

    /// Changes parameters of a running connection. Those of the handshake have no effect any more.
    pub fn configure(&mut self, now: Instant, change: impl FnOnce(&mut Config)) {
        let mut cfg = Config::clone(&self.cfg);
        change(&mut cfg);
        self.set_config(now, Arc::new(cfg));
    }

    /// Replaces the parameters of a running connection.
    pub fn set_config(&mut self, now: Instant, cfg: Arc<Config>) {
        let old = std::mem::replace(&mut self.cfg, cfg);
        let new = self.cfg.clone();
        self.look_again();
        let urges = new.nodelay && !old.nodelay || old.cork && !new.cork && new.nodelay;
        if urges && self.unsent() > 0 {
            // Even under a cork: what waits is sent now (Linux: TCP_NAGLE_PUSH).
            self.owed.force = true;
        }
        if new.keepalive != old.keepalive {
            self.keepalive_probes = 0;
            self.arm_keepalive(now);
        }
        if new.congestion != old.congestion {
            let mut cc = congestion::new(new.congestion, self.cc.cwnd());
            cc.set(self.cc.cwnd(), self.cc.ssthresh());
            self.cc = cc;
        }
        if new.rcvbuf != old.rcvbuf {
            self.rcvbuf = new.rcvbuf;
            self.tuning.best = new.rcvbuf as u32 / 2;
        }
        if new.rcvlowat > old.rcvlowat && self.rcvbuf < new.rcvbuf_max {
            // What the reader waits for must fit, and the rest of the flight beside it.
            self.rcvbuf = self.rcvbuf.max(2 * new.rcvlowat).min(new.rcvbuf_max);
            self.update_window();
        }
        if new.user_mss != old.user_mss && self.state == State::SynSent {
            self.update_mss();
        }
    }

    /// `TCP_QUICKACK`: acknowledge at once for a while, or hold acknowledgments back for data to carry them.
    pub fn set_quickack(&mut self, on: bool) {
        self.pingpong = !on;
        if !on {
            self.quick_acks = 0;
        } else if self.timers.is_set(Timer::DelayedAck) {
            self.timers.clear(Timer::DelayedAck);
            self.owed.ack = true;
        } else {
            self.quick_acks = QUICK_ACKS;
        }
    }

    /// Whether acknowledgments leave at once.
    pub fn quickack(&self) -> bool {
        !self.pingpong
    }

    /// Receive buffer as tuned, in bytes.
    pub fn rcvbuf(&self) -> usize {
        self.rcvbuf
    }

    /// Bytes a read would give before it comes to urgent data (`SIOCINQ`).
    pub fn inq(&self) -> usize {
        let ahead = self.urg.filter(|_| !self.cfg.oob_inline).map(|u| u.seq.since(self.copied_seq()));
        ahead.filter(|n| *n > 0).map_or(self.readable(), |n| self.readable().min(n as usize))
    }

    /// What `TCP_INQ` tells beside a read: bytes left, or 1 if only the end of the stream is.
    pub fn inq_hint(&self) -> usize {
        self.readable().max(usize::from(self.peer_closed()))
    }

    /// Bytes queued that were not sent (`SIOCOUTQNSD`), a FIN counting as one.
    pub fn outq_not_sent(&self) -> usize {
        let fin = self.fin_queued && !self.fin_sent() && self.state != State::Closed;
        self.unsent() + usize::from(fin)
    }

    /// Closed by the program, and the peer has everything: a lingering close is over.
    pub fn is_drained(&self) -> bool {
        self.fin_queued && self.queued() == 0
    }
}
