//! CUBIC (RFC 9438). Windows are kept in segments as floating point, as the RFC's formulas are.

use time::Instant;

use super::{AckEvent, CongestionControl, slow_start};

/// RFC 9438, 4.1.2 and 4.6.
const C: f64 = 0.4;
const BETA: f64 = 0.7;

#[derive(Debug)]
pub(crate) struct Cubic {
    cwnd: u32,
    ssthresh: u32,
    /// Window before the last reduction, in segments.
    w_max: f64,
    /// Seconds from the epoch's start until the curve is back at `w_max`.
    k: f64,
    /// When this congestion avoidance began.
    epoch: Option<Instant>,
    /// What Reno would have by now, in segments (RFC 9438, 4.3).
    w_est: f64,
    /// Fractions of a segment not yet added to `cwnd`.
    credit: f64,
}

impl Cubic {
    pub(crate) fn new(initial: u32) -> Self {
        Self { cwnd: initial, ssthresh: u32::MAX, w_max: 0.0, k: 0.0, epoch: None, w_est: 0.0, credit: 0.0 }
    }

    fn begin_epoch(&mut self, now: Instant, segments: f64) {
        self.epoch = Some(now);
        self.w_est = segments;
        if segments < self.w_max {
            self.k = ((self.w_max - segments) / C).cbrt();
        } else {
            self.k = 0.0;
            self.w_max = segments;
        }
    }
}

impl CongestionControl for Cubic {
    fn cwnd(&self) -> u32 {
        self.cwnd
    }

    fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    fn on_ack(&mut self, ack: AckEvent) {
        let rest = slow_start(&mut self.cwnd, self.ssthresh, ack.acked);
        if rest == 0 {
            return;
        }
        let mss = f64::from(ack.mss);
        let segments = f64::from(self.cwnd) / mss;
        let acked = f64::from(rest) / mss;
        if self.epoch.is_none() {
            self.begin_epoch(ack.now, segments);
        }
        let since = self.epoch.map_or(0.0, |e| (ack.now - e).as_secs_f64());
        let t = since + ack.srtt.as_secs_f64();
        let w_cubic = C * (t - self.k).powi(3) + self.w_max;
        // RFC 9438, 4.3, equation 4.
        let alpha = if self.w_est >= self.w_max { 1.0 } else { 3.0 * (1.0 - BETA) / (1.0 + BETA) };
        self.w_est += alpha * acked / segments;
        // RFC 9438, 4.2: at most half again as much within one round trip.
        let target = w_cubic.clamp(segments, 1.5 * segments).max(self.w_est);
        self.credit += (target - segments) / segments * acked;
        if self.credit >= 1.0 {
            let whole = self.credit.floor();
            self.credit -= whole;
            self.cwnd = self.cwnd.saturating_add((whole * mss) as u32);
        }
    }

    fn on_idle(&mut self) {
        self.epoch = None;
    }

    fn reduce(&mut self, mss: u32) {
        let segments = f64::from(self.cwnd) / f64::from(mss);
        // Fast convergence (RFC 9438, 4.7): a flow that had less than last time makes room.
        self.w_max = if segments < self.w_max { segments * (1.0 + BETA) / 2.0 } else { segments };
        self.ssthresh = (self.cwnd / mss * 717 / 1024).max(2) * mss;
        self.epoch = None;
        self.credit = 0.0;
    }

    fn set(&mut self, cwnd: u32, ssthresh: u32) {
        (self.cwnd, self.ssthresh) = (cwnd, ssthresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::Duration;

    fn ack(now: Instant, acked: u32) -> AckEvent {
        AckEvent { now, acked, srtt: Duration::from_millis(100), mss: 1000 }
    }

    #[test]
    fn the_window_comes_back_to_where_it_was_after_k_seconds() {
        let mut cc = Cubic::new(1_000_000);
        cc.reduce(1000);
        assert_eq!(cc.ssthresh(), 700_000);
        cc.set(700_000, 700_000);
        // K = cbrt(300 / 0.4) = 9.09 s.
        let mut now = Instant::ZERO;
        while now < Instant::from_millis(9090) {
            let w = cc.cwnd();
            cc.on_ack(ack(now, w));
            now += Duration::from_millis(100);
        }
        assert!((980_000..1_030_000).contains(&cc.cwnd()), "{}", cc.cwnd());
    }

    #[test]
    fn a_second_loss_below_the_first_gives_way() {
        let mut cc = Cubic::new(1_000_000);
        cc.reduce(1000);
        cc.set(700_000, 700_000);
        cc.reduce(1000);
        assert!((cc.w_max - 700.0 * 0.85).abs() < 1.0);
        assert_eq!(cc.ssthresh(), 490_000);
    }
}
