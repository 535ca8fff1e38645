//! Parameters of a connection, each with its reason.

use time::Duration;

use crate::congestion::CongestionKind;

/// Keepalive probing (RFC 9293, 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe. Linux: 2 hours.
    pub idle: Duration,
    /// Between probes. Linux: 75 s.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up. Linux: 9.
    pub probes: u8,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// What a connection begins with. Sizes are bytes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest payload per segment that the link carries, options not subtracted. The stack sets it from
    /// the route; the default is the least that IPv4 promises (RFC 9293, 3.7.1).
    pub mss: u16,
    /// Largest payload of one packet handed down, to be segmented later. Default 65,483: with the longest
    /// headers it stays below 64 KiB.
    pub gso_max: usize,
    /// Bytes that may wait in the send queue.
    pub sndbuf: usize,
    /// Receive buffer at the beginning.
    pub rcvbuf: usize,
    /// Up to where it tunes itself; equal to `rcvbuf` means fixed.
    pub rcvbuf_max: usize,
    /// Offer window scaling (RFC 7323). Default on.
    pub window_scaling: bool,
    /// Offer timestamps (RFC 7323). Default on: they protect against old duplicates.
    pub timestamps: bool,
    /// Offer selective acknowledgments (RFC 2018). Default on.
    pub sack: bool,
    /// Send small segments at once (no Nagle). Default off, as in Linux.
    pub nodelay: bool,
    /// How long an acknowledgment may be held back. Default 40 ms, Linux's minimum; RFC 9293 allows 500.
    pub delayed_ack: Duration,
    /// Probe idle connections. Default off.
    pub keepalive: Option<Keepalive>,
    /// Give up when sent data stays unacknowledged for so long (RFC 5482). Default: by `retries`.
    pub user_timeout: Option<Duration>,
    /// Congestion control. Default CUBIC, as in Linux.
    pub congestion: CongestionKind,
    /// Initial window in segments. Default 10 (RFC 6928).
    pub initial_window: u32,
    /// Least retransmission timeout. Default 200 ms, as in Linux; RFC 6298 says 1 s, which networks have
    /// outgrown.
    pub rto_min: Duration,
    /// Largest retransmission timeout. Default 120 s, as in Linux (RFC 6298, 2.5: at least 60 s).
    pub rto_max: Duration,
    /// SYNs sent again before giving up. Default 6: about two minutes, as in Linux.
    pub syn_retries: u8,
    /// Timeouts in a row before an established connection is given up. Default 15, as in Linux: between 13
    /// and 30 minutes.
    pub retries: u8,
    /// Length of TIME-WAIT. Default 60 s, as in Linux.
    pub time_wait: Duration,
    /// How long a connection whose program is gone may stay in FIN-WAIT-2. Default 60 s, as in Linux.
    pub fin_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mss: 536,
            gso_max: 65_483,
            sndbuf: 4 << 20,
            rcvbuf: 131_072,
            rcvbuf_max: 6 << 20,
            window_scaling: true,
            timestamps: true,
            sack: true,
            nodelay: false,
            delayed_ack: Duration::from_millis(40),
            keepalive: None,
            user_timeout: None,
            congestion: CongestionKind::Cubic,
            initial_window: 10,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            syn_retries: 6,
            retries: 15,
            time_wait: Duration::from_secs(60),
            fin_timeout: Duration::from_secs(60),
        }
    }
}

impl Config {
    /// The window scale to offer: the least that can express the largest receive buffer.
    pub(crate) fn window_shift(&self) -> u8 {
        let largest = self.rcvbuf.max(self.rcvbuf_max);
        (0..14).find(|s| largest >> s <= 0xffff).unwrap_or(14)
    }
}
