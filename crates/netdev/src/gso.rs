//! Software segmentation: one large packet becomes the packets it stands for.
//!
//! The headers are built once and copied to each segment with what differs patched; the payload is sliced,
//! which counts references and copies nothing. Used where the device cannot segment, and for UDP always.

use skb::{Csum, Gso, GsoKind, SkBuff};
use wire::{checksum, proto};

/// FIN and PSH: they belong to the last byte, so to the last segment.
const FIN_PSH: u8 = 0x09;
/// CWR answers one ECE, so only the first segment carries it (RFC 3168, 6.1.2).
const CWR: u8 = 0x80;
/// Longest headers taken: link, IP and TCP, with all their options, fit a packet's headroom.
const MAX_HEADERS: usize = skb::HEADROOM;

/// A packet cannot be segmented: its marking and its bytes do not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoError {
    /// It is not marked as standing for several packets, or with a segment size of 0.
    NotGso,
    /// The headers are not those of the kind it is marked with, or not within reach.
    BadHeaders,
}

impl core::fmt::Display for GsoError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            GsoError::NotGso => "the packet does not stand for several",
            GsoError::BadHeaders => "the headers do not fit the kind of segmentation",
        })
    }
}

impl std::error::Error for GsoError {}

/// Where the headers of a packet lie, in bytes from its front.
#[derive(Clone, Copy, Debug)]
struct Layout {
    ip: usize,
    transport: usize,
    payload: usize,
    ipv6: bool,
    tcp: bool,
}

/// Cuts `skb` into packets of `gso.size` payload bytes each (the last may be smaller) and gives them to
/// `out` in order. Returns how many. Each has its checksum left to be finished ([`Csum::Partial`]), except
/// UDP datagrams over IPv4 that were sent without one.
///
/// `skb.mac_len` is the length of the link header. On error nothing was given out.
pub fn segment(skb: &mut SkBuff, mut out: impl FnMut(SkBuff)) -> Result<usize, GsoError> {
    let gso = skb.gso.filter(|g| g.size > 0).ok_or(GsoError::NotGso)?;
    let layout = layout(skb, gso)?;
    let mut headers = [0u8; MAX_HEADERS];
    let headers = headers.get_mut(..layout.payload).ok_or(GsoError::BadHeaders)?;
    headers.copy_from_slice(skb.may_pull(layout.payload).ok_or(GsoError::BadHeaders)?);

    let unsummed = !layout.tcp && skb.csum == Csum::None && get16(headers, layout.transport + 6) == 0;
    let size = usize::from(gso.size);
    let total = skb.len() - layout.payload;
    let count = total.div_ceil(size).max(1);
    for n in 0..count {
        let mut segment = skb.slice(layout.payload + n * size, size);
        let payload = segment.len();
        let room = segment.push(headers.len()).map_err(|_| GsoError::BadHeaders)?;
        room.copy_from_slice(headers);
        patch_ip(room, layout, payload, n);
        if layout.tcp {
            patch_tcp(room, layout.transport, (n * size) as u32, n == 0, n + 1 == count);
        } else {
            set16(room, layout.transport + 4, (8 + payload) as u16);
        }
        if !unsummed {
            let offset = if layout.tcp { 16 } else { 6 };
            set16(room, layout.transport + offset, pseudo(room, layout, payload));
            segment.csum = Csum::Partial { start: layout.transport as u16, offset: offset as u16 };
        }
        (segment.mac_len, segment.queue, segment.hash) = (skb.mac_len, skb.queue, skb.hash);
        out(segment);
    }
    Ok(count)
}

/// Finds the headers and checks that they are what the packet is marked as.
fn layout(skb: &mut SkBuff, gso: Gso) -> Result<Layout, GsoError> {
    let ip = usize::from(skb.mac_len);
    // Who leaves the checksum to the device says where the transport header is, behind any extension headers.
    let told = match skb.csum {
        Csum::Partial { start, .. } => Some(usize::from(start)),
        Csum::None | Csum::Unnecessary => None,
    };
    let fixed = skb.may_pull(ip + 20).ok_or(GsoError::BadHeaders)?;
    let first = *fixed.get(ip).ok_or(GsoError::BadHeaders)?;
    let (ipv6, natural) = match first >> 4 {
        4 => (false, ip + usize::from(first & 0xf) * 4),
        6 => (true, ip + 40),
        _ => return Err(GsoError::BadHeaders),
    };
    let tcp = match (gso.kind, ipv6) {
        (GsoKind::Tcp4, false) | (GsoKind::Tcp6, true) => true,
        (GsoKind::Udp, _) => false,
        (GsoKind::Tcp4 | GsoKind::Tcp6, _) => return Err(GsoError::BadHeaders),
    };
    let transport = told.unwrap_or(natural);
    if natural < ip + 20 || transport < natural || (!ipv6 && transport != natural) {
        return Err(GsoError::BadHeaders);
    }
    let protocol = if tcp { proto::TCP } else { proto::UDP };
    let smallest = if tcp { 20 } else { 8 };
    let headers = skb.may_pull(transport + smallest).ok_or(GsoError::BadHeaders)?;
    let named = headers.get(if ipv6 { ip + 6 } else { ip + 9 });
    if transport == natural && named != Some(&protocol) {
        return Err(GsoError::BadHeaders);
    }
    let payload = if tcp {
        transport + usize::from(headers.get(transport + 12).ok_or(GsoError::BadHeaders)? >> 4) * 4
    } else {
        transport + 8
    };
    if payload < transport + smallest || payload > skb.len() {
        return Err(GsoError::BadHeaders);
    }
    Ok(Layout { ip, transport, payload, ipv6, tcp })
}

/// Length, identification and checksum of segment `n`'s IP header.
fn patch_ip(headers: &mut [u8], l: Layout, payload: usize, n: usize) {
    if l.ipv6 {
        set16(headers, l.ip + 4, (l.payload - l.ip - 40 + payload) as u16);
        return;
    }
    set16(headers, l.ip + 2, (l.payload - l.ip + payload) as u16);
    let ident = get16(headers, l.ip + 4);
    set16(headers, l.ip + 4, ident.wrapping_add(n as u16));
    finish_ipv4(headers, l.ip, l.transport);
}

/// Recomputes the checksum of the IPv4 header at `[ip, end)`.
pub(crate) fn finish_ipv4(headers: &mut [u8], ip: usize, end: usize) {
    set16(headers, ip + 10, 0);
    let sum = checksum::sum(headers.get(ip..end).unwrap_or(&[]));
    set16(headers, ip + 10, checksum::finish(sum));
}

fn patch_tcp(headers: &mut [u8], tcp: usize, ahead: u32, first: bool, last: bool) {
    if let Some(seq) = headers.get_mut(tcp + 4..).and_then(|b| b.first_chunk_mut::<4>()) {
        *seq = u32::from_be_bytes(*seq).wrapping_add(ahead).to_be_bytes();
    }
    if let Some(flags) = headers.get_mut(tcp + 13) {
        *flags &= if last { 0xff } else { !FIN_PSH };
        *flags &= if first { 0xff } else { !CWR };
    }
}

/// The pseudo-header's sum for a segment with `payload` bytes.
fn pseudo(headers: &[u8], l: Layout, payload: usize) -> u16 {
    let addresses = if l.ipv6 { l.ip + 8..l.ip + 40 } else { l.ip + 12..l.ip + 20 };
    let protocol = if l.tcp { proto::TCP } else { proto::UDP };
    let len = (l.payload - l.transport + payload) as u32;
    pseudo_of(headers.get(addresses).unwrap_or(&[]), protocol, len)
}

/// The pseudo-header's sum: source and destination `addresses` one behind the other, transport `len`.
pub(crate) fn pseudo_of(addresses: &[u8], protocol: u8, len: u32) -> u16 {
    let len = checksum::combine((len >> 16) as u16, len as u16);
    checksum::combine(checksum::sum(addresses), checksum::combine(u16::from(protocol), len))
}

pub(crate) fn get16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk::<2>()).map_or(0, |b| u16::from_be_bytes(*b))
}

pub(crate) fn get32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk::<4>()).map_or(0, |b| u32::from_be_bytes(*b))
}

pub(crate) fn set16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(b) = bytes.get_mut(at..).and_then(|b| b.first_chunk_mut::<2>()) {
        *b = value.to_be_bytes();
    }
}

#[cfg(test)]
mod tests;
