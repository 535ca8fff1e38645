//! Neighbours over IPv6: neighbour discovery (RFC 4861). Of its messages, solicitations and advertisements
//! are heard; those of routers are not (see the crate's documentation).

use std::net::{IpAddr, Ipv6Addr};

use netdev::DropReason;
use skb::SkBuff;
use time::Instant;
use wire::ethernet::{self, Mac};
use wire::icmp::{self, IcmpHeader, v6};
use wire::ndisc::{self, NeighbourMessage, flags};
use wire::{checksum, proto};

use crate::dst::{IpFields, addresses_sum, link_header, pseudo_sum, push_ip, push_link};
use crate::interface::ALL_NODES;
use crate::neighbour::{Heard, Solicit};
use crate::{Delivered, IfIndex, Inet, InputVerdict, TxQueue};

/// Longest message that is read: the fixed part and options for any sensible purpose.
const MAX_MESSAGE: usize = 200;
/// A message with another hop limit has passed a router (RFC 4861, 7.1).
const HOP_LIMIT: u8 = 255;

impl Inet {
    /// A solicitation or advertisement arrived; its checksum is right. `link_src` is the frame's sender.
    pub(crate) fn ndisc_input(
        &mut self,
        now: Instant,
        d: &mut Delivered,
        header: IcmpHeader,
        link_src: Option<Mac>,
        tx: &mut TxQueue,
    ) -> InputVerdict {
        let len = d.skb.len().min(MAX_MESSAGE);
        let body = d.skb.may_pull(len).and_then(|m| m.get(icmp::HEADER_LEN..));
        let message = body.and_then(|b| NeighbourMessage::parse(b).ok());
        let Some(message) = message.filter(|m| header.code == 0 && !m.target.is_multicast()) else {
            return InputVerdict::Drop(DropReason::Malformed);
        };
        if d.hop_limit != HOP_LIMIT {
            return InputVerdict::Drop(DropReason::HopLimit);
        }
        // A link-layer address for all stations is nobody's.
        if message.mac.is_some_and(ethernet::is_group) {
            return InputVerdict::Drop(DropReason::Malformed);
        }
        match header.kind {
            v6::NEIGHBOUR_SOLICITATION => self.solicitation(now, d, message, link_src, tx),
            _ => self.advertisement(now, d, message, header.rest, tx),
        }
    }

    /// RFC 4861, 7.1.1 and 7.2.3.
    fn solicitation(
        &mut self,
        now: Instant,
        d: &Delivered,
        message: NeighbourMessage,
        link_src: Option<Mac>,
        tx: &mut TxQueue,
    ) -> InputVerdict {
        let from_nobody = d.src.is_unspecified();
        let to_group = d.dst == IpAddr::V6(ndisc::solicited_node(message.target));
        if from_nobody && (!to_group || message.mac.is_some()) {
            return InputVerdict::Drop(DropReason::Malformed);
        }
        let ours = self.interfaces.get(d.ifindex).filter(|i| i.has_address(IpAddr::V6(message.target)));
        let Some(mac) = ours.and_then(|i| i.mac) else {
            return InputVerdict::Drop(DropReason::NotForUs);
        };
        if !from_nobody {
            self.learn(now, (d.ifindex, d.src), message.mac, (Heard::Solicitation, true), tx);
        }
        let (dst, to, solicited) = match (d.src, message.mac.or(link_src)) {
            (IpAddr::V6(src), Some(to)) if !from_nobody => (src, to, flags::SOLICITED),
            _ => (ALL_NODES, ndisc::group_mac(ALL_NODES), 0),
        };
        let header =
            IcmpHeader { kind: v6::NEIGHBOUR_ADVERTISEMENT, code: 0, rest: flags::OVERRIDE | solicited };
        send(d.ifindex, header, message.target, (message.target, dst), (mac, to), tx);
        InputVerdict::Consumed
    }

    /// RFC 4861, 7.1.2 and 7.2.5.
    fn advertisement(
        &mut self,
        now: Instant,
        d: &Delivered,
        message: NeighbourMessage,
        said: u32,
        tx: &mut TxQueue,
    ) -> InputVerdict {
        let solicited = said & flags::SOLICITED != 0;
        if (solicited && d.dst.is_multicast()) || self.is_local(IpAddr::V6(message.target)) {
            return InputVerdict::Drop(DropReason::Martian);
        }
        let how = Heard::Advertisement { solicited, overrides: said & flags::OVERRIDE != 0 };
        self.learn(now, (d.ifindex, IpAddr::V6(message.target)), message.mac, (how, false), tx);
        InputVerdict::Consumed
    }

    /// Asks who has an IPv6 address.
    pub(crate) fn ndisc_solicit(&self, ask: Solicit, target: Ipv6Addr, tx: &mut TxQueue) {
        let (index, next_hop) = ask.key;
        let Some((interface, mac)) = self.interfaces.get(index).and_then(|i| Some((i, i.mac?))) else {
            return;
        };
        let ours = ask.src.filter(|s| interface.has_address(*s)).or_else(|| interface.source_for(next_hop));
        // A solicitation with a link-layer address must say whose (RFC 4861, 4.3).
        let Some(IpAddr::V6(src)) = ours else { return };
        let (dst, to) = match ask.mac {
            Some(to) => (target, to),
            None => {
                let group = ndisc::solicited_node(target);
                (group, ndisc::group_mac(group))
            }
        };
        let header = IcmpHeader { kind: v6::NEIGHBOUR_SOLICITATION, code: 0, rest: 0 };
        send(index, header, target, (src, dst), (mac, to), tx);
    }
}

/// Sends a message about `target`, carrying the sender's link-layer address.
fn send(
    index: IfIndex,
    header: IcmpHeader,
    target: Ipv6Addr,
    (src, dst): (Ipv6Addr, Ipv6Addr),
    (mac, to): (Mac, Mac),
    tx: &mut TxQueue,
) {
    let mut bytes = [0; icmp::HEADER_LEN + ndisc::BODY_LEN];
    header.emit(&mut bytes);
    if let Some((_, body)) = bytes.split_at_mut_checked(icmp::HEADER_LEN) {
        NeighbourMessage::emit(target, mac, header.kind == v6::NEIGHBOUR_SOLICITATION, body);
    }
    let ends = (IpAddr::V6(src), IpAddr::V6(dst));
    let pseudo = pseudo_sum(ends.0, ends.1, proto::ICMPV6, bytes.len() as u32);
    let sum = checksum::finish(checksum::combine(pseudo, checksum::sum(&bytes)));
    icmp::set_checksum(&mut bytes, sum);
    let fields = IpFields {
        proto: proto::ICMPV6,
        tos: 0,
        hop_limit: HOP_LIMIT,
        ident: 0,
        df: true,
        more_fragments: false,
        offset: 0,
    };
    let mut skb = SkBuff::new();
    // A fresh head has room for 86 bytes.
    let pushed = skb.put(&bytes).is_ok()
        && push_ip(&mut skb, ends, fields, addresses_sum(ends.0, ends.1)).is_ok()
        && push_link(&mut skb, &link_header(mac, to, ends.1)).is_ok();
    if pushed {
        tx.push((index, skb));
    }
}
