//! Groups: joining, leaving, and telling routers and switches (IGMPv3, RFC 3376; MLDv2, RFC 3810).
//!
//! A host's part only, and without source filters: a group is heard from everybody or not at all. A change is
//! reported twice, a random while apart, since reports may be lost; a query is answered with all groups after a
//! random while.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use skb::SkBuff;
use time::{Duration, Instant};
use wire::icmp::{self, HEADER_LEN, IcmpHeader, v6};
use wire::{checksum, ipv4, proto};

use crate::dst::pseudo_sum;
use crate::interface::ALL_NODES;
use crate::{Delivered, IfIndex, Inet, InputVerdict, NetError, OutputMeta, TxQueue};

/// RFC 3376, 4.2.14, and RFC 3810, 5.2.14: where reports go.
const ALL_ROUTERS_V4: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);
const ALL_ROUTERS_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
/// Record types (RFC 3376, 4.2.12): what is heard; now everybody is; now nobody is.
const IS_EXCLUDE: u8 = 2;
const TO_INCLUDE: u8 = 3;
const TO_EXCLUDE: u8 = 4;
/// RFC 3376, 8.11: Unsolicited Report Interval.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const IGMP_QUERY: u8 = 0x11;
const IGMP_REPORT: u8 = 0x22;
/// RFC 2113: every router on the way looks at this packet.
const ROUTER_ALERT_V4: [u8; 4] = [0x94, 4, 0, 0];
/// A hop-by-hop header with RFC 2711's option, for MLD, and padding.
const HOP_BY_HOP: [u8; 8] = [proto::ICMPV6, 0, 5, 2, 0, 0, 1, 0];
/// Reports that wait at once: a host joins few groups, and a query asks for all of them in one.
const MAX_REPORTS: usize = 256;

/// What is to be said, and when.
#[derive(Clone, Copy, Debug)]
struct Report {
    at: Instant,
    index: IfIndex,
    /// One group's change; `None`: all groups of a family (IPv6 or not).
    group: Result<(IpAddr, u8), bool>,
}

/// Reports that wait for their time.
#[derive(Debug, Default)]
pub(crate) struct Reports(Vec<Report>);

impl Reports {
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.0.iter().map(|r| r.at).min()
    }

    fn push(&mut self, report: Report) {
        if self.0.len() < MAX_REPORTS {
            self.0.push(report);
        }
    }
}

/// Groups that are heard without being joined are not reported (RFC 3376, 5; RFC 3810, 6).
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(g) => g != Ipv4Addr::new(224, 0, 0, 1),
        // Neither interface-local groups, which stay on the host.
        IpAddr::V6(g) => g != ALL_NODES && g.octets()[1] & 0xf > 1,
    }
}

impl Inet {
    /// Hears `group` on `index` from now on, once more. The first time it is reported.
    pub fn join_group(
        &mut self,
        now: Instant,
        index: IfIndex,
        group: IpAddr,
        tx: &mut TxQueue,
    ) -> Result<(), NetError> {
        if !group.is_multicast() {
            return Err(NetError::InvalidDestination);
        }
        let interface = self.interfaces.get_mut(index).ok_or(NetError::NetworkUnreachable)?;
        if interface.join(group) {
            self.report_change(now, index, (group, TO_EXCLUDE), tx);
        }
        Ok(())
    }

    /// Takes one [`join_group`](Self::join_group) back. The last time it is reported.
    pub fn leave_group(&mut self, now: Instant, index: IfIndex, group: IpAddr, tx: &mut TxQueue) {
        let last = self.interfaces.get_mut(index).is_some_and(|i| i.leave(group));
        if last {
            self.report_change(now, index, (group, TO_INCLUDE), tx);
        }
    }

    /// The interface to join `group` on if none is named: where packets to it would go.
    pub fn interface_for_group(&self, group: IpAddr) -> Option<IfIndex> {
        self.route(group, None).ok().map(|r| r.ifindex)
    }

    /// The best address of interface `index` to speak to `dst` from.
    pub fn source_on(&self, index: IfIndex, dst: IpAddr) -> Option<IpAddr> {
        self.interfaces.get(index)?.source_for(dst)
    }

    /// The interface that has `address`.
    pub fn interface_of(&self, address: IpAddr) -> Option<IfIndex> {
        self.interfaces.iter().find(|i| i.has_address(address)).map(|i| i.index)
    }

    /// Whether `address` means every host of a network (RFC 919).
    pub fn is_broadcast(&self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V4(a) if self.interfaces.iter().any(|i| i.is_broadcast(a)))
    }

    /// Whether this host itself hears what is sent to the group or broadcast address `dst`.
    pub fn hears(&self, dst: IpAddr) -> bool {
        self.is_broadcast(dst) || self.interfaces.iter().any(|i| i.hears(dst))
    }

    /// The MTU of an interface, in bytes from the IP header on.
    pub fn mtu(&self, index: IfIndex) -> Option<u32> {
        self.interfaces.get(index).map(|i| i.mtu)
    }

    fn report_change(&mut self, now: Instant, index: IfIndex, change: (IpAddr, u8), tx: &mut TxQueue) {
        // What was going to be said of this group is overtaken.
        self.reports.0.retain(|r| r.index != index || r.group.map(|(g, _)| g) != Ok(change.0));
        if !is_reported(change.0) {
            return;
        }
        self.report(now, index, &[change], tx);
        let again = now + Duration::from_nanos(self.random.below(REPORT_INTERVAL.as_nanos() as u64));
        self.reports.push(Report { at: again, index, group: Ok(change) });
    }

    /// Says what is due.
    pub(crate) fn send_reports(&mut self, now: Instant, tx: &mut TxQueue) {
        let (due, later) = std::mem::take(&mut self.reports.0).into_iter().partition(|r| r.at <= now);
        self.reports.0 = later;
        let due: Vec<Report> = due;
        for Report { index, group, .. } in due {
            match group {
                Ok(change) => self.report(now, index, &[change], tx),
                Err(ipv6) => {
                    let Some(interface) = self.interfaces.get(index) else { continue };
                    let all = interface.groups().filter(|g| g.is_ipv6() == ipv6 && is_reported(*g));
                    let all: Vec<_> = all.map(|g| (g, IS_EXCLUDE)).collect();
                    // As many records as fit the smallest IPv6 packet.
                    all.chunks(50).for_each(|part| self.report(now, index, part, tx));
                }
            }
        }
    }

    /// Somebody asks for the groups of this link: the answer comes within `within`.
    fn asked(&mut self, now: Instant, index: IfIndex, ipv6: bool, within: Duration) -> InputVerdict {
        let at = now + Duration::from_nanos(self.random.below(within.as_nanos() as u64));
        match self.reports.0.iter_mut().find(|r| r.index == index && r.group == Err(ipv6)) {
            Some(known) => known.at = known.at.min(at),
            None => self.reports.push(Report { at, index, group: Err(ipv6) }),
        }
        InputVerdict::Consumed
    }

    /// An IGMP message. Reports of others are no business of ours.
    pub(crate) fn igmp_input(&mut self, now: Instant, mut d: Delivered) -> InputVerdict {
        let front = d.skb.may_pull(8).and_then(|b| b.first_chunk::<2>()).copied();
        match front {
            Some([IGMP_QUERY, tenths]) if d.skb.checksum(0, d.skb.len()) == 0xffff => {
                // Version 1 says 0 and means 10 s; above 127 it is an exponent, and never too long to wait.
                let tenths = if tenths == 0 { 100 } else { u64::from(tenths.min(127)) };
                self.asked(now, d.ifindex, false, Duration::from_millis(100 * tenths))
            }
            _ => InputVerdict::Consumed,
        }
    }

    /// A multicast listener query; its checksum was verified.
    pub(crate) fn listener_query(&mut self, now: Instant, d: &Delivered) -> InputVerdict {
        let mut front = [0; HEADER_LEN];
        d.skb.copy_bits(0, &mut front);
        let [_, _, _, _, high, low, ..] = front;
        let within = u64::from(u16::from_be_bytes([high, low])).clamp(1, 32767);
        self.asked(now, d.ifindex, true, Duration::from_millis(within))
    }

    /// Sends one report about groups of one family.
    fn report(&mut self, now: Instant, index: IfIndex, records: &[(IpAddr, u8)], tx: &mut TxQueue) {
        let Some(&(first, _)) = records.first() else { return };
        let mut body = Vec::new();
        for (group, kind) in records {
            body.extend([*kind, 0, 0, 0]);
            match group {
                IpAddr::V4(g) => body.extend(g.octets()),
                IpAddr::V6(g) => body.extend(g.octets()),
            }
        }
        let Some(interface) = self.interfaces.get(index).filter(|i| !i.loopback) else { return };
        let to = if first.is_ipv4() { IpAddr::V4(ALL_ROUTERS_V4) } else { IpAddr::V6(ALL_ROUTERS_V6) };
        let Some(src) = interface.source_for(to) else { return };
        let count = records.len() as u32;
        let mut message = vec![0; HEADER_LEN];
        let (kind, pseudo) = match first {
            IpAddr::V4(_) => (IGMP_REPORT, 0),
            IpAddr::V6(_) => {
                let len = (HEADER_LEN + body.len()) as u32;
                (v6::LISTENER_REPORT, pseudo_sum(src, to, proto::ICMPV6, len))
            }
        };
        IcmpHeader { kind, code: 0, rest: count }.emit(&mut message);
        message.extend(body);
        let sum = checksum::combine(pseudo, checksum::sum(&message));
        icmp::set_checksum(&mut message, checksum::finish(sum));
        let (proto, option) = match first {
            IpAddr::V4(_) => (proto::IGMP, &[][..]),
            IpAddr::V6(_) => (0, &HOP_BY_HOP[..]),
        };
        let skb = SkBuff::from_slice(&[option, &message].concat());
        let meta = OutputMeta { src, dst: to, proto, tos: 0xc0, hop_limit: 1, df: true };
        let at = tx.len();
        self.send_own(now, skb, meta, tx);
        if first.is_ipv4() {
            tx.iter_mut().skip(at).for_each(|(_, skb)| alert_routers(skb));
        }
    }
}

/// Puts the router alert option behind the IPv4 header of a packet that is ready for its device.
fn alert_routers(skb: &mut SkBuff) {
    let mac_len = usize::from(skb.mac_len);
    let mut bytes = skb.to_vec();
    let end = mac_len + ipv4::HEADER_LEN;
    if bytes.len() < end {
        return;
    }
    bytes.splice(end..end, ROUTER_ALERT_V4);
    let total = (bytes.len() - mac_len) as u16;
    if let Some(header) = bytes.get_mut(mac_len..end + ROUTER_ALERT_V4.len()) {
        header[0] = 0x46;
        header[2..4].copy_from_slice(&total.to_be_bytes());
        header[10..12].fill(0);
        let sum = checksum::finish(checksum::sum(header));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let mut with = SkBuff::from_slice(&bytes);
    with.mac_len = mac_len as u16;
    *skb = with;
}
