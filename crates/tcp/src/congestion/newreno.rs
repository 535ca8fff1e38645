//! NewReno: slow start and congestion avoidance (RFC 5681, 3.1). Recovery itself is in `recovery.rs`.

use time::Instant;

use super::{AckEvent, CongestionControl, half_of};

#[derive(Debug)]
pub(crate) struct NewReno {
    cwnd: u32,
    ssthresh: u32,
    /// Bytes acknowledged since the window last grew (appropriate byte counting, RFC 3465).
    counted: u32,
}

impl NewReno {
    pub(crate) fn new(initial: u32) -> Self {
        Self { cwnd: initial, ssthresh: u32::MAX, counted: 0 }
    }
}

impl CongestionControl for NewReno {
    fn cwnd(&self) -> u32 {
        self.cwnd
    }

    fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    fn on_ack(&mut self, ack: AckEvent) {
        if self.cwnd < self.ssthresh {
            self.cwnd = self.cwnd.saturating_add(ack.acked);
            return;
        }
        self.counted = self.counted.saturating_add(ack.acked);
        if self.counted >= self.cwnd {
            self.counted -= self.cwnd;
            self.cwnd = self.cwnd.saturating_add(ack.mss);
        }
    }

    fn on_loss(&mut self, _now: Instant, in_flight: u32, mss: u32) {
        self.ssthresh = half_of(in_flight, mss);
        self.cwnd = self.ssthresh;
        self.counted = 0;
    }

    fn on_timeout(&mut self, in_flight: u32, mss: u32) {
        self.ssthresh = half_of(in_flight, mss);
        self.cwnd = mss;
        self.counted = 0;
    }

    fn on_idle(&mut self, initial: u32) {
        self.cwnd = self.cwnd.min(initial);
    }

    fn restore(&mut self, cwnd: u32, ssthresh: u32) {
        (self.cwnd, self.ssthresh) = (cwnd, ssthresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::Duration;

    #[test]
    fn the_window_doubles_in_slow_start_and_grows_by_a_segment_after_it() {
        let mut cc = NewReno::new(10_000);
        let ack = |acked| AckEvent { now: Instant::ZERO, acked, srtt: Duration::from_millis(1), mss: 1000 };
        cc.on_ack(ack(10_000));
        assert_eq!(cc.cwnd(), 20_000);
        cc.on_loss(Instant::ZERO, 20_000, 1000);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (10_000, 10_000));
        (0..10).for_each(|_| cc.on_ack(ack(1000)));
        assert_eq!(cc.cwnd(), 11_000);
        cc.on_timeout(11_000, 1000);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (1000, 5500));
    }
}
