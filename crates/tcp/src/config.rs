//! Parameters of a connection, each with its reason.

use time::Duration;

use crate::congestion::CongestionKind;

/// Keepalive probing (RFC 9293, 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Whether to probe at all (`SO_KEEPALIVE`). Default off.
    pub on: bool,
    /// Silence before the first probe. Linux: 2 hours.
    pub idle: Duration,
    /// Between probes. Linux: 75 s.
    pub interval: Duration,
    /// Unanswered probes before the connection is given up. Linux: 9.
    pub probes: u8,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { on: false, idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// Explicit congestion notification (RFC 3168). The numbers are those of Linux's `tcp_ecn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ecn {
    /// Never.
    Off = 0,
    /// Asked for, and agreed to.
    On = 1,
    /// Agreed to when the peer asks.
    #[default]
    Passive = 2,
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
    /// Report what came twice (RFC 2883). Default on.
    pub dsack: bool,
    /// Explicit congestion notification. Default: when the peer asks, as in Linux.
    pub ecn: Ecn,
    /// Send small segments at once (no Nagle). Default off, as in Linux.
    pub nodelay: bool,
    /// How long an acknowledgment may be held back. Default 40 ms, Linux's minimum; RFC 9293 allows 500.
    pub delayed_ack: Duration,
    /// Probing of idle connections.
    pub keepalive: Keepalive,
    /// Give up when sent data stays unacknowledged for so long (RFC 5482). Default: by `retries`.
    pub user_timeout: Option<Duration>,
    /// Congestion control. Default CUBIC, as in Linux.
    pub congestion: CongestionKind,
    /// Initial window in segments. Default 10 (RFC 6928).
    pub initial_window: u32,
    /// Least that a retransmission timeout adds to the round trip. Default 200 ms, as in Linux; RFC 6298 says
    /// 1 s in all, which networks have outgrown.
    pub rto_min: Duration,
    /// Largest retransmission timeout. Default 120 s, as in Linux (RFC 6298, 2.5: at least 60 s).
    pub rto_max: Duration,
    /// SYNs sent again before giving up. Default 6: about two minutes, as in Linux.
    pub syn_retries: u8,
    /// SYN-ACKs sent again before giving up. Default 5: about a minute, as in Linux.
    pub synack_retries: u8,
    /// Timeouts in a row before an established connection is given up. Default 15, as in Linux: between 13
    /// and 30 minutes.
    pub retries: u8,
    /// Length of TIME-WAIT. Default 60 s, as in Linux.
    pub time_wait: Duration,
    /// How long a connection whose program is gone may stay in FIN-WAIT-2 (`TCP_LINGER2`). Default 60 s, as
    /// in Linux; zero: not at all, it is reset.
    pub fin_timeout: Duration,
    /// Largest segment to announce and to send, options not subtracted (`TCP_MAXSEG`). Default 0: what the
    /// path carries.
    pub user_mss: u16,
    /// Hold back a last segment that is not full (`TCP_CORK`), for 200 ms or a retransmission timeout at
    /// most. Default off.
    pub cork: bool,
    /// A connection that came to us is not made by the bare end of the handshake, but by the first data, or
    /// when the SYN-ACK was sent again so many times (`TCP_DEFER_ACCEPT`). On the calling side: the end of
    /// the handshake waits for data. Default 0: off.
    pub defer_accept: u8,
    /// Largest window to advertise (`TCP_WINDOW_CLAMP`). Default 0: what the buffer takes.
    pub window_clamp: u32,
    /// Unsent bytes from which on a socket takes no more and is not writable (`TCP_NOTSENT_LOWAT`). Default
    /// none.
    pub notsent_lowat: u32,
    /// Connections that may be made by a SYN with a cookie and wait for the end of their handshake
    /// (`TCP_FASTOPEN` on a listener). Default 0: cookies are neither given nor taken.
    pub fastopen_queue: u32,
    /// Key of the cookies (`TCP_FASTOPEN_KEY`). The stack draws one.
    pub fastopen_key: [u8; 16],
    /// Data in a SYN is taken without a cookie (`TCP_FASTOPEN_NO_COOKIE`), and sent without one. Default off.
    pub fastopen_no_cookie: bool,
    /// Connecting to a peer whose cookie is known waits for the first data (`TCP_FASTOPEN_CONNECT`); to
    /// others it asks for one. Default off.
    pub fastopen_connect: bool,
    /// Bytes from which on a socket is readable (`SO_RCVLOWAT`). Default 1.
    pub rcvlowat: usize,
    /// Urgent bytes stay in the stream (`SO_OOBINLINE`). Default off: one is taken out and kept aside.
    pub oob_inline: bool,
    /// What closing does (`SO_LINGER`): nothing for `None`, a reset for zero; another time is how long a
    /// blocking close waits, which is up to the caller. Default `None`.
    pub linger: Option<Duration>,
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
            dsack: true,
            ecn: Ecn::default(),
            nodelay: false,
            delayed_ack: Duration::from_millis(40),
            keepalive: Keepalive::default(),
            user_timeout: None,
            congestion: CongestionKind::Cubic,
            initial_window: 10,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            syn_retries: 6,
            synack_retries: 5,
            retries: 15,
            time_wait: Duration::from_secs(60),
            fin_timeout: Duration::from_secs(60),
            user_mss: 0,
            cork: false,
            defer_accept: 0,
            window_clamp: 0,
            notsent_lowat: u32::MAX,
            fastopen_queue: 0,
            fastopen_key: [0; 16],
            fastopen_no_cookie: false,
            fastopen_connect: false,
            rcvlowat: 1,
            oob_inline: false,
            linger: None,
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
