//! Measurements of a connection (`TCP_INFO`), with Linux's names and units.

use time::{Duration, Instant};

use crate::recovery::CaState;
use crate::state::State;
use crate::tcb::{TIMESTAMP_LEN, Tcb};
use crate::timers::Timer;

bitflags::bitflags! {
    /// What was agreed on in the handshake (`tcpi_options`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct TcpiOptions: u8 {
        /// Timestamps.
        const TIMESTAMPS = 1;
        /// Selective acknowledgments.
        const SACK = 2;
        /// Window scaling.
        const WSCALE = 4;
        /// ECN.
        const ECN = 8;
        /// A marked packet was seen.
        const ECN_SEEN = 16;
        /// Data in the SYN was acknowledged.
        const SYN_DATA = 32;
    }
}

/// Measurements of a connection. Counts are packets, where Linux counts packets, and bytes where the name says
/// so.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names are Linux's")]
pub struct TcpInfo {
    pub state: State,
    pub ca_state: CaState,
    /// Timeouts in a row.
    pub retransmits: u8,
    /// Unanswered window or keepalive probes.
    pub probes: u8,
    pub backoff: u8,
    pub options: TcpiOptions,
    pub snd_wscale: u8,
    pub rcv_wscale: u8,
    pub delivery_rate_app_limited: bool,
    pub rto: Duration,
    pub ato: Duration,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    pub unacked: u32,
    pub sacked: u32,
    pub lost: u32,
    pub retrans: u32,
    /// Times since.
    pub last_data_sent: Duration,
    pub last_data_recv: Duration,
    pub last_ack_recv: Duration,
    /// Largest packet the path takes, with IPv4 headers, in bytes.
    pub pmtu: u32,
    pub rcv_ssthresh: u32,
    pub rtt: Duration,
    pub rttvar: Duration,
    /// `u32::MAX` before the first loss.
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    pub advmss: u32,
    pub reordering: u32,
    pub rcv_rtt: Duration,
    /// Bytes a reader took in its best round trip.
    pub rcv_space: u32,
    pub total_retrans: u32,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub segs_out: u32,
    pub segs_in: u32,
    pub notsent_bytes: u32,
    pub min_rtt: Option<Duration>,
    pub data_segs_in: u32,
    pub data_segs_out: u32,
    /// Bytes per second.
    pub delivery_rate: u64,
    pub busy_time: Duration,
    pub rwnd_limited: Duration,
    pub sndbuf_limited: Duration,
    pub delivered: u32,
    pub bytes_sent: u64,
    pub bytes_retrans: u64,
    pub dsack_dups: u32,
    pub reord_seen: u32,
    pub rcv_ooopack: u32,
    /// Windows in bytes.
    pub snd_wnd: u32,
    pub rcv_wnd: u32,
    pub total_rto: u16,
    pub total_rto_recoveries: u16,
    /// Receive buffer as tuned, in bytes.
    pub rcvbuf: usize,
}

impl Tcb {
    /// Measurements, as of `now`.
    pub fn info(&self, now: Instant) -> TcpInfo {
        let mss = u32::from(self.mss);
        let packets = self.rtx.packets(mss);
        let (rate, app_limited) = self.rate.bytes_per_second(mss);
        let [busy_time, rwnd_limited, sndbuf_limited] = self.counts.spent(now);
        let c = &self.counts;
        let r = &self.recovery;
        let timestamps = if self.ts.is_some() { u32::from(TIMESTAMP_LEN) } else { 0 };
        let sacked = if self.sack { packets.sacked } else { r.dup_acks };
        let syn = u32::from(matches!(self.state, State::SynSent | State::SynReceived) && !self.syn_is_due());
        let ssthresh = self.cc.ssthresh();
        TcpInfo {
            state: self.state,
            ca_state: r.ca,
            retransmits: r.timeouts,
            probes: self.probes_out,
            backoff: self.rto.backoff(),
            options: self.agreed(),
            snd_wscale: self.snd.shift,
            rcv_wscale: self.rcv.shift,
            delivery_rate_app_limited: app_limited,
            rto: self.rto.timeout(),
            ato: self.cfg.delayed_ack,
            snd_mss: mss,
            rcv_mss: self.rcv.mss,
            unacked: packets.out + syn,
            sacked,
            lost: packets.lost,
            retrans: packets.retrans,
            last_data_sent: now - self.last_sent,
            last_data_recv: now - self.last_data,
            last_ack_recv: now - self.last_heard,
            pmtu: u32::from(self.path_mss) + 40,
            rcv_ssthresh: self.rcv.wnd(),
            rtt: self.rto.srtt().unwrap_or_default(),
            rttvar: self.rto.rttvar(),
            snd_ssthresh: if ssthresh == u32::MAX { ssthresh } else { ssthresh / mss },
            snd_cwnd: self.cc.cwnd() / mss,
            advmss: u32::from(self.advertised_mss()).saturating_sub(timestamps),
            reordering: r.reordering.into(),
            rcv_rtt: self.rto.srtt().unwrap_or_default(),
            rcv_space: self.tuning.best,
            total_retrans: c.total_retrans,
            bytes_acked: c.bytes_acked,
            bytes_received: c.bytes_received,
            segs_out: c.segs_out,
            segs_in: c.segs_in,
            notsent_bytes: self.unsent() as u32,
            min_rtt: r.min_rtt(),
            data_segs_in: c.data_segs_in,
            data_segs_out: c.data_segs_out,
            delivery_rate: rate,
            busy_time,
            rwnd_limited,
            sndbuf_limited,
            delivered: self.rate.now.delivered,
            bytes_sent: c.bytes_sent,
            bytes_retrans: c.bytes_retrans,
            dsack_dups: c.dsack_dups,
            reord_seen: c.reord_seen,
            rcv_ooopack: c.rcv_ooopack,
            snd_wnd: self.snd.wnd,
            rcv_wnd: self.rcv.wnd(),
            total_rto: c.total_rto,
            total_rto_recoveries: c.total_rto_recoveries,
            rcvbuf: self.rcvbuf,
        }
    }

    fn agreed(&self) -> TcpiOptions {
        let mut options = TcpiOptions::empty();
        options.set(TcpiOptions::TIMESTAMPS, self.ts.is_some());
        options.set(TcpiOptions::SACK, self.sack);
        options.set(TcpiOptions::ECN, self.ecn);
        options.set(TcpiOptions::ECN_SEEN, self.ecn_seen);
        options.set(TcpiOptions::SYN_DATA, self.syn_data);
        options.set(TcpiOptions::WSCALE, self.snd.shift > 0 || self.rcv.shift > 0);
        options
    }

    fn syn_is_due(&self) -> bool {
        self.handshake.as_ref().is_some_and(|h| h.send && !self.timers.is_set(Timer::Retransmit))
    }
}

impl TcpInfo {
    /// Bytes of [`to_linux`](Self::to_linux).
    pub const LINUX_LEN: usize = 280;

    /// `struct tcp_info`, as Linux's `getsockopt` gives it on this machine.
    pub fn to_linux(&self) -> [u8; Self::LINUX_LEN] {
        let mut out = [0; Self::LINUX_LEN];
        out[0] = self.state.number();
        out[1] = self.ca_state as u8;
        out[2] = self.retransmits;
        out[3] = self.probes;
        out[4] = self.backoff;
        out[5] = self.options.bits();
        out[6] = self.snd_wscale | self.rcv_wscale << 4;
        out[7] = u8::from(self.delivery_rate_app_limited);
        for (at, n) in self.words() {
            out[at..at + 4].copy_from_slice(&n.to_ne_bytes());
        }
        for (at, n) in self.longs() {
            out[at..at + 8].copy_from_slice(&n.to_ne_bytes());
        }
        for (at, n) in [(240, self.total_rto), (242, self.total_rto_recoveries)] {
            out[at..at + 2].copy_from_slice(&n.to_ne_bytes());
        }
        out
    }

    /// 32-bit fields, with where they lie.
    fn words(&self) -> [(usize, u32); 34] {
        let us = |d: Duration| u32::try_from(d.as_micros()).unwrap_or(u32::MAX);
        let ms = |d: Duration| u32::try_from(d.as_millis()).unwrap_or(u32::MAX);
        [
            (8, us(self.rto)),
            (12, us(self.ato)),
            (16, self.snd_mss),
            (20, self.rcv_mss),
            (24, self.unacked),
            (28, self.sacked),
            (32, self.lost),
            (36, self.retrans),
            (44, ms(self.last_data_sent)),
            (52, ms(self.last_data_recv)),
            (56, ms(self.last_ack_recv)),
            (60, self.pmtu),
            (64, self.rcv_ssthresh),
            (68, us(self.rtt)),
            (72, us(self.rttvar)),
            (76, self.snd_ssthresh.min(i32::MAX as u32)),
            (80, self.snd_cwnd),
            (84, self.advmss),
            (88, self.reordering),
            (92, us(self.rcv_rtt)),
            (96, self.rcv_space),
            (100, self.total_retrans),
            (136, self.segs_out),
            (140, self.segs_in),
            (144, self.notsent_bytes),
            (148, self.min_rtt.map_or(u32::MAX, us)),
            (152, self.data_segs_in),
            (156, self.data_segs_out),
            (192, self.delivered),
            (216, self.dsack_dups),
            (220, self.reord_seen),
            (224, self.rcv_ooopack),
            (228, self.snd_wnd),
            (232, self.rcv_wnd),
        ]
    }

    fn longs(&self) -> [(usize, u64); 10] {
        [
            // Pacing: there is none.
            (104, u64::MAX),
            (112, u64::MAX),
            (120, self.bytes_acked),
            (128, self.bytes_received),
            (160, self.delivery_rate),
            (168, self.busy_time.as_micros() as u64),
            (176, self.rwnd_limited.as_micros() as u64),
            (184, self.sndbuf_limited.as_micros() as u64),
            (200, self.bytes_sent),
            (208, self.bytes_retrans),
        ]
    }
}
