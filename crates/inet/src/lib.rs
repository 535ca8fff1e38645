//! IPv4 and IPv6 hosts: addresses, routes, neighbours, fragments, ICMP, UDP's header. No transport state, no
//! sockets, no clock, no lock, no device.
//!
//! # Theory of operation
//!
//! Everything goes through one value, [`Inet`], which is called with packets and with the time, and answers
//! with *verdicts*. Packets that it makes by itself (ARP, neighbour discovery, echo replies, ICMP errors), and
//! those it had kept until a neighbour answered, are appended to the caller's `tx`.
//!
//! *Out.* A socket asks once, by [`Inet::resolve`], for a [`Dst`]: source, path MTU and a prebuilt template of
//! all headers below the transport. From then on [`Dst::push_headers`] costs a copy of the template and,
//! for IPv4, a header checksum; this crate is not entered at all. A `Dst` is good until its `valid_until`, or
//! until [`Inet::generation`] changes: routes, addresses, a path MTU, or a neighbour's link-layer address
//! have changed. Packets without a `Dst` go through [`Inet::output`], which routes, fragments, and queues
//! behind a neighbour that is still being asked for.
//!
//! *In.* [`Inet::input`] takes a packet from its link header on, checks what RFC 1122 and RFC 8200 ask a host
//! to check, reassembles, and either consumes the packet or hands it up: [`Delivered`] for a transport, or an
//! [`IcmpError`] about one. ICMP errors change nothing here by themselves: the transport first finds out
//! whether they quote something that is in flight (RFC 5927), then calls [`Inet::update_pmtu`].
//!
//! *Neighbours.* ARP and neighbour discovery are two spellings of one protocol and share the states of RFC
//! 4861 (see `neighbour.rs`). A transport that makes progress says so by [`Inet::confirm`], which keeps a
//! neighbour reachable without a packet.
//!
//! # What is bounded, and by what
//! Neighbours, packets behind each of them, datagrams in reassembly, known paths and ICMP errors per second:
//! see [`Config`]. Tables are ordered maps, so neither chosen addresses nor chance decide what they cost.
//!
//! # What a host here does not do
//! It does not forward. It does not detect duplicate addresses (RFC 4862, 5.4), nor configure itself from
//! router advertisements, which are ignored; addresses and routes are the caller's. Of multicast it hears
//! what every host must (all-nodes, solicited-node) and what was joined, which it reports (`multicast.rs`), and
//! sends to any group. Scoped IPv6 addresses carry no
//! zone: a link-local destination leaves through the first interface that has a link-local prefix. ICMP
//! redirects and source quench are ignored (RFC 6633), and so are IPv4 source routes (RFC 7126).

mod arp;
mod dst;
mod icmp;
mod interface;
mod ip_input;
mod ip_output;
mod multicast;
mod ndisc;
mod neighbour;
mod pmtu;
mod random;
mod raw;
mod reassembly;
mod route;
mod udp;
mod verdict;

use std::net::IpAddr;

use netdev::{DropCounters, DropReason};
use skb::SkBuff;
use time::{Duration, Instant};
use wire::ethernet::Mac;

pub use dst::{Dst, Resolved, pseudo_sum};
pub use interface::IfIndex;
pub use route::{Route, RouteResult};
pub use udp::{finish_udp_checksum, udp_header};
pub use verdict::{
    Delivered, IcmpError, IcmpKind, InputVerdict, NetError, OutputMeta, OutputVerdict, Quoted,
    verify_internet_checksum, verify_transport_checksum,
};

use interface::Interfaces;
use neighbour::Neighbours;
use pmtu::PathMtus;
use random::Random;
use reassembly::Reassembly;
use route::Routes;

/// Packets ready for a device, link header on.
pub type TxQueue = Vec<(IfIndex, SkBuff)>;

/// Limits, each with its default's reason.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of everything drawn at random here. Default: all zero, for tests.
    pub seed: [u8; 16],
    /// Neighbours known at once. Default 1024, Linux's `gc_thresh3`.
    pub neighbours: usize,
    /// Packets kept per unresolved neighbour. Default 64: a first burst to a new neighbour.
    pub neighbour_queue_packets: usize,
    /// Bytes kept per unresolved neighbour. Default 256 KiB, so that a few large packets fit (Linux's
    /// `unres_qlen_bytes` is 212992).
    pub neighbour_queue_bytes: usize,
    /// Bytes of fragments kept. Default 4 MiB, Linux's `ipfrag_high_thresh`.
    pub reassembly_bytes: usize,
    /// How long a datagram's fragments are waited for. Default 30 s, Linux's `ipfrag_time`; RFC 8200 says 60 s
    /// for IPv6, RFC 1122 between 60 and 120 s for IPv4, both from a time of slower paths.
    pub reassembly_timeout: Duration,
    /// Paths with an MTU of their own. Default 1024.
    pub paths: usize,
    /// How long a reduced path MTU is believed. Default 10 min (RFC 1191, 6.3; RFC 8201, 5.3).
    pub path_mtu_timeout: Duration,
    /// ICMP errors sent per second. Default 1000, Linux's `icmp_msgs_per_sec`.
    pub icmp_errors_per_second: u32,
    /// ICMP errors sent at once. Default 50, Linux's `icmp_msgs_burst`.
    pub icmp_errors_burst: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: [0; 16],
            neighbours: 1024,
            neighbour_queue_packets: 64,
            neighbour_queue_bytes: 256 << 10,
            reassembly_bytes: 4 << 20,
            reassembly_timeout: Duration::from_secs(30),
            paths: 1024,
            path_mtu_timeout: Duration::from_secs(600),
            icmp_errors_per_second: 1000,
            icmp_errors_burst: 50,
        }
    }
}

/// The network layer of one stack.
#[derive(Debug)]
pub struct Inet {
    interfaces: Interfaces,
    routes: Routes,
    neighbours: Neighbours,
    paths: PathMtus,
    reassembly: Reassembly,
    errors: icmp::RateLimit,
    random: Random,
    generation: u64,
    drops: DropCounters,
    raw: raw::RawCopies,
    reports: multicast::Reports,
}

impl Inet {
    /// A network layer without interfaces.
    pub fn new(config: Config) -> Self {
        Self {
            interfaces: Interfaces::default(),
            routes: Routes::default(),
            neighbours: Neighbours::new(&config),
            paths: PathMtus::new(&config),
            reassembly: Reassembly::new(&config),
            errors: icmp::RateLimit::new(&config),
            random: Random::new(config.seed),
            generation: 0,
            drops: DropCounters::default(),
            raw: raw::RawCopies::default(),
            reports: multicast::Reports::default(),
        }
    }

    /// Adds an interface, or replaces the facts of one. `mac` is `None` where frames are bare IP packets; a
    /// loopback interface is the way to this host's own addresses. `mtu` counts bytes from the IP header on.
    pub fn add_interface(&mut self, index: IfIndex, mac: Option<Mac>, mtu: u32, loopback: bool) {
        self.interfaces.add(index, mac, mtu, loopback);
        self.generation += 1;
    }

    /// Changes an interface's MTU, in bytes from the IP header on.
    pub fn set_mtu(&mut self, index: IfIndex, mtu: u32) {
        if let Some(i) = self.interfaces.get_mut(index) {
            i.mtu = mtu;
            self.generation += 1;
        }
    }

    /// Removes an interface with its addresses, routes and neighbours.
    pub fn remove_interface(&mut self, index: IfIndex) {
        self.interfaces.remove(index);
        self.routes.remove_interface(index);
        self.neighbours.remove_interface(index);
        self.generation += 1;
    }

    /// Gives an interface an address. Its network of `prefix` bits is then on the link.
    pub fn add_address(&mut self, index: IfIndex, address: IpAddr, prefix: u8) {
        if let Some(i) = self.interfaces.get_mut(index) {
            i.add_address(address, prefix);
            self.routes.add(Route { dst: address, prefix, gateway: None, ifindex: index, metric: 0 });
            self.generation += 1;
        }
    }

    /// Takes an address away, and its network if no other address is in it. Whether it was there.
    pub fn remove_address(&mut self, index: IfIndex, address: IpAddr) -> bool {
        let Some(i) = self.interfaces.get_mut(index) else { return false };
        let Some(prefix) = i.remove_address(address) else { return false };
        if !i.has_network(address, prefix) {
            self.routes.remove(&Route { dst: address, prefix, gateway: None, ifindex: index, metric: 0 });
        }
        self.generation += 1;
        true
    }

    /// Adds a route. One with the same destination, prefix, interface and metric is replaced.
    pub fn add_route(&mut self, route: Route) {
        self.routes.add(route);
        self.generation += 1;
    }

    /// Removes a route; whether it was there.
    pub fn remove_route(&mut self, route: &Route) -> bool {
        self.generation += 1;
        self.routes.remove(route)
    }

    /// All addresses: interface, address, prefix length.
    pub fn addresses(&self) -> impl Iterator<Item = (IfIndex, IpAddr, u8)> + '_ {
        self.interfaces.addresses()
    }

    /// Whether packets to `address` are for this host. All of 127/8 is, once the loopback has it.
    pub fn is_local(&self, address: IpAddr) -> bool {
        self.interfaces.is_local(address)
    }

    /// Changes whenever a cached [`Dst`] may have become wrong.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A transport made progress towards `dst` (RFC 4861, 7.3.1): its next hop is alive.
    pub fn confirm(&mut self, now: Instant, dst: IpAddr) {
        if let Ok(route) = self.route(dst, None) {
            self.neighbours.confirm(now, (route.ifindex, route.next_hop), &mut self.random);
        }
    }

    /// A validated ICMP message says that packets to `dst` may have `mtu` bytes at most. Returns the path MTU
    /// that now holds: never more than before, never less than 552 (IPv4) or 1280 (IPv6).
    pub fn update_pmtu(&mut self, now: Instant, dst: IpAddr, mtu: u32) -> u32 {
        let Ok(route) = self.route_at(now, dst, None) else { return mtu };
        if mtu >= route.mtu || route.local {
            return route.mtu;
        }
        let reduced = self.paths.update(now, dst, mtu).min(route.mtu);
        if reduced < route.mtu {
            self.generation += 1;
        }
        reduced
    }

    /// Packets dropped in here after they were accepted, or made here and not sent. Those that a verdict says are
    /// dropped are not among them.
    pub fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// When [`on_timeout`](Self::on_timeout) has something to do.
    pub fn next_timeout(&self) -> Option<Instant> {
        let timers =
            [self.neighbours.next_timeout(), self.reassembly.next_timeout(), self.reports.next_timeout()];
        timers.into_iter().flatten().min()
    }

    /// Repeats what was not answered and gives up what was repeated enough. Returns the destinations of
    /// packets that were dropped because no neighbour answered, each once.
    pub fn on_timeout(&mut self, now: Instant, tx: &mut TxQueue) -> Vec<IpAddr> {
        for first in self.reassembly.expire(now) {
            self.count(DropReason::ReassemblyTimeout, 1);
            if let Some(first) = first {
                self.send_reassembly_timeout(now, &first, tx);
            }
        }
        self.send_reports(now, tx);
        let expired = self.neighbours.expire(now);
        self.count(DropReason::HostUnreachable, expired.dropped);
        if expired.forgotten {
            self.generation += 1;
        }
        for ask in expired.solicit {
            self.solicit(ask, tx);
        }
        expired.unreachable
    }
}

#[cfg(test)]
mod tests;
