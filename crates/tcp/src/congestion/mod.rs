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
    /// Congestion was detected; once per window of data. Lowers the slow start threshold; the window follows
    /// as recovery says.
    fn reduce(&mut self, mss: u32);
    /// Goes on with these: in and after recovery, and after a change of algorithm.
    fn set(&mut self, cwnd: u32, ssthresh: u32);
    /// The connection was idle: growth begins anew.
    fn on_idle(&mut self);
}

/// Slow start: grows by what was acknowledged, up to the threshold (RFC 5681, 3.1). What is left of it.
fn slow_start(cwnd: &mut u32, ssthresh: u32, acked: u32) -> u32 {
    if *cwnd >= ssthresh {
        return acked;
    }
    let grown = cwnd.saturating_add(acked).min(ssthresh);
    let rest = acked - (grown - *cwnd);
    *cwnd = grown;
    rest
}

pub(crate) fn new(kind: CongestionKind, initial: u32) -> Box<dyn CongestionControl> {
    match kind {
        CongestionKind::Cubic => Box::new(Cubic::new(initial)),
        CongestionKind::NewReno => Box::new(NewReno::new(initial)),
    }
}
