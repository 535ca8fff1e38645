//! Destinations: what a socket keeps so that sending asks nobody.

use std::net::IpAddr;

use skb::{NoRoom, SkBuff};
use time::Instant;
use wire::checksum;
use wire::ethernet::{self, EthernetHeader, Mac, ethertype};
use wire::ipv4::{self, Ipv4Header};
use wire::ipv6::{self, Ipv6Header};

use crate::IfIndex;

/// What [`Inet::resolve`](crate::Inet::resolve) found.
#[derive(Debug)]
#[must_use]
pub enum Resolved {
    /// Everything is known.
    Ready(Dst),
    /// The next hop's link-layer address is being asked for. Packets given to
    /// [`Inet::output`](crate::Inet::output) meanwhile wait for the answer.
    Pending,
}

/// Everything that sending to a destination needs, with the headers below the transport prepared.
#[derive(Clone, Debug)]
pub struct Dst {
    /// Interface to leave through.
    pub ifindex: IfIndex,
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Path MTU in bytes, IP header included.
    pub mtu: u32,
    /// Whether the destination is this host.
    pub local: bool,
    /// When to resolve again, so that the next hop is probed in time and a path MTU may grow.
    pub valid_until: Instant,
    /// The [`generation`](crate::Inet::generation) it belongs to.
    pub generation: u64,
    pub(crate) link: Option<EthernetHeader>,
    /// Sum of both addresses: the part of pseudo-header and IPv4 header that never changes.
    pub(crate) addresses_sum: u16,
}

impl Dst {
    /// Puts the network and link headers in front of a transport's packet and sets `skb.mac_len`. `ident` and
    /// `df` only matter to IPv4. A packet with `skb.gso` may be longer than IP can say; its length fields
    /// are then 0.
    pub fn push_headers(
        &self,
        skb: &mut SkBuff,
        proto: u8,
        tos: u8,
        hop_limit: u8,
        ident: u16,
        df: bool,
    ) -> Result<(), NoRoom> {
        let fields = IpFields { proto, tos, hop_limit, ident, df, more_fragments: false, offset: 0 };
        push_ip(skb, (self.src, self.dst), fields, self.addresses_sum)?;
        match &self.link {
            Some(link) => push_link(skb, link),
            None => Ok(()),
        }
    }

    /// Sum of the pseudo-header for `len` bytes of transport header and data, folded and not inverted.
    pub fn pseudo_sum(&self, proto: u8, len: u32) -> u16 {
        checksum::combine(self.addresses_sum, proto_and_len(proto, len))
    }
}

/// Sum of a pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1) for `len` bytes of transport header and data, folded
/// and not inverted.
pub fn pseudo_sum(src: IpAddr, dst: IpAddr, proto: u8, len: u32) -> u16 {
    checksum::combine(addresses_sum(src, dst), proto_and_len(proto, len))
}

fn proto_and_len(proto: u8, len: u32) -> u16 {
    let len = checksum::combine((len >> 16) as u16, len as u16);
    checksum::combine(u16::from(proto), len)
}

pub(crate) fn addresses_sum(src: IpAddr, dst: IpAddr) -> u16 {
    checksum::pseudo(src, dst, 0, 0)
}

/// The fields of an IP header that change from packet to packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpFields {
    pub(crate) proto: u8,
    pub(crate) tos: u8,
    pub(crate) hop_limit: u8,
    pub(crate) ident: u16,
    pub(crate) df: bool,
    pub(crate) more_fragments: bool,
    pub(crate) offset: u16,
}

/// Puts an IP header in front. `addresses_sum` is that of `src` and `dst`, which are of one family.
pub(crate) fn push_ip(
    skb: &mut SkBuff,
    (src, dst): (IpAddr, IpAddr),
    f: IpFields,
    addresses_sum: u16,
) -> Result<(), NoRoom> {
    let payload = skb.len();
    let large = skb.gso.is_some();
    // A length that the field cannot hold is 0 in a packet that will be segmented, and refused in others.
    let length = |n: usize| u16::try_from(n).or(if large { Ok(0) } else { Err(NoRoom) });
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = Ipv4Header {
                tos: f.tos,
                total_len: length(payload + ipv4::HEADER_LEN)?,
                ident: f.ident,
                dont_fragment: f.df,
                more_fragments: f.more_fragments,
                fragment_offset: f.offset,
                ttl: f.hop_limit,
                proto: f.proto,
                src,
                dst,
            };
            header.emit_summed(addresses_sum, skb.push(ipv4::HEADER_LEN)?);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = Ipv6Header {
                traffic_class: f.tos,
                flow_label: 0,
                payload_len: length(payload)?,
                next_header: f.proto,
                hop_limit: f.hop_limit,
                src,
                dst,
            };
            header.emit(skb.push(ipv6::HEADER_LEN)?);
        }
        // Addresses come from a route, which has one family.
        _ => return Err(NoRoom),
    }
    skb.mac_len = 0;
    Ok(())
}

pub(crate) fn push_link(skb: &mut SkBuff, header: &EthernetHeader) -> Result<(), NoRoom> {
    header.emit(skb.push(ethernet::HEADER_LEN)?);
    skb.mac_len = ethernet::HEADER_LEN as u16;
    Ok(())
}

/// The link header from `src` to `dst` for packets to an address like `to`.
pub(crate) fn link_header(src: Mac, dst: Mac, to: IpAddr) -> EthernetHeader {
    let ethertype = if to.is_ipv4() { ethertype::IPV4 } else { ethertype::IPV6 };
    EthernetHeader { dst, src, ethertype }
}
