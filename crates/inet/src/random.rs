//! Numbers that a peer cannot guess and a simulation can repeat.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;
use time::Duration;

/// A counter under a keyed hash.
#[derive(Debug)]
pub(crate) struct Random {
    key: [u8; 16],
    counter: u64,
    /// Next identifications, by a hash of the flow: a flow sees them rise and learns nothing of others
    /// (RFC 7739, 5.3, as `ip_idents` in Linux).
    idents: Box<[u32; 256]>,
}

impl Random {
    pub(crate) fn new(key: [u8; 16]) -> Self {
        Self { key, counter: 0, idents: Box::new([0; 256]) }
    }

    fn hash(&self, words: &[u8]) -> u64 {
        let mut h = SipHasher13::new_with_key(&self.key);
        h.write(words);
        h.finish()
    }

    /// A number below `bound` (0 if that is 0).
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.counter = self.counter.wrapping_add(1);
        let n = self.hash(&self.counter.to_le_bytes());
        n.checked_rem(bound).unwrap_or(0)
    }

    /// A time between half and one and a half of `base` (RFC 4861, 6.3.2).
    pub(crate) fn around(&mut self, base: Duration) -> Duration {
        let base = u64::try_from(base.as_nanos()).unwrap_or(u64::MAX / 2);
        Duration::from_nanos(base / 2 + self.below(base))
    }

    /// The next identification for fragments from `src` to `dst`.
    pub(crate) fn ident(&mut self, src: IpAddr, dst: IpAddr, proto: u8) -> u32 {
        let mut bytes = [0; 34];
        let octets = |a: IpAddr| match a {
            IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
            IpAddr::V6(a) => a.octets(),
        };
        for (to, from) in bytes.iter_mut().zip([octets(src), octets(dst)].concat()) {
            *to = from;
        }
        bytes[32] = proto;
        let hash = self.hash(&bytes);
        let slot = &mut self.idents[hash as usize % 256];
        *slot = slot.wrapping_add(1);
        slot.wrapping_add((hash >> 32) as u32)
    }
}
