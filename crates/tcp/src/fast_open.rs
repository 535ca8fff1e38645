//! Data in the SYN (RFC 7413): the server's cookies, and what either side does with them.

use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher24;
use wire::tcp::{Cookie, TcpHeader};

use crate::config::Config;
use crate::segment_arrives::SegmentIn;
use crate::state::State;
use crate::tcb::Tcb;

/// The cookie of `client` at `server`. As Linux makes it, so that servers may share a key with it.
pub fn fast_open_cookie(key: &[u8; 16], client: IpAddr, server: IpAddr) -> Cookie {
    let mut h = SipHasher24::new_with_key(key);
    let mut bytes = [0; 32];
    let len = match (client.to_canonical(), server.to_canonical()) {
        (IpAddr::V4(c), IpAddr::V4(s)) => {
            bytes[..4].copy_from_slice(&c.octets());
            bytes[4..8].copy_from_slice(&s.octets());
            8
        }
        (c, s) => {
            for (half, ip) in bytes.chunks_exact_mut(16).zip([c, s]) {
                if let IpAddr::V6(ip) = ip {
                    half.copy_from_slice(&ip.octets());
                }
            }
            32
        }
    };
    h.write(&bytes[..len]);
    h.finish().to_le_bytes().into_iter().collect()
}

/// What a listener makes of a SYN.
pub(crate) enum Opening {
    /// Nothing special.
    Plain,
    /// The SYN-ACK gives a cookie.
    Give(Cookie),
    /// The connection is made already.
    Open,
}

pub(crate) fn opening(
    cfg: &Config,
    (local, remote): (SocketAddr, SocketAddr),
    seg: &SegmentIn,
    pending: usize,
) -> Opening {
    if cfg.fastopen_queue == 0 {
        return Opening::Plain;
    }
    let room = pending < cfg.fastopen_queue as usize;
    let expected = || fast_open_cookie(&cfg.fastopen_key, remote.ip(), local.ip());
    match &seg.header.options.fast_open {
        _ if cfg.fastopen_no_cookie && room && !seg.payload.is_empty() => Opening::Open,
        None => Opening::Plain,
        Some(theirs) if !theirs.is_empty() && *theirs == expected() => {
            if room {
                Opening::Open
            } else {
                Opening::Plain
            }
        }
        Some(_) => Opening::Give(expected()),
    }
}

impl Tcb {
    /// Connects with the first data in the SYN, if `cookie` is known from an earlier connection, with the
    /// MSS that the peer announced then; else asks for one. To be called before the SYN leaves.
    pub fn fast_open(&mut self, known: Option<(Cookie, u16)>) {
        let Some(h) = self.handshake.as_mut().filter(|_| self.state == State::SynSent) else { return };
        if let Some((cookie, mss)) = known {
            h.data_allowed = true;
            h.cookie = Some(cookie);
            self.peer_mss = mss;
        } else {
            h.cookie = Some(Cookie::new());
        }
    }

    /// Bytes that still fit into a SYN that has not left.
    pub(crate) fn syn_room(&self) -> usize {
        match &self.handshake {
            Some(h) if h.data_allowed && h.attempts == 0 => {
                self.syn_capacity().saturating_sub(self.out.len())
            }
            _ => 0,
        }
    }

    /// Payload a SYN can take beside the longest options.
    pub(crate) fn syn_capacity(&self) -> usize {
        usize::from(self.peer_mss.min(self.advertised_mss()).saturating_sub(40))
    }

    /// The cookie and MSS that a server gave for next time, once.
    pub fn take_cookie(&mut self) -> Option<(Cookie, u16)> {
        self.learnt_cookie.take().map(|cookie| (*cookie, self.peer_mss))
    }

    /// Whether the connection was made by a SYN with a cookie, and its handshake goes on.
    pub(crate) fn is_fast_open(&self) -> bool {
        self.state == State::SynReceived && self.handshake.as_ref().is_some_and(|h| h.data_allowed)
    }

    /// A SYN with a good cookie: its data is the connection's first (RFC 7413, 4.2.2).
    pub(crate) fn open_at_once(&mut self, seg: &mut SegmentIn) {
        if let Some(h) = &mut self.handshake {
            h.data_allowed = true;
        }
        let room = self.rcvbuf.min(0xffff);
        let mut data = std::mem::take(&mut seg.payload);
        data.trim(room);
        if !data.is_empty() {
            self.syn_data = true;
            self.counts.bytes_received += data.len() as u64;
            self.rcv.nxt += data.len() as u32;
            self.rcv.edge = self.rcv.nxt;
            self.input.push(data);
        }
    }

    /// The SYN-ACK says how much of the SYN's data it takes, and may bring a cookie. The rest is sent again.
    pub(crate) fn syn_was_answered(&mut self, syn_ack: &TcpHeader) {
        let sent = self.handshake.as_ref().map_or(0, |h| h.syn_data);
        if let Some(cookie) = syn_ack.options.fast_open.clone().filter(|c| !c.is_empty()) {
            self.learnt_cookie = Some(Box::new(cookie));
        }
        self.syn_data = sent > 0 && syn_ack.ack.after(self.snd.iss + 1);
        if sent > 0 {
            self.snd.nxt = syn_ack.ack;
            self.rtx.clear();
        }
    }
}
