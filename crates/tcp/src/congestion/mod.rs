//! Congestion control: how much may be in flight.

mod cubic;
mod newreno;

use time::{Duration, Instant};

pub(crate) use cubic::Cubic;
pub(crate) use newreno::NewReno;

/// Which algorithm a connection uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CongestionKind {
    /// CUBIC (RFC 9438), the default of most systems.
    #[default]
    Cubic,
    /// NewReno (RFC 5681, RFC 6582).
    NewReno,
}

impl CongestionKind {
    /// All algorithms.
    pub const ALL: [CongestionKind; 2] = [CongestionKind::Cubic, CongestionKind::NewReno];

    /// Linux's name (`TCP_CONGESTION`).
    pub fn name(self) -> &'static str {
        match self {
            CongestionKind::Cubic => "cubic",
            CongestionKind::NewReno => "reno",
        }
    }

    /// By Linux's name.
    pub fn from_name(name: &str) -> Option<CongestionKind> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }
}

/// What an acknowledgment of new data tells.
#[derive(Clone, Copy, Debug)]
pub struct AckEvent {
    /// The time.
    pub now: Instant,
    /// Bytes newly acknowledged.
    pub acked: u32,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Segment size in bytes.
    pub mss: u32,
}

/// An algorithm. All windows are bytes.
pub trait CongestionControl: Send + core::fmt::Debug {
    /// The congestion window.
    fn cwnd(&self) -> u32;
    /// The slow start threshold.
    fn ssthresh(&self) -> u32;
    /// New data was acknowledged outside of recovery, and the window had been in use.
    fn on_ack(&mut self, ack: AckEvent);
    /// Loss was detected by acknowledgments; once per window of data.
    fn on_loss(&mut self, now: Instant, in_flight: u32, mss: u32);
    /// The retransmission timer ran out.
    fn on_timeout(&mut self, in_flight: u32, mss: u32);
    /// The connection was idle for longer than a retransmission timeout (RFC 5681, 4.1).
    fn on_idle(&mut self, initial: u32);
    /// Goes on with these: after a change of algorithm, and when a loss turned out to be none.
    fn restore(&mut self, cwnd: u32, ssthresh: u32);
}

pub(crate) fn new(kind: CongestionKind, initial: u32) -> Box<dyn CongestionControl> {
    match kind {
        CongestionKind::Cubic => Box::new(Cubic::new(initial)),
        CongestionKind::NewReno => Box::new(NewReno::new(initial)),
    }
}

/// Least window after a loss (RFC 5681, equation 4).
fn half_of(in_flight: u32, mss: u32) -> u32 {
    (in_flight / 2).max(2 * mss)
}
