//! The way in, top to bottom: link header, IP header, is it for us, fragments, and what it is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netdev::DropReason;
use skb::SkBuff;
use time::Instant;
use wire::ethernet::{self, EthernetHeader, Mac, ethertype};
use wire::ipv4::{self, Ipv4Header};
use wire::ipv6::{self, Chain, FragmentHeader, Ipv6Header};
use wire::{WireError, proto};

use crate::reassembly::{Inserted, Place};
use crate::verdict::Origin;
use crate::{Delivered, IfIndex, Inet, InputVerdict, TxQueue};

/// Extension headers that are looked at, in bytes. Longer chains serve nobody (RFC 8504, 5.3, allows a limit).
const MAX_EXTENSIONS: usize = 1024;

/// What the link says of a packet.
#[derive(Clone, Copy)]
struct Link {
    index: IfIndex,
    /// The frame's sender.
    src: Option<Mac>,
    /// The frame was for many.
    to_many: bool,
}

impl Inet {
    /// A packet arrived on `index`, from its link header on. A packet may stand for several (`skb.gso`), and its
    /// transport checksum is left to its transport ([`verify_transport_checksum`](crate::verify_transport_checksum)).
    pub fn input(&mut self, now: Instant, index: IfIndex, mut skb: SkBuff, tx: &mut TxQueue) -> InputVerdict {
        let verdict = match self.link_input(index, &mut skb) {
            Ok((link, ethertype::IPV4)) => self.ipv4_input(now, link, skb, tx),
            Ok((link, ethertype::IPV6)) => self.ipv6_input(now, link, skb, tx),
            Ok((_, ethertype::ARP)) => Ok(self.arp_input(now, index, &mut skb, tx)),
            Ok(_) => Err(DropReason::NoHandler),
            Err(reason) => Err(reason),
        };
        verdict.unwrap_or_else(InputVerdict::Drop)
    }

    /// Takes the link header off; what follows it.
    fn link_input(&self, index: IfIndex, skb: &mut SkBuff) -> Result<(Link, u16), DropReason> {
        let interface = self.interfaces.get(index).ok_or(DropReason::NoInterface)?;
        skb.mac_len = 0;
        let Some(mac) = interface.mac else {
            let first = skb.may_pull(1).and_then(|b| b.first().copied()).ok_or(DropReason::TooShort)?;
            let link = Link { index, src: None, to_many: false };
            return match first >> 4 {
                4 => Ok((link, ethertype::IPV4)),
                6 => Ok((link, ethertype::IPV6)),
                _ => Err(DropReason::BadVersion),
            };
        };
        let header = skb.may_pull(ethernet::HEADER_LEN).and_then(|b| EthernetHeader::parse(b).ok());
        let header = header.ok_or(DropReason::TooShort)?;
        skb.advance(ethernet::HEADER_LEN);
        let to_many = ethernet::is_group(header.dst);
        if header.dst != mac && !to_many {
            return Err(DropReason::NotForUs);
        }
        Ok((Link { index, src: Some(header.src), to_many }, header.ethertype))
    }

    fn ipv4_input(
        &mut self,
        now: Instant,
        link: Link,
        mut skb: SkBuff,
        tx: &mut TxQueue,
    ) -> Result<InputVerdict, DropReason> {
        // 1. The header, its checksum, its options.
        let first = skb.may_pull(ipv4::HEADER_LEN).and_then(|b| b.first().copied());
        let header_len = Ipv4Header::len_of(first.ok_or(DropReason::TooShort)?);
        let bytes = skb.may_pull(header_len.max(ipv4::HEADER_LEN)).ok_or(DropReason::TooShort)?;
        let (ip, header_len) = Ipv4Header::parse(bytes).map_err(reason)?;
        let options = bytes.get(ipv4::HEADER_LEN..header_len).unwrap_or(&[]);
        ipv4::check_options(options).map_err(|_| DropReason::BadOptions)?;
        // 2. As long as it says.
        trim(&mut skb, usize::from(ip.total_len))?;
        skb.advance(header_len);
        // 3. From somebody, for us.
        let to_many = self.accept(link, IpAddr::V4(ip.src), IpAddr::V4(ip.dst))? || link.to_many;
        if ip.src.is_unspecified() {
            return Err(DropReason::Martian);
        }
        let d = Delivered {
            src: IpAddr::V4(ip.src),
            dst: IpAddr::V4(ip.dst),
            proto: ip.proto,
            skb,
            hop_limit: ip.ttl,
            tos: ip.tos,
            ifindex: link.index,
            origin: Origin { ident: ip.ident, dont_fragment: ip.dont_fragment, to_many, extended: false },
        };
        // 4. Whole, or one piece more.
        if ip.is_fragment() {
            let place = Place {
                ident: u32::from(ip.ident),
                offset: ip.fragment_offset,
                more: ip.more_fragments,
                proto: ip.proto,
            };
            return match self.reassemble(now, d, place)? {
                Some(whole) => self.deliver(now, whole, link, tx),
                None => Ok(InputVerdict::Consumed),
            };
        }
        self.deliver(now, d, link, tx)
    }

    fn ipv6_input(
        &mut self,
        now: Instant,
        link: Link,
        mut skb: SkBuff,
        tx: &mut TxQueue,
    ) -> Result<InputVerdict, DropReason> {
        let bytes = skb.may_pull(ipv6::HEADER_LEN).ok_or(DropReason::TooShort)?;
        let ip = Ipv6Header::parse(bytes).map_err(reason)?;
        let total = match ip.payload_len {
            0 if skb.gso.is_some() => 0,
            len => usize::from(len) + ipv6::HEADER_LEN,
        };
        trim(&mut skb, total)?;
        skb.advance(ipv6::HEADER_LEN);
        let to_many = self.accept(link, IpAddr::V6(ip.src), IpAddr::V6(ip.dst))? || link.to_many;
        let mut d = Delivered {
            src: IpAddr::V6(ip.src),
            dst: IpAddr::V6(ip.dst),
            proto: ip.next_header,
            skb,
            hop_limit: ip.hop_limit,
            tos: ip.traffic_class,
            ifindex: link.index,
            origin: Origin { to_many, ..Origin::default() },
        };
        let Some(fragment) = step_over_extensions(&mut d)? else { return self.deliver(now, d, link, tx) };
        let place = Place {
            ident: fragment.ident,
            offset: fragment.offset,
            more: fragment.more,
            proto: fragment.next_header,
        };
        // A fragment that is the whole is nobody else's business (RFC 6946).
        let mut whole = match (place.offset, place.more) {
            (0, false) => {
                d.proto = place.proto;
                d
            }
            _ => match self.reassemble(now, d, place)? {
                Some(whole) => whole,
                None => return Ok(InputVerdict::Consumed),
            },
        };
        match step_over_extensions(&mut whole)? {
            None => self.deliver(now, whole, link, tx),
            Some(_) => Err(DropReason::BadFragment),
        }
    }

    /// Whether a packet is for this host: `Ok(true)` if for others too.
    fn accept(&self, link: Link, src: IpAddr, dst: IpAddr) -> Result<bool, DropReason> {
        let interface = self.interfaces.get(link.index).ok_or(DropReason::NoInterface)?;
        if !interface.loopback {
            let broadcast = matches!(src, IpAddr::V4(s) if interface.is_broadcast(s));
            let ours = self.is_local(src);
            if broadcast || ours || is_martian(src) || dst.is_loopback() || is_martian_destination(dst) {
                return Err(DropReason::Martian);
            }
        }
        if self.is_local(dst) {
            //= rfc1122#section-3.3.6
            //# When a host receives a datagram with a link-layer broadcast, ... it SHOULD silently discard
            //# [it] ... unless it specifies an IP multicast or broadcast destination address.
            return if link.to_many { Err(DropReason::NotForUs) } else { Ok(false) };
        }
        let heard = |i: &crate::interface::Interface| {
            matches!(dst, IpAddr::V4(d) if i.is_broadcast(d)) || i.hears(dst)
        };
        // What this host sends to many comes back to it through the loopback, wherever it was sent.
        let for_us = heard(interface) || (interface.loopback && self.interfaces.iter().any(heard));
        if for_us { Ok(true) } else { Err(DropReason::NotForUs) }
    }

    /// Adds a fragment; the datagram, if that completed it.
    fn reassemble(
        &mut self,
        now: Instant,
        d: Delivered,
        place: Place,
    ) -> Result<Option<Delivered>, DropReason> {
        let inserted = self.reassembly.insert(now, d, place);
        let evicted = std::mem::take(&mut self.reassembly.evicted);
        self.count(DropReason::ReassemblyFull, evicted);
        match inserted {
            Inserted::Kept => Ok(None),
            Inserted::Complete(whole) => Ok(Some(*whole)),
            Inserted::Refused(reason) => Err(reason),
        }
    }

    /// To this layer's own protocols, or up.
    fn deliver(
        &mut self,
        now: Instant,
        d: Delivered,
        link: Link,
        tx: &mut TxQueue,
    ) -> Result<InputVerdict, DropReason> {
        if !matches!(d.proto, proto::ICMP | proto::ICMPV6) {
            self.copy_for_raw(&d);
        }
        match (d.proto, d.src.is_ipv4()) {
            (proto::IGMP, true) => Ok(self.igmp_input(now, d)),
            (proto::ICMP, true) => Ok(self.icmp_input(now, d, tx)),
            (proto::ICMPV6, false) => Ok(self.icmpv6_input(now, d, link.src, tx)),
            // Nobody is nobody's peer, and only discovery may ask as nobody.
            _ if d.src.is_unspecified() => Err(DropReason::Martian),
            // RFC 1122, 4.2.3.10: a connection has two ends.
            (proto::TCP, _) if d.origin.to_many => Err(DropReason::NotForUs),
            _ => Ok(InputVerdict::Deliver(d)),
        }
    }
}

/// Cuts link padding off. A packet that says 0 is as long as it is, which only one that stands for several
/// may say.
fn trim(skb: &mut SkBuff, total: usize) -> Result<(), DropReason> {
    match total {
        0 if skb.gso.is_some() => Ok(()),
        0 => Err(DropReason::Malformed),
        n if n > skb.len() => Err(DropReason::TooShort),
        n => {
            skb.trim(n);
            Ok(())
        }
    }
}

/// Takes extension headers off, up to the transport's or, with it, a fragment header.
fn step_over_extensions(d: &mut Delivered) -> Result<Option<FragmentHeader>, DropReason> {
    if !ipv6::is_extension(d.proto) {
        return Ok(None);
    }
    let mut buffer = [0; MAX_EXTENSIONS];
    let (front, _) = buffer.split_at_mut(d.skb.len().min(MAX_EXTENSIONS));
    d.skb.copy_bits(0, front);
    let chain = ipv6::walk(d.proto, front).map_err(|e| match e {
        ipv6::ChainError::Truncated => DropReason::Malformed,
        _ => DropReason::BadOptions,
    })?;
    d.origin.extended = true;
    let (len, fragment) = match chain {
        Chain::Upper { proto, len } => {
            d.proto = proto;
            (len, None)
        }
        Chain::Fragment { header, len } => (len, Some(header)),
    };
    d.skb.advance(len);
    Ok(fragment)
}

/// Addresses that no packet on a link may come from (RFC 1122, 3.2.1.3; RFC 4291, 2.5.2, 2.5.3, 2.7). IPv4-mapped
/// ones would be taken for IPv4 by sockets.
fn is_martian(src: IpAddr) -> bool {
    match src {
        IpAddr::V4(a) => {
            let [first, ..] = a.octets();
            (first == 0 && a != Ipv4Addr::UNSPECIFIED) || first >= 224 || a.is_loopback()
        }
        IpAddr::V6(a) => a.is_multicast() || a.is_loopback() || a.to_ipv4_mapped().is_some(),
    }
}

fn is_martian_destination(dst: IpAddr) -> bool {
    match dst {
        IpAddr::V4(a) => a.is_unspecified(),
        IpAddr::V6(a) => a == Ipv6Addr::UNSPECIFIED || a.to_ipv4_mapped().is_some(),
    }
}

fn reason(e: WireError) -> DropReason {
    match e {
        WireError::TooShort => DropReason::TooShort,
        WireError::BadLength => DropReason::Malformed,
        WireError::WrongKind => DropReason::BadVersion,
        WireError::BadChecksum => DropReason::BadChecksum,
    }
}
