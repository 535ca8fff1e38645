//! ICMP (RFC 792, 1122) and ICMPv6 (RFC 4443): echo, errors heard, errors sent.
//!
//! Errors heard change nothing here; they are handed up with the header they quote. Errors are sent only where
//! RFC 1122, 3.2.2 and RFC 4443, 2.4(e) allow them, and never more than the rate limit says.

use std::net::IpAddr;

use netdev::DropReason;
use skb::{Csum, SkBuff};
use time::{Duration, Instant};
use wire::ethernet::Mac;
use wire::icmp::{self, HEADER_LEN, IcmpHeader, v4, v6};
use wire::ipv4::{self, Ipv4Header};
use wire::ipv6::{self, Chain, Ipv6Header};
use wire::{checksum, proto};

use crate::dst::{IpFields, addresses_sum, pseudo_sum, push_ip};
use crate::pmtu::plateau_below;
use crate::random::Random;
use crate::verdict::sum_is_right;
use crate::{Config, Delivered, IcmpError, IcmpKind, Inet, InputVerdict, OutputMeta, TxQueue};

/// Hop limit of what this layer sends by itself.
const HOP_LIMIT: u8 = 64;
/// Bytes of an error message that are looked at: headers, and what they quote.
const LOOKED_AT: usize = 256;
/// The quoted transport bytes that every router must include (RFC 792).
const MIN_QUOTE: usize = 8;

/// What is wrong with a packet, in both languages: type and code for IPv4, for IPv6, and the four bytes between
/// header and quote.
struct Problem {
    v4: (u8, u8),
    v6: (u8, u8),
    rest: u32,
}

impl Inet {
    /// An ICMP message for IPv4 arrived.
    pub(crate) fn icmp_input(&mut self, now: Instant, mut d: Delivered, tx: &mut TxQueue) -> InputVerdict {
        let header = d.skb.may_pull(HEADER_LEN).and_then(|h| IcmpHeader::parse(h).ok());
        let Some(header) = header else { return InputVerdict::Drop(DropReason::TooShort) };
        if d.skb.csum == Csum::None && d.skb.checksum(0, d.skb.len()) != 0xffff {
            return InputVerdict::Drop(DropReason::BadChecksum);
        }
        self.copy_for_raw(&d);
        match header.kind {
            // RFC 1122, 3.2.2.6: an echo request to many may be discarded.
            v4::ECHO_REQUEST if d.origin.to_many => InputVerdict::Drop(DropReason::NotForUs),
            v4::ECHO_REQUEST => self.echo(now, d, header, v4::ECHO_REPLY, tx),
            v4::ECHO_REPLY => InputVerdict::Deliver(d),
            v4::UNREACHABLE | v4::TIME_EXCEEDED | v4::PARAMETER => self.error_v4(&d, header),
            _ => InputVerdict::Drop(DropReason::NoHandler),
        }
    }

    /// An ICMP message for IPv6 arrived. `link_src` is the frame's sender.
    pub(crate) fn icmpv6_input(
        &mut self,
        now: Instant,
        mut d: Delivered,
        link_src: Option<Mac>,
        tx: &mut TxQueue,
    ) -> InputVerdict {
        let header = d.skb.may_pull(HEADER_LEN).and_then(|h| IcmpHeader::parse(h).ok());
        let Some(header) = header else { return InputVerdict::Drop(DropReason::TooShort) };
        if d.skb.csum == Csum::None && !sum_is_right(&d, d.skb.len()) {
            return InputVerdict::Drop(DropReason::BadChecksum);
        }
        let discovery = matches!(header.kind, v6::NEIGHBOUR_SOLICITATION | v6::NEIGHBOUR_ADVERTISEMENT);
        if d.src.is_unspecified() && !discovery {
            return InputVerdict::Drop(DropReason::Martian);
        }
        self.copy_for_raw(&d);
        match header.kind {
            v6::ECHO_REQUEST => self.echo(now, d, header, v6::ECHO_REPLY, tx),
            v6::ECHO_REPLY => InputVerdict::Deliver(d),
            v6::UNREACHABLE | v6::TOO_BIG | v6::TIME_EXCEEDED | v6::PARAMETER => self.error_v6(&d, header),
            v6::LISTENER_QUERY => self.listener_query(now, &d),
            _ if discovery => self.ndisc_input(now, &mut d, header, link_src, tx),
            _ => InputVerdict::Drop(DropReason::NoHandler),
        }
    }

    /// Turns an echo request around: its payload goes back where it lies.
    fn echo(
        &mut self,
        now: Instant,
        d: Delivered,
        header: IcmpHeader,
        reply: u8,
        tx: &mut TxQueue,
    ) -> InputVerdict {
        let asked = (!d.origin.to_many).then_some(d.dst);
        let Ok(route) = self.route_at(now, d.src, asked) else {
            return InputVerdict::Drop(DropReason::NoRoute);
        };
        // A packet of its own, with room for headers in front.
        let len = d.skb.len();
        let mut skb = d.skb.slice(0, len);
        if skb.may_pull(HEADER_LEN).is_none() {
            return InputVerdict::Drop(DropReason::TooShort);
        }
        IcmpHeader { kind: reply, ..header }.emit(skb.head_mut());
        let pseudo =
            if d.proto == proto::ICMPV6 { pseudo_sum(route.src, d.src, d.proto, len as u32) } else { 0 };
        let sum = checksum::combine(pseudo, skb.checksum(0, len));
        icmp::set_checksum(skb.head_mut(), checksum::finish(sum));
        let meta = OutputMeta {
            src: route.src,
            dst: d.src,
            proto: d.proto,
            tos: d.tos,
            hop_limit: HOP_LIMIT,
            df: false,
        };
        self.send_own(now, skb, meta, tx);
        InputVerdict::Consumed
    }

    fn error_v4(&self, d: &Delivered, header: IcmpHeader) -> InputVerdict {
        let mut buffer = [0; LOOKED_AT];
        let Some(quoted) = copy_front(&d.skb, &mut buffer).get(HEADER_LEN..) else {
            return InputVerdict::Drop(DropReason::TooShort);
        };
        let Ok((ip, len)) = Ipv4Header::parse_quoted(quoted) else {
            return InputVerdict::Drop(DropReason::Malformed);
        };
        let mtu = || match header.rest & 0xffff {
            0 => plateau_below(ip.total_len),
            mtu => mtu,
        };
        let kind = match (header.kind, header.code) {
            (v4::TIME_EXCEEDED, _) => IcmpKind::TimeExceeded,
            (v4::PARAMETER, _) => IcmpKind::ParameterProblem,
            (_, v4::FRAGMENTATION_NEEDED) => IcmpKind::FragmentationNeeded { mtu: mtu() },
            (_, v4::NET | 6 | 11) => IcmpKind::NetworkUnreachable,
            (_, v4::PROTOCOL) => IcmpKind::ProtocolUnreachable,
            (_, v4::PORT) => IcmpKind::PortUnreachable,
            // RFC 1812, 5.2.7.1.
            (_, 9 | 10 | 13) => IcmpKind::Prohibited,
            _ => IcmpKind::HostUnreachable,
        };
        // Only the first fragment has a transport header to judge by.
        let transport = quoted.get(len..).filter(|_| ip.fragment_offset == 0).unwrap_or(&[]);
        self.error(
            d,
            (kind, (header.kind, header.code)),
            ip.proto,
            (IpAddr::V4(ip.src), IpAddr::V4(ip.dst)),
            transport,
        )
    }

    fn error_v6(&self, d: &Delivered, header: IcmpHeader) -> InputVerdict {
        let mut buffer = [0; LOOKED_AT];
        let quoted = copy_front(&d.skb, &mut buffer).get(HEADER_LEN..).unwrap_or(&[]);
        let Ok(ip) = Ipv6Header::parse(quoted) else {
            return InputVerdict::Drop(DropReason::Malformed);
        };
        let kind = match (header.kind, header.code) {
            (v6::TOO_BIG, _) => IcmpKind::PacketTooBig { mtu: header.rest },
            (v6::TIME_EXCEEDED, _) => IcmpKind::TimeExceeded,
            // Code 1: unrecognized next header.
            (v6::PARAMETER, 1) => IcmpKind::ProtocolUnreachable,
            (v6::PARAMETER, _) => IcmpKind::ParameterProblem,
            (_, v6::NO_ROUTE) => IcmpKind::NetworkUnreachable,
            (_, v6::PORT) => IcmpKind::PortUnreachable,
            (_, v6::PROHIBITED | 5 | 6) => IcmpKind::Prohibited,
            _ => IcmpKind::HostUnreachable,
        };
        let rest = quoted.get(ipv6::HEADER_LEN..).unwrap_or(&[]);
        let (proto, at) = match ipv6::walk(ip.next_header, rest) {
            Ok(Chain::Upper { proto, len }) => (proto, len),
            // We sent it in pieces, and this was the first.
            Ok(Chain::Fragment { header, len }) if header.offset == 0 => (header.next_header, len),
            _ => return InputVerdict::Drop(DropReason::Malformed),
        };
        let transport = rest.get(at..).unwrap_or(&[]);
        self.error(
            d,
            (kind, (header.kind, header.code)),
            proto,
            (IpAddr::V6(ip.src), IpAddr::V6(ip.dst)),
            transport,
        )
    }

    fn error(
        &self,
        d: &Delivered,
        kind: (IcmpKind, (u8, u8)),
        proto: u8,
        (local, remote): (IpAddr, IpAddr),
        transport: &[u8],
    ) -> InputVerdict {
        // Packets of other protocols may have been shorter.
        if transport.len() < MIN_QUOTE
            && matches!(proto, proto::TCP | proto::UDP | proto::ICMP | proto::ICMPV6)
        {
            return InputVerdict::Drop(DropReason::TooShort);
        }
        if !self.is_local(local) {
            return InputVerdict::Drop(DropReason::NotForUs);
        }
        InputVerdict::Icmp(IcmpError::new(kind, d.src, proto, (local, remote), transport))
    }

    /// Tells the sender of `d` that nobody here wants it: no such port (UDP), no such protocol (others). TCP has
    /// its own answer, and ICMP gets none. `d.skb` begins with its transport header, as it was delivered.
    pub fn send_unreachable(&mut self, now: Instant, d: &Delivered, tx: &mut TxQueue) {
        let problem = match d.proto {
            proto::TCP | proto::ICMP | proto::ICMPV6 => return,
            proto::UDP => {
                Problem { v4: (v4::UNREACHABLE, v4::PORT), v6: (v6::UNREACHABLE, v6::PORT), rest: 0 }
            }
            // ICMPv6 points at the next-header field that it does not understand. Behind extension headers we
            // no longer know where that was.
            _ if d.origin.extended => return,
            _ => Problem {
                v4: (v4::UNREACHABLE, v4::PROTOCOL),
                v6: (v6::PARAMETER, v6::UNRECOGNIZED_NEXT_HEADER),
                rest: if d.src.is_ipv4() { 0 } else { ipv6::NEXT_HEADER_OFFSET },
            },
        };
        self.send_error(now, d, problem, tx);
    }

    /// A datagram's other fragments did not come in time (RFC 1122, 3.3.2; RFC 8200, 4.5).
    pub(crate) fn send_reassembly_timeout(&mut self, now: Instant, first: &Delivered, tx: &mut TxQueue) {
        let problem = Problem { v4: (v4::TIME_EXCEEDED, 1), v6: (v6::TIME_EXCEEDED, 1), rest: 0 };
        if first.proto != proto::ICMP && first.proto != proto::ICMPV6 {
            self.send_error(now, first, problem, tx);
        }
    }

    /// Sends an error about a packet. The quoted header is rebuilt from what was read of it.
    fn send_error(&mut self, now: Instant, d: &Delivered, problem: Problem, tx: &mut TxQueue) {
        //= rfc1122#section-3.2.2
        //# An ICMP error message MUST NOT be sent as the result of receiving: ... a datagram destined to an IP
        //# broadcast or IP multicast address, or a datagram sent as a link-layer broadcast, ... or a datagram
        //# whose source address does not define a single host
        if d.origin.to_many || d.src.is_unspecified() {
            return;
        }
        let Ok(route) = self.route_at(now, d.src, Some(d.dst)) else { return };
        if !self.errors.allow(now, &mut self.random) {
            self.count(DropReason::RateLimited, 1);
            return;
        }
        // 576 and 1280 bytes in all: what every IPv4 host and every IPv6 path takes.
        let (kind, code, proto, room) = match d.src {
            IpAddr::V4(_) => {
                (problem.v4.0, problem.v4.1, proto::ICMP, 576 - 2 * ipv4::HEADER_LEN - HEADER_LEN)
            }
            IpAddr::V6(_) => {
                (problem.v6.0, problem.v6.1, proto::ICMPV6, 1280 - 2 * ipv6::HEADER_LEN - HEADER_LEN)
            }
        };
        let Some(quote) = quote(d, room) else { return };
        let mut message = vec![0; HEADER_LEN];
        IcmpHeader { kind, code, rest: problem.rest }.emit(&mut message);
        message.extend(quote);
        let pseudo = match proto {
            proto::ICMPV6 => pseudo_sum(route.src, d.src, proto, message.len() as u32),
            _ => 0,
        };
        let sum = checksum::combine(pseudo, checksum::sum(&message));
        icmp::set_checksum(&mut message, checksum::finish(sum));
        let meta = OutputMeta { src: route.src, dst: d.src, proto, tos: 0, hop_limit: HOP_LIMIT, df: false };
        self.send_own(now, SkBuff::from_slice(&message), meta, tx);
    }
}

/// The IP header of `d` and at most `room` bytes of what followed it.
fn quote(d: &Delivered, room: usize) -> Option<Vec<u8>> {
    let mut header = SkBuff::new();
    let fields = IpFields {
        proto: d.proto,
        tos: d.tos,
        hop_limit: d.hop_limit,
        ident: d.origin.ident,
        df: d.origin.dont_fragment,
        more_fragments: false,
        offset: 0,
    };
    push_ip(&mut header, (d.src, d.dst), fields, addresses_sum(d.src, d.dst)).ok()?;
    let mut bytes = header.to_vec();
    set_length(&mut bytes, d.skb.len());
    let at = bytes.len();
    bytes.resize(at + d.skb.len().min(room), 0);
    d.skb.copy_bits(0, bytes.get_mut(at..)?);
    Some(bytes)
}

/// The quoted packet was longer than its quote.
fn set_length(header: &mut [u8], payload: usize) {
    let len = u16::try_from(payload).unwrap_or(u16::MAX);
    if let Ok((mut ip, header_len)) = Ipv4Header::parse(header) {
        ip.total_len = len.saturating_add(header_len as u16);
        ip.emit(header);
    } else if let Ok(mut ip) = Ipv6Header::parse(header) {
        ip.payload_len = len;
        ip.emit(header);
    }
}

/// The front of a packet, copied: an error's quote may not fit into a head.
fn copy_front<'a>(skb: &SkBuff, buffer: &'a mut [u8; LOOKED_AT]) -> &'a [u8] {
    let n = skb.len().min(buffer.len());
    let (front, _) = buffer.split_at_mut(n);
    skb.copy_bits(0, front);
    front
}

/// A token bucket for the errors of the whole host (RFC 1812, 4.3.2.8; RFC 4443, 2.4(f)).
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// In thousandths of a message.
    tokens: u64,
    burst: u64,
    per_second: u64,
    filled: Instant,
}

const TOKEN: u64 = 1000;
/// The bucket is filled in steps, as in Linux (`icmp_global_allow`).
const REFILL: Duration = Duration::from_millis(20);

impl RateLimit {
    pub(crate) fn new(config: &Config) -> Self {
        let burst = u64::from(config.icmp_errors_burst) * TOKEN;
        Self {
            tokens: burst,
            burst,
            per_second: u64::from(config.icmp_errors_per_second),
            filled: Instant::ZERO,
        }
    }

    /// Whether one more may be sent.
    pub(crate) fn allow(&mut self, now: Instant, random: &mut Random) -> bool {
        let passed = (now - self.filled).min(Duration::from_secs(3600));
        if passed >= REFILL {
            let milliseconds = passed.as_millis() as u64;
            self.tokens =
                self.tokens.saturating_add(milliseconds.saturating_mul(self.per_second)).min(self.burst);
            self.filled = now;
            // What the bucket holds must not be known exactly: counting its errors tells an attacker which
            // ports are open (CVE-2020-25705).
            self.tokens -= random.below(3 * TOKEN).min(self.tokens);
        }
        match self.tokens.checked_sub(TOKEN) {
            Some(left) => self.tokens = left,
            None => return false,
        }
        true
    }
}
