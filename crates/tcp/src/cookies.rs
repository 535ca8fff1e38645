//! SYN cookies (RFC 4987, 3.6): under a flood the state of a handshake lives in the sequence number that the
//! peer must echo, and in the low bits of the timestamp it echoes.

use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

use siphasher::sip::SipHasher24;
use time::Instant;
use wire::SeqNum;
use wire::tcp::{TcpHeader, TcpOptions, Timestamps};

use crate::config::Config;
use crate::output::clock;

/// Segment sizes a cookie can name, in two bits.
const MSS: [u16; 4] = [536, 1220, 1440, 1460];
/// Seconds per tick of the cookie clock; a cookie is good for this tick and the next.
const TICK: u64 = 64;
/// Low bits of the timestamp that carry options: 4 of window scale, 1 of SACK.
const OPTION_BITS: u32 = 5;
/// The window scale nibble that says "none".
const NO_SCALE: u32 = 15;

#[derive(Debug)]
pub(crate) struct Cookies {
    secret: [u8; 16],
}

impl Cookies {
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        Self { secret }
    }

    /// The initial sequence number: 24 bits of hash, 6 of time, 2 of segment size.
    pub(crate) fn make(
        &self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        syn: &TcpHeader,
    ) -> SeqNum {
        let wanted = syn.options.mss.unwrap_or(536);
        let size = MSS.iter().rposition(|m| *m <= wanted).unwrap_or(0) as u32;
        self.cookie(tick(now), local, remote, syn.seq, size)
    }

    fn cookie(&self, tick: u64, local: SocketAddr, remote: SocketAddr, irs: SeqNum, size: u32) -> SeqNum {
        let mut h = SipHasher24::new_with_key(&self.secret);
        (tick, local, remote, irs.0, size).hash(&mut h);
        SeqNum(((h.finish() as u32) << 8) | ((tick as u32 & 0x3f) << 2) | size)
    }

    /// The timestamp of the SYN-ACK, with the options in its low bits. It never lies in the future, so that
    /// later ones do not go back.
    pub(crate) fn timestamps(
        &self,
        now: Instant,
        offset: u32,
        theirs: &TcpOptions,
        cfg: &Config,
        t: Timestamps,
    ) -> Timestamps {
        let scale = theirs.window_scale.filter(|_| cfg.window_scaling).map_or(NO_SCALE, u32::from);
        let bits = scale << 1 | u32::from(cfg.sack && theirs.sack_permitted);
        let now = clock(now, offset);
        let mut val = (now >> OPTION_BITS << OPTION_BITS) | bits;
        if val.wrapping_sub(now) as i32 > 0 {
            val = val.wrapping_sub(1 << OPTION_BITS);
        }
        Timestamps { val, ecr: t.val }
    }

    /// The SYN's options, if `ack` echoes a cookie of ours that is not too old.
    pub(crate) fn check(
        &self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        ack: &TcpHeader,
        ts_offset: Option<u32>,
    ) -> Option<TcpOptions> {
        let cookie = ack.ack - 1;
        let size = cookie.0 & 3;
        let irs = ack.seq - 1;
        let tick = tick(now);
        [tick, tick.saturating_sub(1)]
            .into_iter()
            .find(|t| self.cookie(*t, local, remote, irs, size) == cookie)?;
        let echoed = ack.options.timestamps.filter(|_| ts_offset.is_some()).map(|t| t.ecr);
        let scale = echoed.map(|e| e >> 1 & 0xf).filter(|s| *s != NO_SCALE);
        Some(TcpOptions {
            mss: MSS.get(size as usize).copied(),
            window_scale: scale.map(|s| s.min(14) as u8),
            sack_permitted: echoed.is_some_and(|e| e & 1 != 0),
            ..TcpOptions::default()
        })
    }
}

fn tick(now: Instant) -> u64 {
    now.as_millis() / 1000 / TICK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_known_again_for_a_while_and_only_by_its_connection() {
        let c = Cookies::new([7; 16]);
        let (l, r): (SocketAddr, SocketAddr) =
            ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:999".parse().unwrap());
        let options = TcpOptions {
            mss: Some(1450),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { val: 5, ecr: 0 }),
            ..TcpOptions::default()
        };
        let syn = TcpHeader { seq: SeqNum(1000), options: options.clone(), ..TcpHeader::default() };
        let now = Instant::from_secs(1000);
        let iss = c.make(now, l, r, &syn);
        let ts = c.timestamps(now, 77, &options, &Config::default(), Timestamps { val: 5, ecr: 0 });
        let echo = Timestamps { val: 6, ecr: ts.val };
        let mut ack = TcpHeader { seq: SeqNum(1001), ack: iss + 1, ..TcpHeader::default() };
        ack.options.timestamps = Some(echo);
        let seen = c.check(now, l, r, &ack, Some(77)).unwrap();
        assert_eq!((seen.mss, seen.window_scale, seen.sack_permitted), (Some(1440), Some(7), true));
        assert!(c.check(now, r, l, &ack, Some(77)).is_none());
        assert!(c.check(now + time::Duration::from_secs(60), l, r, &ack, Some(77)).is_some());
        assert!(c.check(now + time::Duration::from_secs(200), l, r, &ack, Some(77)).is_none());
        ack.seq = SeqNum(1002);
        assert!(c.check(now, l, r, &ack, Some(77)).is_none());
    }
}
