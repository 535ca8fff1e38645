//! Path MTUs that were learned (RFC 1191, RFC 8201).

use std::collections::BTreeMap;
use std::net::IpAddr;

use time::{Duration, Instant};

use crate::Config;

/// No path is believed to carry less: Linux's `min_pmtu`, against errors forged to make packets tiny.
const MIN_V4: u32 = 552;
/// The smallest MTU of IPv6 (RFC 8200, 5).
const MIN_V6: u32 = wire::ipv6::MIN_MTU;

/// Destinations whose path MTU is below their interface's.
#[derive(Debug)]
pub(crate) struct PathMtus {
    paths: BTreeMap<IpAddr, (u32, Instant)>,
    limit: usize,
    timeout: Duration,
}

impl PathMtus {
    pub(crate) fn new(config: &Config) -> Self {
        Self { paths: BTreeMap::new(), limit: config.paths.max(1), timeout: config.path_mtu_timeout }
    }

    /// The path MTU to `dst`, and until when it is believed.
    pub(crate) fn get(&self, now: Instant, dst: IpAddr) -> Option<(u32, Instant)> {
        self.paths.get(&dst).copied().filter(|(_, until)| now < *until)
    }

    /// Believes `mtu`, if it is not more than what is known; what is known then.
    pub(crate) fn update(&mut self, now: Instant, dst: IpAddr, mtu: u32) -> u32 {
        let known = self.get(now, dst).map_or(u32::MAX, |(mtu, _)| mtu);
        //= rfc8201#section-4
        //# A node MUST NOT increase its estimate of the Path MTU in response to
        //# the contents of a Packet Too Big message.
        let mtu = mtu.max(if dst.is_ipv4() { MIN_V4 } else { MIN_V6 }).min(known);
        if !self.paths.contains_key(&dst) && self.paths.len() >= self.limit {
            self.evict();
        }
        self.paths.insert(dst, (mtu, now + self.timeout));
        mtu
    }

    /// Forgets what would be forgotten first.
    fn evict(&mut self) {
        let oldest = self.paths.iter().min_by_key(|(_, (_, until))| *until).map(|(dst, _)| *dst);
        if let Some(dst) = oldest {
            self.paths.remove(&dst);
        }
    }
}

/// What to try when a router says "too big" without saying how big: the next of the MTUs that links have
/// (RFC 1191, 7.1) below a packet of `len` bytes.
pub(crate) fn plateau_below(len: u16) -> u32 {
    const PLATEAUS: [u16; 10] = [32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];
    u32::from(PLATEAUS.into_iter().find(|p| *p < len).unwrap_or(68))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

    fn paths() -> PathMtus {
        PathMtus::new(&Config { paths: 2, ..Config::default() })
    }

    #[test]
    fn a_path_mtu_only_shrinks_until_it_is_forgotten() {
        let mut p = paths();
        assert_eq!(p.update(Instant::ZERO, V4, 1400), 1400);
        assert_eq!(p.update(Instant::ZERO, V4, 1500), 1400);
        let later = Instant::from_secs(600);
        assert_eq!(p.get(later, V4), None);
        assert_eq!(p.update(later, V4, 1450), 1450);
    }

    #[test]
    fn a_forged_tiny_mtu_stops_at_the_floor() {
        let mut p = paths();
        assert_eq!(p.update(Instant::ZERO, V4, 68), 552);
        assert_eq!(p.update(Instant::ZERO, V6, 0), 1280);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_oldest() {
        let mut p = paths();
        for n in 1..=3u8 {
            p.update(Instant::from_secs(u64::from(n)), IpAddr::from([192, 0, 2, n]), 1300);
        }
        let now = Instant::from_secs(4);
        assert_eq!((p.paths.len(), p.get(now, V4)), (2, None));
    }

    #[test]
    fn an_unnamed_mtu_is_guessed_from_the_plateaus() {
        assert_eq!((plateau_below(1500), plateau_below(1492), plateau_below(20)), (1492, 1006, 68));
    }
}
