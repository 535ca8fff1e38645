//! Interfaces and their addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::ethernet::Mac;

use crate::route::{common_prefix, contains};

/// Number of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfIndex(pub u32);

/// What the network layer knows of an interface.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) index: IfIndex,
    /// This station; `None` where frames are bare IP packets.
    pub(crate) mac: Option<Mac>,
    pub(crate) mtu: u32,
    pub(crate) loopback: bool,
    addresses: Vec<(IpAddr, u8)>,
    /// Groups that were joined, and how often.
    groups: Vec<(IpAddr, u32)>,
}

impl Interface {
    /// Joins a group; true if nobody had before.
    pub(crate) fn join(&mut self, group: IpAddr) -> bool {
        match self.groups.iter_mut().find(|(g, _)| *g == group) {
            Some((_, n)) => {
                *n += 1;
                false
            }
            None => {
                self.groups.push((group, 1));
                true
            }
        }
    }

    /// Takes one join back; true if it was the last.
    pub(crate) fn leave(&mut self, group: IpAddr) -> bool {
        let Some(at) = self.groups.iter().position(|(g, _)| *g == group) else { return false };
        let Some((_, n)) = self.groups.get_mut(at) else { return false };
        *n -= 1;
        let last = *n == 0;
        if last {
            self.groups.swap_remove(at);
        }
        last
    }

    /// The groups that were joined.
    pub(crate) fn groups(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.groups.iter().map(|(g, _)| *g)
    }

    pub(crate) fn add_address(&mut self, address: IpAddr, prefix: u8) {
        self.remove_address(address);
        self.addresses.push((address, prefix));
    }

    pub(crate) fn remove_address(&mut self, address: IpAddr) -> Option<u8> {
        let at = self.addresses.iter().position(|(a, _)| *a == address)?;
        Some(self.addresses.remove(at).1)
    }

    pub(crate) fn has_network(&self, address: IpAddr, prefix: u8) -> bool {
        self.addresses.iter().any(|(a, p)| *p == prefix && contains(address, prefix, *a))
    }

    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let in_loopback = |a, p| self.loopback && address.is_ipv4() && contains(a, p, address);
        self.addresses.iter().any(|(a, p)| *a == address || in_loopback(*a, *p))
    }

    /// Whether `address` means every host of a network of this interface (RFC 919).
    pub(crate) fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        let directed = |(a, prefix): &(IpAddr, u8)| match a {
            // A /31 has no broadcast address (RFC 3021).
            IpAddr::V4(a) if *prefix < 31 => {
                let host = u32::MAX.checked_shr(u32::from(*prefix)).unwrap_or(0);
                address.to_bits() == a.to_bits() | host
            }
            _ => false,
        };
        address.is_broadcast() || (!self.loopback && self.addresses.iter().any(directed))
    }

    /// Whether this interface hears `group`: what was joined, and what every host must (RFC 1112, 4;
    /// RFC 4291, 2.8).
    pub(crate) fn hears(&self, group: IpAddr) -> bool {
        self.groups.iter().any(|(g, _)| *g == group) || self.must_hear(group)
    }

    fn must_hear(&self, group: IpAddr) -> bool {
        match group {
            IpAddr::V4(g) => g == Ipv4Addr::new(224, 0, 0, 1),
            IpAddr::V6(g) => {
                let solicited =
                    |a: &IpAddr| matches!(a, IpAddr::V6(a) if wire::ndisc::solicited_node(*a) == g);
                g == ALL_NODES || g == ALL_NODES_HERE || self.addresses.iter().any(|(a, _)| solicited(a))
            }
        }
    }

    /// The best of this interface's addresses to speak to `dst` from: one of its scope, then the one that
    /// shares most with it (RFC 6724, 5, rules 2 and 8).
    pub(crate) fn source_for(&self, dst: IpAddr) -> Option<IpAddr> {
        let score = |a: IpAddr| (is_link_local(a) == is_link_local(dst), common_prefix(a, dst));
        let same_family = self.addresses.iter().map(|(a, _)| *a).filter(|a| a.is_ipv4() == dst.is_ipv4());
        // The first of equals, so that the order of configuration decides.
        same_family.reduce(|best, a| if score(a) > score(best) { a } else { best })
    }
}

/// ff02::1 and ff01::1.
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_HERE: Ipv6Addr = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1);

pub(crate) fn is_link_local(a: IpAddr) -> bool {
    match a {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.segments()[0] & 0xffc0 == 0xfe80 || a.segments()[0] & 0xff0f == 0xff02,
    }
}

/// All interfaces, in the order they were added. There are few.
#[derive(Debug, Default)]
pub(crate) struct Interfaces(Vec<Interface>);

impl Interfaces {
    pub(crate) fn add(&mut self, index: IfIndex, mac: Option<Mac>, mtu: u32, loopback: bool) {
        match self.get_mut(index) {
            Some(i) => (i.mac, i.mtu, i.loopback) = (mac, mtu, loopback),
            None => self.0.push(Interface {
                index,
                mac,
                mtu,
                loopback,
                addresses: Vec::new(),
                groups: Vec::new(),
            }),
        }
    }

    pub(crate) fn remove(&mut self, index: IfIndex) {
        self.0.retain(|i| i.index != index);
    }

    pub(crate) fn get(&self, index: IfIndex) -> Option<&Interface> {
        self.0.iter().find(|i| i.index == index)
    }

    pub(crate) fn get_mut(&mut self, index: IfIndex) -> Option<&mut Interface> {
        self.0.iter_mut().find(|i| i.index == index)
    }

    pub(crate) fn loopback(&self) -> Option<&Interface> {
        self.0.iter().find(|i| i.loopback)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Interface> {
        self.0.iter()
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = (IfIndex, IpAddr, u8)> + '_ {
        self.0.iter().flat_map(|i| i.addresses.iter().map(|(a, p)| (i.index, *a, *p)))
    }

    pub(crate) fn is_local(&self, address: IpAddr) -> bool {
        self.0.iter().any(|i| i.has_address(address))
    }
}
