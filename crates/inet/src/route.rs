//! Routes, and the decision where a packet goes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use time::Instant;

use crate::interface::{IfIndex, Interface};
use crate::{Inet, NetError};

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination network; bits beyond the prefix do not count.
    pub dst: IpAddr,
    /// Length of its prefix in bits; more than an address has means all of them.
    pub prefix: u8,
    /// Next hop; `None` for a network on the link.
    pub gateway: Option<IpAddr>,
    /// Interface to leave through.
    pub ifindex: IfIndex,
    /// Of routes to one network the smallest wins.
    pub metric: u32,
}

/// Where packets to a destination go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteResult {
    /// Interface to leave through; the loopback for this host's own addresses.
    pub ifindex: IfIndex,
    /// Source address.
    pub src: IpAddr,
    /// The neighbour to hand packets to: the destination itself or a gateway.
    pub next_hop: IpAddr,
    /// Path MTU in bytes, IP header included.
    pub mtu: u32,
    /// Whether the destination is this host.
    pub local: bool,
}

/// Routes, longest prefix first, then smallest metric. A host has few, so they are searched in order.
#[derive(Debug, Default)]
pub(crate) struct Routes(Vec<Route>);

impl Routes {
    pub(crate) fn add(&mut self, mut route: Route) {
        route.prefix = route.prefix.min(bits(route.dst));
        route.dst = network(route.dst, route.prefix);
        let key = |r: &Route| (r.dst, r.prefix, r.ifindex, r.metric);
        self.0.retain(|r| key(r) != key(&route));
        self.0.push(route);
        self.0.sort_by_key(|r| (u8::MAX - r.prefix, r.metric));
    }

    pub(crate) fn remove(&mut self, route: &Route) -> bool {
        let dst = network(route.dst, route.prefix);
        let before = self.0.len();
        self.0.retain(|r| *r != Route { dst, ..*route });
        before != self.0.len()
    }

    pub(crate) fn remove_interface(&mut self, index: IfIndex) {
        self.0.retain(|r| r.ifindex != index);
    }

    fn matching(&self, dst: IpAddr) -> impl Iterator<Item = &Route> {
        self.0.iter().filter(move |r| contains(r.dst, r.prefix, dst))
    }
}

impl Inet {
    /// Where packets from `src` to `dst` go. Without `src` one is chosen. A path MTU that was learned is
    /// applied even if it is about to expire; [`Inet::resolve`] is exact.
    pub fn route(&self, dst: IpAddr, src: Option<IpAddr>) -> Result<RouteResult, NetError> {
        self.route_at(Instant::ZERO, dst, src)
    }

    pub(crate) fn route_at(
        &self,
        now: Instant,
        dst: IpAddr,
        src: Option<IpAddr>,
    ) -> Result<RouteResult, NetError> {
        let src = src.filter(|s| !s.is_unspecified());
        if dst.is_unspecified() {
            return Err(NetError::InvalidDestination);
        }
        if src.is_some_and(|s| s.is_ipv4() != dst.is_ipv4() || !self.is_local(s)) {
            return Err(NetError::AddressNotAvailable);
        }
        if self.is_local(dst) {
            let loopback = self.interfaces.loopback().ok_or(NetError::NetworkUnreachable)?;
            let src = src.unwrap_or(dst);
            return Ok(RouteResult {
                ifindex: loopback.index,
                src,
                next_hop: dst,
                mtu: loopback.mtu,
                local: true,
            });
        }
        let (interface, next_hop) = self.way_to(dst, src)?;
        // A packet from 127/8 must not leave the host (RFC 1122, 3.2.1.3(g)).
        if src.is_some_and(|s| s.is_loopback()) {
            return Err(NetError::AddressNotAvailable);
        }
        let src = match src {
            Some(src) => src,
            None => self.choose_source(interface, dst).ok_or(NetError::AddressNotAvailable)?,
        };
        let mtu = self.paths.get(now, dst).map_or(interface.mtu, |(mtu, _)| mtu.min(interface.mtu));
        Ok(RouteResult { ifindex: interface.index, src, next_hop, mtu, local: false })
    }

    /// Interface and next hop by the routes. Groups and the limited broadcast have no gateway, and need no
    /// route: without one on the link they leave through the interface of the source, or the first that could.
    fn way_to(&self, dst: IpAddr, src: Option<IpAddr>) -> Result<(&Interface, IpAddr), NetError> {
        let many = is_group(dst);
        for route in self.routes.matching(dst).filter(|r| !many || r.gateway.is_none()) {
            if let Some(interface) = self.interfaces.get(route.ifindex).filter(|i| !i.loopback) {
                return Ok((interface, route.gateway.unwrap_or(dst)));
            }
        }
        if !many {
            return Err(NetError::NetworkUnreachable);
        }
        let could = |i: &&Interface| !i.loopback && i.source_for(dst).is_some();
        let of_source = |i: &&Interface| src.is_some_and(|s| i.has_address(s));
        let interface = self.interfaces.iter().filter(could).find(of_source);
        let interface = interface.or_else(|| self.interfaces.iter().find(could));
        Ok((interface.ok_or(NetError::NetworkUnreachable)?, dst))
    }

    /// An address of the interface, or else of another one: a host answers to all of its addresses
    /// everywhere (the weak model of RFC 1122, 3.3.4.2).
    fn choose_source(&self, interface: &Interface, dst: IpAddr) -> Option<IpAddr> {
        let others = || self.interfaces.iter().filter(|i| !i.loopback).find_map(|i| i.source_for(dst));
        interface.source_for(dst).or_else(others)
    }

    /// Whether `address` is on the link of an interface.
    pub(crate) fn on_link(&self, index: IfIndex, address: IpAddr) -> bool {
        self.routes.matching(address).next().is_some_and(|r| r.gateway.is_none() && r.ifindex == index)
    }
}

/// Whether `dst` is many: a group, or the limited broadcast.
pub(crate) fn is_group(dst: IpAddr) -> bool {
    dst.is_multicast() || dst == IpAddr::V4(Ipv4Addr::BROADCAST)
}

fn bits(a: IpAddr) -> u8 {
    if a.is_ipv4() { 32 } else { 128 }
}

/// The address as a number that begins at the highest bit.
fn key(a: IpAddr) -> u128 {
    match a {
        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn mask(prefix: u8) -> u128 {
    !u128::MAX.checked_shr(u32::from(prefix)).unwrap_or(0)
}

fn network(a: IpAddr, prefix: u8) -> IpAddr {
    match a {
        IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & (mask(prefix) >> 96) as u32)),
        IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask(prefix))),
    }
}

/// Whether `address` is in the network of `prefix` bits that `of` is in.
pub(crate) fn contains(of: IpAddr, prefix: u8, address: IpAddr) -> bool {
    of.is_ipv4() == address.is_ipv4() && (key(of) ^ key(address)) & mask(prefix.min(bits(of))) == 0
}

/// How many leading bits two addresses of one family share.
pub(crate) fn common_prefix(a: IpAddr, b: IpAddr) -> u32 {
    (key(a) ^ key(b)).leading_zeros()
}
