//! The way out: route, fragment, find the neighbour.

use std::net::IpAddr;

use netdev::DropReason;
use skb::{Csum, Reason, SkBuff};
use time::Instant;
use wire::ethernet::{self, Mac};
use wire::ipv4;
use wire::ipv6::{self, FragmentHeader};
use wire::{checksum, ndisc};

use crate::dst::{Dst, IpFields, Resolved, addresses_sum, link_header, push_ip, push_link};
use crate::interface::Interface;
use crate::neighbour::{Heard, Key, Lookup, Solicit};
use crate::route::RouteResult;
use crate::{Inet, NetError, OutputMeta, OutputVerdict, TxQueue};

/// How a next hop is reached on its link.
enum LinkAddress {
    /// The link has none: bare IP packets.
    None,
    /// Known, until then.
    Mac(Mac, Mac, Instant),
    /// Being asked for.
    Asked,
}

impl Inet {
    /// Finds out everything that sending from `src` to `dst` needs. `Pending` if a neighbour has yet to answer;
    /// the question, if it had not been asked, is in `tx`.
    pub fn resolve(
        &mut self,
        now: Instant,
        dst: IpAddr,
        src: Option<IpAddr>,
        tx: &mut TxQueue,
    ) -> Result<Resolved, NetError> {
        let route = self.route_at(now, dst, src)?;
        let (link, valid_until) = match self.link_address(now, &route, tx)? {
            LinkAddress::None => (None, Instant::MAX),
            LinkAddress::Mac(from, to, until) => (Some(link_header(from, to, dst)), until),
            LinkAddress::Asked => return Ok(Resolved::Pending),
        };
        let path = self.paths.get(now, dst).map_or(Instant::MAX, |(_, until)| until);
        Ok(Resolved::Ready(Dst {
            ifindex: route.ifindex,
            src: route.src,
            dst,
            mtu: route.mtu,
            local: route.local,
            valid_until: valid_until.min(path),
            generation: self.generation,
            link,
            addresses_sum: addresses_sum(route.src, dst),
        }))
    }

    /// Sends a packet that begins with its transport header: routes it, fragments it if it is too large and may
    /// be, and hands it to `tx` or, while the next hop is being asked for, to the neighbour's queue.
    ///
    /// A packet with `skb.gso` is not measured against the MTU: whoever segments it has.
    pub fn output(&mut self, now: Instant, skb: SkBuff, meta: OutputMeta, tx: &mut TxQueue) -> OutputVerdict {
        // 1. Where to.
        let route = match self.route_at(now, meta.dst, Some(meta.src)) {
            Ok(route) => route,
            Err(e) => return OutputVerdict::Error(e),
        };
        // 2. In one piece or in several.
        let header = if meta.dst.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let fits = route.local || skb.gso.is_some() || skb.len() + header <= route.mtu as usize;
        if !fits && meta.df {
            return OutputVerdict::TooBig { mtu: route.mtu };
        }
        // IPv4's length counts its header, IPv6's does not.
        let counted = if meta.dst.is_ipv4() { header } else { 0 };
        if skb.len() > usize::from(u16::MAX) - counted && skb.gso.is_none() {
            return OutputVerdict::Error(NetError::MessageTooLong);
        }
        let packets = if fits { self.whole(skb, meta, &route) } else { self.fragment(skb, meta, &route) };
        let Some(packets) = packets else { return OutputVerdict::Error(NetError::MessageTooLong) };
        // 3. To this host, to the device, or to whoever waits for the neighbour.
        let mut verdict = OutputVerdict::Sent;
        for packet in packets {
            if route.local {
                return OutputVerdict::Local(packet);
            }
            match self.neighbour_output(now, &route, meta.dst, packet, tx) {
                Ok(true) => {}
                Ok(false) => verdict = OutputVerdict::Queued,
                Err(e) => return OutputVerdict::Error(e),
            }
        }
        verdict
    }

    /// Sends a packet that has its IP header already, from `src` to the next hop of `dst`.
    pub fn output_whole(
        &mut self,
        now: Instant,
        skb: SkBuff,
        (src, dst): (IpAddr, IpAddr),
        tx: &mut TxQueue,
    ) -> OutputVerdict {
        let route = match self.route_at(now, dst, Some(src)) {
            Ok(route) => route,
            Err(e) => return OutputVerdict::Error(e),
        };
        if route.local {
            return OutputVerdict::Local(skb);
        }
        if skb.len() > route.mtu as usize {
            return OutputVerdict::TooBig { mtu: route.mtu };
        }
        match self.neighbour_output(now, &route, dst, skb, tx) {
            Ok(true) => OutputVerdict::Sent,
            Ok(false) => OutputVerdict::Queued,
            Err(e) => OutputVerdict::Error(e),
        }
    }

    /// The packet with its IP header as this host itself hears it, when it is sent to many.
    pub fn local_copy(&mut self, skb: SkBuff, meta: OutputMeta) -> Option<SkBuff> {
        let route = self.route(meta.dst, Some(meta.src)).ok()?;
        self.whole(skb, meta, &route)?.pop()
    }

    /// The packet with its IP header.
    fn whole(&mut self, mut skb: SkBuff, meta: OutputMeta, route: &RouteResult) -> Option<Vec<SkBuff>> {
        // What cannot be fragmented needs no identification (RFC 6864, 4.1).
        let ident = match meta.dst.is_ipv4() && !meta.df {
            true => self.random.ident(route.src, meta.dst, meta.proto) as u16,
            false => 0,
        };
        let fields = IpFields { ident, ..fields(meta) };
        push_ip(&mut skb, (route.src, meta.dst), fields, addresses_sum(route.src, meta.dst)).ok()?;
        Some(vec![skb])
    }

    /// The packet as fragments with their IP headers. Payload is shared, not copied.
    fn fragment(&mut self, mut skb: SkBuff, meta: OutputMeta, route: &RouteResult) -> Option<Vec<SkBuff>> {
        finish_checksum(&mut skb);
        let ends = (route.src, meta.dst);
        let ident = self.random.ident(route.src, meta.dst, meta.proto);
        let v4 = meta.dst.is_ipv4();
        let headers = if v4 { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN };
        let room = (route.mtu as usize).checked_sub(headers)? & !7;
        let mut packets = Vec::with_capacity(skb.len() / room.max(8) + 1);
        let mut at = 0;
        while at < skb.len() && room > 0 {
            let mut part = skb.slice(at, room);
            let end = at + part.len();
            let (offset, more) = (u16::try_from(at).ok()?, end < skb.len());
            let mut f = IpFields { ident: ident as u16, more_fragments: more, offset, ..fields(meta) };
            if !v4 {
                let header = FragmentHeader { next_header: meta.proto, offset, more, ident };
                header.emit(part.push(ipv6::FRAGMENT_HEADER_LEN).ok()?);
                f.proto = ipv6::NEXT_FRAGMENT;
            }
            push_ip(&mut part, ends, f, addresses_sum(ends.0, ends.1)).ok()?;
            packets.push(part);
            at = end;
        }
        Some(packets).filter(|p| !p.is_empty())
    }

    /// Sends a packet with its IP header to the next hop; false if it waits there.
    fn neighbour_output(
        &mut self,
        now: Instant,
        route: &RouteResult,
        dst: IpAddr,
        mut skb: SkBuff,
        tx: &mut TxQueue,
    ) -> Result<bool, NetError> {
        match self.link_address(now, route, tx)? {
            LinkAddress::None => {}
            LinkAddress::Mac(from, to, _) => {
                let link = link_header(from, to, dst);
                push_link(&mut skb, &link).map_err(|_| NetError::MessageTooLong)?;
            }
            LinkAddress::Asked => {
                let key = (route.ifindex, route.next_hop);
                let dropped = self.neighbours.enqueue(key, dst, skb).unwrap_or(1);
                self.count(DropReason::NeighbourQueueFull, dropped);
                return Ok(false);
            }
        }
        tx.push((route.ifindex, skb));
        Ok(true)
    }

    fn link_address(
        &mut self,
        now: Instant,
        route: &RouteResult,
        tx: &mut TxQueue,
    ) -> Result<LinkAddress, NetError> {
        let interface = self.interfaces.get(route.ifindex).ok_or(NetError::NetworkUnreachable)?;
        let Some(mac) = interface.mac.filter(|_| !route.local) else { return Ok(LinkAddress::None) };
        if let Some(group) = group_address(interface, route.next_hop) {
            return Ok(LinkAddress::Mac(mac, group, Instant::MAX));
        }
        let key = (route.ifindex, route.next_hop);
        match self.neighbours.lookup(now, key) {
            Lookup::Known(to, until) => Ok(LinkAddress::Mac(mac, to, until)),
            Lookup::Asked { first } => {
                if first {
                    self.solicit(Solicit { key, mac: None, src: Some(route.src) }, tx);
                }
                Ok(LinkAddress::Asked)
            }
            Lookup::Full => Err(NetError::HostUnreachable),
        }
    }

    /// Asks for a neighbour.
    pub(crate) fn solicit(&self, ask: Solicit, tx: &mut TxQueue) {
        match ask.key.1 {
            IpAddr::V4(target) => self.arp_solicit(ask, target, tx),
            IpAddr::V6(target) => self.ndisc_solicit(ask, target, tx),
        }
    }

    /// A neighbour was heard: remembers it, and sends what waited for it.
    pub(crate) fn learn(
        &mut self,
        now: Instant,
        key: Key,
        mac: Option<Mac>,
        (how, create): (Heard, bool),
        tx: &mut TxQueue,
    ) {
        let learned = self.neighbours.heard(now, key, mac, how, create, &mut self.random);
        if learned.changed {
            self.generation += 1;
        }
        let ours = self.interfaces.get(key.0).and_then(|i| i.mac);
        let (Some(ours), Some(mac)) = (ours, mac) else { return };
        for mut skb in learned.released {
            match push_link(&mut skb, &link_header(ours, mac, key.1)) {
                Ok(()) => tx.push((key.0, skb)),
                Err(_) => self.count(DropReason::NoHeadroom, 1),
            }
        }
    }

    pub(crate) fn count(&self, reason: DropReason, n: u64) {
        for _ in 0..n {
            self.drops.count(reason);
        }
    }
}

/// The link-layer address of a next hop that is many (RFC 1112, 6.4; RFC 2464, 7).
fn group_address(interface: &Interface, next_hop: IpAddr) -> Option<Mac> {
    match next_hop {
        IpAddr::V4(a) if interface.is_broadcast(a) => Some(ethernet::BROADCAST),
        IpAddr::V4(a) if a.is_multicast() => {
            let [_, b, c, d] = a.octets();
            Some([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(a) if a.is_multicast() => Some(ndisc::group_mac(a)),
        _ => None,
    }
}

fn fields(meta: OutputMeta) -> IpFields {
    IpFields {
        proto: meta.proto,
        tos: meta.tos,
        hop_limit: meta.hop_limit,
        ident: 0,
        df: meta.df,
        more_fragments: false,
        offset: 0,
    }
}

/// A checksum left to the device must be finished before the packet is torn. Lent bytes that are summed
/// must not change any more, so they are copied.
fn finish_checksum(skb: &mut SkBuff) {
    let Csum::Partial { start, offset } = skb.csum else { return };
    skb.orphan(Reason::NoChecksum);
    let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
    let sum = checksum::finish(skb.checksum(start, skb.len().saturating_sub(start)));
    // 0 means "none" in UDP; both zeroes are equal (RFC 768).
    let sum = if sum == 0 { 0xffff } else { sum };
    if skb.may_pull(field + 2).is_some()
        && let Some(at) = skb.head_mut().get_mut(field..field + 2)
    {
        at.copy_from_slice(&sum.to_be_bytes());
    }
    skb.csum = Csum::None;
}

/// For messages that the network layer sends itself.
impl Inet {
    /// Sends a message of a protocol of this layer; what cannot be sent is dropped and counted. A message to
    /// this host goes through the loopback as any other.
    pub(crate) fn send_own(&mut self, now: Instant, skb: SkBuff, meta: OutputMeta, tx: &mut TxQueue) {
        match self.output(now, skb, meta, tx) {
            OutputVerdict::Sent | OutputVerdict::Queued => {}
            OutputVerdict::Local(packet) => match self.interfaces.loopback().map(|i| i.index) {
                Some(loopback) => tx.push((loopback, packet)),
                None => self.count(DropReason::NoRoute, 1),
            },
            OutputVerdict::TooBig { .. } => self.count(DropReason::TooBig, 1),
            OutputVerdict::Error(_) => self.count(DropReason::NoRoute, 1),
        }
    }
}
