//! Software receive aggregation: in-order TCP segments of one flow become one large packet.
//!
//! The rules are Linux's (`tcp_gro_receive`): only what segmentation would restore is merged, so that a
//! receiver, a capture or a forwarder can take the large packet for the small ones. A packet that cannot be
//! merged first lets go of what its flow holds, so the order within a flow never changes.
//!
//! A merged packet has at most `MAX_SKB_FRAGS` fragments and 65535 bytes. Small frames that each lie in a
//! page of their own therefore merge by 17; frames a device wrote one behind the other in one page join into
//! fewer fragments and merge up to the size limit.

use arrayvec::ArrayVec;
use skb::{Csum, Gso, GsoKind, MAX_SKB_FRAGS, SkBuff};
use wire::{checksum, proto};

use crate::gso::{finish_ipv4, get16, get32, pseudo_of, set16};
use crate::xmit::sum_from;
use crate::{DeviceInfo, LinkKind};

/// Flows held at a time; the oldest makes room (Linux: 8 per hash bucket).
const FLOWS: usize = 8;
/// Largest network-layer packet that a 16-bit length field describes.
const MAX_LEN: usize = 65535;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const URG: u8 = 0x20;
const CWR: u8 = 0x80;

/// Aggregates the packets of one poll batch.
#[derive(Debug, Default)]
pub struct Gro {
    held: ArrayVec<Held, FLOWS>,
}

/// A TCP segment's headers.
#[derive(Clone, Copy, Debug)]
struct Segment {
    ip: usize,
    tcp: usize,
    payload: usize,
    /// Payload bytes.
    len: usize,
    ipv6: bool,
    seq: u32,
    flags: u8,
}

/// The first packet of a flow, with what has been merged into it.
#[derive(Debug)]
struct Held {
    skb: SkBuff,
    first: Segment,
    segs: u16,
    next_seq: u32,
    /// What the next segment's IPv4 identification differs by from the last one's, once known.
    ident_step: Option<u16>,
    last_ident: u16,
}

/// What a packet is to aggregation.
enum Kind {
    /// Not TCP: no business of ours.
    Other,
    /// TCP, but not to be merged, and of a flow not worth finding out.
    Odd,
    /// A segment whose headers are known.
    Segment(Segment),
}

impl Gro {
    /// Holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one packet from the device described by `info`, link header on. Packets that are complete, or
    /// of no interest, are appended to `out`.
    pub fn receive(&mut self, mut skb: SkBuff, info: &DeviceInfo, out: &mut Vec<SkBuff>) {
        let link = match info.link {
            LinkKind::Ethernet(_) => 14,
            LinkKind::Ip => 0,
        };
        skb.mac_len = link as u16;
        // 1. What is it?
        let segment = match classify(&mut skb, link) {
            Kind::Other => return out.push(skb),
            Kind::Odd => {
                self.flush(out);
                return out.push(skb);
            }
            Kind::Segment(s) => s,
        };
        // 2. It continues what its flow holds: merged, and perhaps complete with it.
        let at = self.held.iter().position(|h| h.same_flow(&skb, &segment));
        let mergeable = is_mergeable(&mut skb, &segment);
        if let Some(at) = at
            && let Some(held) = self.held.get_mut(at)
        {
            if mergeable && held.accepts(&skb, &segment) {
                if held.merge(skb, &segment) {
                    out.push(self.held.remove(at).finish());
                }
                return;
            }
            // 3. It does not: what came before goes up before it.
            out.push(self.held.remove(at).finish());
        }
        // 4. A segment that others may continue is held; any other goes up.
        if !mergeable || segment.flags & (PSH | FIN) != 0 {
            return out.push(skb);
        }
        if self.held.is_full() {
            out.push(self.held.remove(0).finish());
        }
        self.held.push(Held::new(skb, segment));
    }

    /// Appends everything held to `out`: the batch is over.
    pub fn flush(&mut self, out: &mut Vec<SkBuff>) {
        out.extend(self.held.drain(..).map(Held::finish));
    }
}

/// Finds the headers of a TCP segment and makes them contiguous.
fn classify(skb: &mut SkBuff, ip: usize) -> Kind {
    let Some(headers) = skb.may_pull(ip + 20) else { return Kind::Other };
    let Some(&version) = headers.get(ip) else { return Kind::Other };
    let ethertype = get16(headers, 12);
    let ipv6 = match version >> 4 {
        4 if ip == 0 || ethertype == 0x0800 => false,
        6 if ip == 0 || ethertype == 0x86dd => true,
        _ => return Kind::Other,
    };
    let protocol = headers.get(ip + if ipv6 { 6 } else { 9 });
    if protocol != Some(&proto::TCP) {
        return Kind::Other;
    }
    // Options and fragments are rare; what they belong to is not looked up.
    if !ipv6 && (version != 0x45 || get16(headers, ip + 6) & 0x3fff != 0) {
        return Kind::Odd;
    }
    let tcp = ip + if ipv6 { 40 } else { 20 };
    let total =
        if ipv6 { 40 + usize::from(get16(headers, ip + 4)) } else { usize::from(get16(headers, ip + 2)) };
    let Some(headers) = skb.may_pull(tcp + 20) else { return Kind::Odd };
    let (seq, flags) = (get32(headers, tcp + 4), headers.get(tcp + 13).copied().unwrap_or(0));
    let payload = tcp + usize::from(headers.get(tcp + 12).copied().unwrap_or(0) >> 4) * 4;
    // Longer than the header says: padding of a short frame. Shorter: cut off on the way.
    if payload < tcp + 20 || skb.may_pull(payload).is_none() || skb.len() != ip + total {
        return Kind::Odd;
    }
    Kind::Segment(Segment { ip, tcp, payload, len: skb.len() - payload, ipv6, seq, flags })
}

/// Whether the segment, by itself, could be part of a large packet. Verifies its checksum, so this is not
/// done again further up.
fn is_mergeable(skb: &mut SkBuff, s: &Segment) -> bool {
    s.len > 0
        && skb.gso.is_none()
        && s.flags & (SYN | RST | URG) == 0
        && s.flags & ACK != 0
        && !skb.has_lent()
        && verify(skb, s)
}

fn verify(skb: &mut SkBuff, s: &Segment) -> bool {
    let head = skb.head();
    if !s.ipv6 && checksum::sum(head.get(s.ip..s.tcp).unwrap_or(&[])) != 0xffff {
        return false;
    }
    match skb.csum {
        // Never on a wire, or verified there.
        Csum::Partial { .. } | Csum::Unnecessary => true,
        Csum::None => {
            let addresses = if s.ipv6 { s.ip + 8..s.ip + 40 } else { s.ip + 12..s.ip + 20 };
            let len = (skb.len() - s.tcp) as u32;
            let pseudo = pseudo_of(head.get(addresses).unwrap_or(&[]), proto::TCP, len);
            let good = checksum::combine(pseudo, sum_from(skb, s.tcp)) == 0xffff;
            if good {
                skb.csum = Csum::Unnecessary;
            }
            good
        }
    }
}

impl Held {
    fn new(skb: SkBuff, first: Segment) -> Self {
        let last_ident = get16(skb.head(), first.ip + 4);
        let next_seq = first.seq.wrapping_add(first.len as u32);
        Self { skb, first, segs: 1, next_seq, ident_step: None, last_ident }
    }

    /// Same link header, addresses and ports.
    fn same_flow(&self, skb: &SkBuff, s: &Segment) -> bool {
        let addresses = if s.ipv6 { s.ip + 8..s.ip + 40 } else { s.ip + 12..s.ip + 20 };
        self.first.ipv6 == s.ipv6
            && self.same(skb, addresses)
            && self.same(skb, s.tcp..s.tcp + 4)
            && self.same(skb, 0..s.ip)
    }

    fn same(&self, skb: &SkBuff, range: std::ops::Range<usize>) -> bool {
        self.skb.head().get(range.clone()).is_some_and(|a| skb.head().get(range) == Some(a))
    }

    /// Whether a mergeable segment of this flow continues what is held, with nothing between or different.
    fn accepts(&self, skb: &SkBuff, s: &Segment) -> bool {
        let network = if s.ipv6 {
            // Version, class and label; hop limit.
            self.same(skb, s.ip..s.ip + 4) && self.same(skb, s.ip + 7..s.ip + 8)
        } else {
            // Service; DF; time to live.
            self.same(skb, s.ip + 1..s.ip + 2)
                && self.same(skb, s.ip + 6..s.ip + 9)
                && self.ident_follows(skb, s)
        };
        let frags = self.skb.frags().len() + skb.frags().len() + usize::from(skb.headlen() > s.payload);
        network
            && s.seq == self.next_seq
            && self.first.payload == s.payload
            // Acknowledgement; window; options, so timestamps too.
            && self.same(skb, s.tcp + 8..s.tcp + 12)
            && self.same(skb, s.tcp + 14..s.tcp + 16)
            && self.same(skb, s.tcp + 20..s.payload)
            && (self.first.flags ^ s.flags) & !(CWR | FIN | PSH) == 0
            && s.flags & CWR == 0
            && s.len <= self.first.len
            && self.skb.len() - s.ip + s.len <= MAX_LEN
            && frags <= MAX_SKB_FRAGS
    }

    /// Identifications count up by one, as segmentation makes them, or with DF stay the same (RFC 6864 lets a
    /// sender do so, and nobody may look at them).
    fn ident_follows(&self, skb: &SkBuff, s: &Segment) -> bool {
        let step = get16(skb.head(), s.ip + 4).wrapping_sub(self.last_ident);
        let df = get16(skb.head(), s.ip + 6) & 0x4000 != 0;
        (step == 1 || (step == 0 && df)) && self.ident_step.is_none_or(|known| known == step)
    }

    /// Adds an accepted segment; true if nothing can follow it.
    fn merge(&mut self, mut skb: SkBuff, s: &Segment) -> bool {
        let ident = get16(skb.head(), s.ip + 4);
        self.ident_step.get_or_insert(ident.wrapping_sub(self.last_ident));
        self.last_ident = ident;
        skb.advance(s.payload);
        let fits = self.skb.append(skb).is_ok();
        debug_assert!(fits, "the number of fragments was checked");
        self.segs += 1;
        self.next_seq = self.next_seq.wrapping_add(s.len as u32);
        self.first.flags |= s.flags & (FIN | PSH);
        s.len < self.first.len || s.flags & (FIN | PSH) != 0
    }

    /// The packet to go up: marked and its lengths corrected if it is several.
    fn finish(self) -> SkBuff {
        let Held { mut skb, first, segs, .. } = self;
        if segs == 1 {
            return skb;
        }
        let kind = if first.ipv6 { GsoKind::Tcp6 } else { GsoKind::Tcp4 };
        skb.gso = Some(Gso { kind, size: first.len as u16, segs });
        skb.csum = Csum::Unnecessary;
        let total = skb.len() - first.ip;
        let head = skb.head_mut();
        if first.ipv6 {
            set16(head, first.ip + 4, (total - 40) as u16);
        } else {
            set16(head, first.ip + 2, total as u16);
            finish_ipv4(head, first.ip, first.tcp);
        }
        if let Some(flags) = head.get_mut(first.tcp + 13) {
            *flags = first.flags;
        }
        skb
    }
}

#[cfg(test)]
mod tests;
