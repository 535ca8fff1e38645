//! The retransmission timeout (RFC 6298).

use std::num::NonZeroU64;

use time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rto {
    /// Nanoseconds; no `Duration`s, since a connection should be small.
    srtt: Option<NonZeroU64>,
    rttvar: u64,
    backoff: u32,
    /// Microseconds.
    min: u32,
    max: u32,
}

impl Rto {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { srtt: None, rttvar: 0, backoff: 0, min: micros(min), max: micros(max) }
    }

    //= rfc6298#section-2
    //# Until a round-trip time (RTT) measurement has been made for a segment sent between the sender and
    //# receiver, the sender SHOULD set RTO <- 1 second
    pub(crate) fn timeout(&self) -> Duration {
        let base = match self.srtt() {
            None => Duration::from_secs(1),
            // As Linux: the least is that of the variance, since that is what delayed acknowledgments are.
            Some(srtt) => srtt + (self.rttvar() * 4).max(Duration::from_micros(self.min.into())),
        };
        base.saturating_mul(1 << self.backoff.min(16)).min(Duration::from_micros(self.max.into()))
    }

    /// A measurement of a segment that was sent once.
    pub(crate) fn sample(&mut self, rtt: Duration) {
        let rtt = u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX).clamp(1, u64::MAX / 16);
        match self.srtt {
            None => (self.srtt, self.rttvar) = (NonZeroU64::new(rtt), rtt / 2),
            Some(srtt) => {
                let srtt = srtt.get();
                self.rttvar = (self.rttvar * 3 + srtt.abs_diff(rtt)) / 4;
                self.srtt = NonZeroU64::new(((srtt * 7 + rtt) / 8).max(1));
            }
        }
        self.backoff = 0;
    }

    /// The timer ran out: twice as long from now on.
    pub(crate) fn back_off(&mut self) {
        self.backoff += 1;
    }

    /// New data was acknowledged.
    pub(crate) fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    pub(crate) fn backoff(&self) -> u8 {
        self.backoff.min(255) as u8
    }

    pub(crate) fn is_backed_off(&self) -> bool {
        self.backoff > 0
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt.map(|ns| Duration::from_nanos(ns.get()))
    }

    pub(crate) fn rttvar(&self) -> Duration {
        Duration::from_nanos(self.rttvar)
    }
}

fn micros(d: Duration) -> u32 {
    u32::try_from(d.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_follows_the_rfc() {
        let mut r = Rto::new(Duration::from_millis(200), Duration::from_secs(120));
        assert_eq!(r.timeout(), Duration::from_secs(1));
        r.sample(Duration::from_millis(400));
        assert_eq!(r.timeout(), Duration::from_millis(1200));
        r.back_off();
        assert_eq!(r.timeout(), Duration::from_millis(2400));
        for _ in 0..100 {
            r.sample(Duration::from_millis(1));
        }
        assert_eq!(r.timeout().as_millis(), 201);
        (0..30).for_each(|_| r.back_off());
        assert_eq!(r.timeout(), Duration::from_secs(120));
    }
}
