//! LISTEN (RFC 9293, 3.10.7.2), and segments that belong to nobody (3.10.7.1).

use std::net::SocketAddr;
use std::sync::Arc;

use skb::SkBuff;
use time::Instant;
use wire::SeqNum;
use wire::tcp::{TcpFlags, TcpHeader, TcpOptions};

use crate::config::{Config, Ecn};
use crate::cookies::Cookies;
use crate::fast_open::{self, Opening};
use crate::segment_arrives::SegmentIn;
use crate::state::State;
use crate::tcb::Tcb;

/// A listening port's rules. It has no memory of its own: connections that are being made are `Tcb`s, or
/// under pressure cookies.
#[derive(Debug)]
pub struct Listen {
    cfg: Arc<Config>,
    cookies: Cookies,
}

/// What to do with a segment that came to a listening port.
#[derive(Debug)]
#[must_use]
pub enum ListenVerdict {
    /// Drop it.
    Ignore,
    /// Answer with this segment, and remember nothing.
    Reply(SkBuff),
    /// A connection begins; its first segment is the SYN-ACK.
    Spawn(Box<Tcb>),
    /// A connection is made by a SYN with a Fast Open cookie: it can be accepted at once.
    Open(Box<Tcb>),
    /// A SYN cookie came back: the connection is made. Give the segment to it.
    Established(Box<Tcb>),
}

impl Listen {
    /// For connections that begin with `cfg`; `secret` protects the cookies.
    pub fn new(cfg: impl Into<Arc<Config>>, secret: [u8; 16]) -> Self {
        Self { cfg: cfg.into(), cookies: Cookies::new(secret) }
    }

    /// Changes the parameters of connections to come.
    pub fn set_config(&mut self, cfg: Arc<Config>) {
        self.cfg = cfg;
    }

    /// A segment came for which there is no connection. `mss` is what the route to the peer carries.
    /// `pressure` asks for cookies; `pending` is how many
    /// connections were made by Fast Open and are not confirmed.
    #[expect(clippy::too_many_arguments, reason = "the facts of one segment")]
    pub fn segment_arrives(
        &self,
        now: Instant,
        (local, remote): (SocketAddr, SocketAddr),
        seg: &mut SegmentIn,
        mss: u16,
        iss: SeqNum,
        ts_offset: u32,
        (pressure, pending): (bool, usize),
    ) -> ListenVerdict {
        let flags = seg.header.flags;
        if flags.contains(TcpFlags::RST) {
            return ListenVerdict::Ignore;
        }
        let cfg = &self.cfg;
        let ports = (local.port(), remote.port());
        if flags.contains(TcpFlags::ACK) {
            let cookie =
                self.cookies.check(now, local, remote, &seg.header, cfg.timestamps.then_some(ts_offset));
            return match cookie.filter(|_| !flags.contains(TcpFlags::SYN)) {
                Some(options) => ListenVerdict::Established(Box::new(from_cookie(
                    cfg.clone(),
                    mss,
                    ports,
                    seg,
                    options,
                    ts_offset,
                    now,
                ))),
                None => reset_for(seg).map_or(ListenVerdict::Ignore, ListenVerdict::Reply),
            };
        }
        if !flags.contains(TcpFlags::SYN) || flags.contains(TcpFlags::FIN) {
            return ListenVerdict::Ignore;
        }
        if pressure {
            return ListenVerdict::Reply(self.cookie_reply(mss, now, (local, remote), seg, ts_offset));
        }
        let mut tcb = Tcb::new(cfg.clone(), ports, State::SynReceived, iss, ts_offset, now);
        tcb.path_mss = mss;
        tcb.learn_from_syn(&seg.header, now);
        let asks = flags.contains(TcpFlags::ECE | TcpFlags::CWR);
        tcb.ecn = asks && cfg.ecn != Ecn::Off && !seg.ce;
        let opening = fast_open::opening(cfg, (local, remote), seg, pending);
        if let Some(h) = &mut tcb.handshake {
            h.passive = true;
        }
        match (opening, &mut tcb.handshake) {
            (Opening::Give(cookie), Some(h)) => h.cookie = Some(cookie),
            (Opening::Open, _) => {
                tcb.open_at_once(seg);
                return ListenVerdict::Open(Box::new(tcb));
            }
            _ => {}
        }
        ListenVerdict::Spawn(Box::new(tcb))
    }

    fn cookie_reply(
        &self,
        mss: u16,
        now: Instant,
        (local, remote): (SocketAddr, SocketAddr),
        seg: &SegmentIn,
        ts_offset: u32,
    ) -> SkBuff {
        let cfg = &self.cfg;
        let mss = if cfg.user_mss > 0 { mss.min(cfg.user_mss) } else { mss };
        let theirs = &seg.header.options;
        let timestamps = theirs.timestamps.filter(|_| cfg.timestamps);
        let options = TcpOptions {
            mss: Some(mss),
            // Window scaling and SACK need a place to be remembered: the timestamp's low bits.
            window_scale: theirs
                .window_scale
                .filter(|_| cfg.window_scaling && timestamps.is_some())
                .map(|_| cfg.window_shift()),
            sack_permitted: cfg.sack && theirs.sack_permitted && timestamps.is_some(),
            timestamps: timestamps.map(|t| self.cookies.timestamps(now, ts_offset, theirs, cfg, t)),
            ..TcpOptions::default()
        };
        let header = TcpHeader {
            src_port: local.port(),
            dst_port: remote.port(),
            seq: self.cookies.make(now, local, remote, &seg.header),
            ack: seg.header.seq + 1,
            flags: TcpFlags::SYN | TcpFlags::ACK,
            window: cfg.rcvbuf.min(0xffff) as u16,
            urgent: 0,
            options,
        };
        emit(&header)
    }
}

/// Rebuilds the connection whose SYN only the cookie remembers.
fn from_cookie(
    cfg: Arc<Config>,
    mss: u16,
    ports: (u16, u16),
    seg: &SegmentIn,
    options: TcpOptions,
    ts_offset: u32,
    now: Instant,
) -> Tcb {
    let rcvbuf = cfg.rcvbuf;
    let mut tcb = Tcb::new(cfg, ports, State::SynReceived, seg.header.ack - 1, ts_offset, now);
    tcb.path_mss = mss;
    let syn = TcpHeader {
        seq: seg.header.seq - 1,
        window: seg.header.window,
        options: TcpOptions { timestamps: seg.header.options.timestamps, ..options },
        ..TcpHeader::default()
    };
    tcb.learn_from_syn(&syn, now);
    tcb.snd.nxt = tcb.snd.iss + 1;
    tcb.rcv.edge = tcb.rcv.nxt + rcvbuf.min(0xffff) as u32;
    if let Some(h) = &mut tcb.handshake {
        (h.send, h.passive, h.attempts) = (false, true, 2);
    }
    tcb
}

//= rfc9293#section-3.10.7.1
//# If the ACK bit is off, sequence number zero is used, <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>. If the
//# ACK bit is on, <SEQ=SEG.ACK><CTL=RST>
/// The reset for a segment that belongs to no connection; `None` for a reset.
pub fn reset_for(seg: &SegmentIn) -> Option<SkBuff> {
    let h = &seg.header;
    if h.flags.contains(TcpFlags::RST) {
        return None;
    }
    let (seq, ack, flags) = if h.flags.contains(TcpFlags::ACK) {
        (h.ack, SeqNum(0), TcpFlags::RST)
    } else {
        (SeqNum(0), h.seq + seg.len(), TcpFlags::RST | TcpFlags::ACK)
    };
    let reset =
        TcpHeader { src_port: h.dst_port, dst_port: h.src_port, seq, ack, flags, ..TcpHeader::default() };
    Some(emit(&reset))
}

fn emit(header: &TcpHeader) -> SkBuff {
    let mut skb = SkBuff::new();
    if let Ok(room) = skb.push(header.header_len()) {
        header.emit(room);
    }
    skb
}
