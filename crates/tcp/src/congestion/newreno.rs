//! NewReno: slow start and congestion avoidance (RFC 5681, 3.1). Recovery itself is in `recovery.rs`.

use super::{AckEvent, CongestionControl, slow_start};

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
        let rest = slow_start(&mut self.cwnd, self.ssthresh, ack.acked);
        self.counted = self.counted.saturating_add(rest);
        if rest > 0 && self.counted >= self.cwnd {
            self.counted -= self.cwnd;
            self.cwnd = self.cwnd.saturating_add(ack.mss);
        }
    }

    fn on_idle(&mut self) {
        self.counted = 0;
    }

    fn reduce(&mut self, mss: u32) {
        self.ssthresh = (self.cwnd / mss / 2).max(2) * mss;
        self.counted = 0;
    }

    fn set(&mut self, cwnd: u32, ssthresh: u32) {
        (self.cwnd, self.ssthresh) = (cwnd, ssthresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::{Duration, Instant};

    #[test]
    fn the_window_doubles_in_slow_start_and_grows_by_a_segment_after_it() {
        let mut cc = NewReno::new(10_000);
        let ack = |acked| AckEvent { now: Instant::ZERO, acked, srtt: Duration::from_millis(1), mss: 1000 };
        cc.on_ack(ack(10_000));
        assert_eq!(cc.cwnd(), 20_000);
        cc.reduce(1000);
        assert_eq!((cc.cwnd(), cc.ssthresh()), (20_000, 10_000));
        cc.set(9000, 10_000);
        cc.on_ack(ack(2000));
        assert_eq!(cc.cwnd(), 10_000, "not beyond the threshold");
        (0..9).for_each(|_| cc.on_ack(ack(1000)));
        assert_eq!(cc.cwnd(), 11_000);
    }
}
