//! Neighbours over IPv4: ARP (RFC 826), read as neighbour discovery.
//!
//! A request for us that names its sender is a solicitation. An answer to an open question is a solicited
//! advertisement. Everything else (gratuitous packets, answers nobody asked for) is an unsolicited
//! one: it may change what is known, which is then STALE and so is probed when used, but adds nothing.

use std::net::{IpAddr, Ipv4Addr};

use netdev::DropReason;
use skb::SkBuff;
use time::Instant;
use wire::arp::{ArpPacket, PACKET_LEN};
use wire::ethernet::{BROADCAST, EthernetHeader, Mac, ethertype, is_group};

use crate::neighbour::{Heard, Solicit};
use crate::{IfIndex, Inet, InputVerdict, TxQueue, dst};

impl Inet {
    /// An ARP packet arrived, link header off.
    pub(crate) fn arp_input(
        &mut self,
        now: Instant,
        index: IfIndex,
        skb: &mut SkBuff,
        tx: &mut TxQueue,
    ) -> InputVerdict {
        let Some(arp) = skb.may_pull(PACKET_LEN).and_then(|bytes| ArpPacket::parse(bytes).ok()) else {
            return InputVerdict::Drop(DropReason::Malformed);
        };
        let Some((interface, mac)) = self.interfaces.get(index).and_then(|i| Some((i, i.mac?))) else {
            return InputVerdict::Drop(DropReason::NoHandler);
        };
        let sender = IpAddr::V4(arp.sender_ip);
        let nobody = arp.sender_ip.is_multicast()
            || interface.is_broadcast(arp.sender_ip)
            || arp.sender_ip.is_loopback()
            || is_group(arp.sender_mac);
        if nobody || self.is_local(sender) {
            // The latter is somebody who uses our address: address conflicts are not handled (RFC 5227).
            return InputVerdict::Drop(DropReason::Martian);
        }
        let for_us = interface.has_address(IpAddr::V4(arp.target_ip)) && !interface.loopback;
        // A probe (RFC 5227, 2.1.1) asks without saying who.
        if !arp.sender_ip.is_unspecified() {
            let key = (index, sender);
            let how = match arp.request {
                true if for_us => Heard::Solicitation,
                true => Heard::Advertisement { solicited: false, overrides: true },
                false => {
                    let solicited = for_us && self.neighbours.is_asked(key);
                    Heard::Advertisement { solicited, overrides: true }
                }
            };
            let create = self.on_link(index, sender);
            self.learn(now, key, Some(arp.sender_mac), (how, create), tx);
        }
        if arp.request && for_us {
            let reply = ArpPacket {
                request: false,
                sender_mac: mac,
                sender_ip: arp.target_ip,
                target_mac: arp.sender_mac,
                target_ip: arp.sender_ip,
            };
            send(index, &reply, arp.sender_mac, tx);
        }
        InputVerdict::Consumed
    }

    /// Asks who has an IPv4 address.
    pub(crate) fn arp_solicit(&self, ask: Solicit, target: Ipv4Addr, tx: &mut TxQueue) {
        let (index, next_hop) = ask.key;
        let Some((interface, mac)) = self.interfaces.get(index).and_then(|i| Some((i, i.mac?))) else {
            return;
        };
        let ours = ask.src.filter(|s| interface.has_address(*s)).or_else(|| interface.source_for(next_hop));
        let sender_ip = match ours {
            Some(IpAddr::V4(a)) => a,
            // An interface without an address asks as a prober does.
            _ => Ipv4Addr::UNSPECIFIED,
        };
        let request =
            ArpPacket { request: true, sender_mac: mac, sender_ip, target_mac: [0; 6], target_ip: target };
        send(index, &request, ask.mac.unwrap_or(BROADCAST), tx);
    }
}

fn send(index: IfIndex, arp: &ArpPacket, to: Mac, tx: &mut TxQueue) {
    let mut skb = SkBuff::new();
    let mut bytes = [0; PACKET_LEN];
    arp.emit(&mut bytes);
    let link = EthernetHeader { dst: to, src: arp.sender_mac, ethertype: ethertype::ARP };
    // A fresh head has room for 42 bytes.
    if skb.put(&bytes).is_ok() && dst::push_link(&mut skb, &link).is_ok() {
        tx.push((index, skb));
    }
}
