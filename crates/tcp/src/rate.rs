//! Counts of a connection, and how fast it delivers (the estimator that Linux's `tcp_info` reports).

use time::{Duration, Instant};

use crate::rtx_queue::Sent;

/// What was known when a packet was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendRate {
    /// Packets delivered so far.
    pub(crate) delivered: u32,
    /// When the last of them was.
    pub(crate) delivered_at: Instant,
    /// When the first packet of the flight was sent.
    pub(crate) first_sent: Instant,
}

/// What a connection spends its time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Busy {
    #[default]
    Idle,
    /// Data is out.
    Sending,
    /// More would be, had the peer a larger window.
    RwndLimited,
    /// More would be, had the program not found the send buffer full.
    SndbufLimited,
}

/// Totals since the beginning. Those that Linux keeps in 32 bits wrap here too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) segs_out: u32,
    pub(crate) segs_in: u32,
    pub(crate) data_segs_out: u32,
    pub(crate) data_segs_in: u32,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_retrans: u64,
    pub(crate) total_retrans: u32,
    pub(crate) dsack_dups: u32,
    pub(crate) reord_seen: u32,
    pub(crate) rcv_ooopack: u32,
    pub(crate) total_rto: u16,
    pub(crate) total_rto_recoveries: u16,
    /// Microseconds, by [`Busy`] but for idling.
    busy: [u64; 3],
    doing: Busy,
    since: Instant,
}

impl Counts {
    /// From now on time is spent on `what`.
    pub(crate) fn spend(&mut self, now: Instant, what: Busy) {
        if what != self.doing {
            self.busy = self.so_far(now);
            (self.doing, self.since) = (what, now);
        }
    }

    fn so_far(&self, now: Instant) -> [u64; 3] {
        let mut busy = self.busy;
        if let Some(spent) = (self.doing as usize).checked_sub(1).and_then(|n| busy.get_mut(n)) {
            *spent += (now - self.since).as_micros() as u64;
        }
        busy
    }

    /// Time spent sending in all, limited by the peer's window, and by the send buffer.
    pub(crate) fn spent(&self, now: Instant) -> [Duration; 3] {
        let [sending, rwnd, sndbuf] = self.so_far(now);
        [sending + rwnd + sndbuf, rwnd, sndbuf].map(Duration::from_micros)
    }
}

/// The delivery rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    /// What the next packet is sent with.
    pub(crate) now: SendRate,
    /// Until so many packets are delivered, what is measured is the program's rate.
    app_limited: u32,
    /// The last good measurement: packets, and the microseconds they took.
    measured: (u32, u32),
    measured_app_limited: bool,
}

impl Rate {
    /// A packet leaves; `idle` if nothing else is out.
    pub(crate) fn on_send(&mut self, now: Instant, idle: bool) -> SendRate {
        if idle {
            (self.now.first_sent, self.now.delivered_at) = (now, now);
        }
        self.now
    }

    /// The program has nothing more to send, with so many packets out.
    pub(crate) fn on_app_limited(&mut self, out: u32) {
        self.app_limited = self.now.delivered.wrapping_add(out).max(1);
    }

    /// `packets` were delivered, `newest` the one of them sent last.
    pub(crate) fn on_delivery(
        &mut self,
        now: Instant,
        packets: u32,
        newest: Option<Sent>,
        min_rtt: Duration,
    ) {
        if packets == 0 {
            return;
        }
        self.now.delivered = self.now.delivered.wrapping_add(packets);
        self.now.delivered_at = now;
        if self.app_limited != 0 && self.now.delivered.wrapping_sub(self.app_limited) as i32 > 0 {
            self.app_limited = 0;
        }
        let Some(newest) = newest else { return };
        self.now.first_sent = newest.sent_at;
        let sending = newest.sent_at - newest.rate.first_sent;
        let took = sending.max(now - newest.rate.delivered_at);
        let delivered = self.now.delivered.wrapping_sub(newest.rate.delivered);
        if took < min_rtt || took == Duration::ZERO {
            return;
        }
        let limited = self.app_limited != 0;
        let (old, old_took) = self.measured;
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        let faster = u64::from(delivered) * u64::from(old_took) >= u64::from(old) * u64::from(took);
        if !limited || faster {
            (self.measured, self.measured_app_limited) = ((delivered, took), limited);
        }
    }

    /// Bytes per second, and whether it was the program that set the pace.
    pub(crate) fn bytes_per_second(&self, mss: u32) -> (u64, bool) {
        let (packets, took) = self.measured;
        let per_second = u128::from(packets) * u128::from(mss) * 1_000_000 / u128::from(took.max(1));
        (if packets == 0 { 0 } else { per_second as u64 }, self.measured_app_limited)
    }
}
