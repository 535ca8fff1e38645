//! The few header fields that devices which stand for a peer ([`crate::reflector`], [`crate::bare`]) read
//! and write, straight in the bytes.
//!
//! Both are measuring instruments: what they cost is part of every figure. So they look at five fields
//! of a TCP segment and parse no more. Everything is bounds-checked by `get`.

use std::net::IpAddr;

pub(crate) const ETH_LEN: usize = 14;
pub(crate) const ETH_IPV4: u16 = 0x0800;
pub(crate) const ETH_ARP: u16 = 0x0806;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;

const PROTO_TCP: u8 = 6;

pub(crate) fn be16(b: &[u8], at: usize) -> Option<u16> {
    b.get(at..)?.first_chunk().map(|c| u16::from_be_bytes(*c))
}

pub(crate) fn be32(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..)?.first_chunk().map(|c| u32::from_be_bytes(*c))
}

/// The network layer of a packet without its link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub(crate) src: IpAddr,
    pub(crate) dst: IpAddr,
    /// Bytes of IP header, options included. Extension headers of IPv6 are not followed.
    pub(crate) header: usize,
    pub(crate) proto: u8,
}

impl Ip {
    pub(crate) fn parse(b: &[u8]) -> Option<Ip> {
        match b.first()? >> 4 {
            4 => {
                let header = usize::from(b.first()? & 15) * 4;
                let src = *b.get(12..)?.first_chunk::<4>()?;
                let dst = *b.get(16..)?.first_chunk::<4>()?;
                Some(Ip { src: src.into(), dst: dst.into(), header, proto: *b.get(9)? })
            }
            6 => {
                let src = *b.get(8..)?.first_chunk::<16>()?;
                let dst = *b.get(24..)?.first_chunk::<16>()?;
                Some(Ip { src: src.into(), dst: dst.into(), header: 40, proto: *b.get(6)? })
            }
            _ => None,
        }
    }
}

/// What a peer must know of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tcp {
    pub(crate) src_port: u16,
    pub(crate) dst_port: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// Bytes of TCP header, options included.
    pub(crate) header: usize,
}

impl Tcp {
    /// The segment behind `ip` in `b`; `None` for anything but TCP, or cut short.
    pub(crate) fn parse(ip: &Ip, b: &[u8]) -> Option<Tcp> {
        if ip.proto != PROTO_TCP {
            return None;
        }
        let t: &[u8; 20] = b.get(ip.header..)?.first_chunk()?;
        Some(Tcp {
            src_port: u16::from_be_bytes([t[0], t[1]]),
            dst_port: u16::from_be_bytes([t[2], t[3]]),
            seq: u32::from_be_bytes([t[4], t[5], t[6], t[7]]),
            ack: u32::from_be_bytes([t[8], t[9], t[10], t[11]]),
            header: usize::from(t[12] >> 4) * 4,
            flags: t[13],
            window: u16::from_be_bytes([t[14], t[15]]),
        })
    }
}

/// The TCP options both instruments understand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) mss: Option<u16>,
    pub(crate) wscale: Option<u8>,
    pub(crate) sack: bool,
    pub(crate) timestamp: Option<u32>,
}

impl Options {
    pub(crate) fn parse(mut b: &[u8]) -> Options {
        let mut o = Options::default();
        while let Some(&kind) = b.first() {
            if kind == 1 {
                b = &b[1..];
                continue;
            }
            let len = b.get(1).map_or(0, |l| usize::from(*l));
            let (Some(option), 2.., 1..) = (b.get(..len), len, kind) else { break };
            match (kind, len) {
                (2, 4) => o.mss = be16(option, 2),
                (3, 3) => o.wscale = option.get(2).copied(),
                (4, 2) => o.sack = true,
                (8, 10) => o.timestamp = be32(option, 2),
                _ => {}
            }
            b = &b[len..];
        }
        o
    }
}

/// A packet without payload being put together, at most as large as a packet's head.
pub(crate) struct Build {
    bytes: [u8; 96],
    len: usize,
}

impl Build {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; 96], len: 0 }
    }

    pub(crate) fn put(&mut self, b: &[u8]) -> &mut Self {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + b.len()) {
            room.copy_from_slice(b);
            self.len += b.len();
        }
        self
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(..self.len).unwrap_or(&mut [])
    }

    /// An IP header in front of `payload` bytes of TCP. Addresses of different families give nothing.
    pub(crate) fn ip(&mut self, src: IpAddr, dst: IpAddr, payload: usize) -> &mut Self {
        match (src, dst) {
            (IpAddr::V4(s), IpAddr::V4(d)) => {
                let mut h = [0u8; 20];
                h[0] = 0x45;
                h[2..4].copy_from_slice(&(20 + payload as u16).to_be_bytes());
                h[6] = 0x40; // do not fragment
                h[8] = 64;
                h[9] = PROTO_TCP;
                h[12..16].copy_from_slice(&s.octets());
                h[16..20].copy_from_slice(&d.octets());
                let sum = !fold(sum(&h));
                h[10..12].copy_from_slice(&sum.to_be_bytes());
                self.put(&h)
            }
            (IpAddr::V6(s), IpAddr::V6(d)) => {
                self.put(&[0x60, 0, 0, 0]).put(&(payload as u16).to_be_bytes());
                self.put(&[PROTO_TCP, 64]).put(&s.octets()).put(&d.octets())
            }
            _ => self,
        }
    }

    /// A TCP header with `options` (a multiple of four bytes), checksum zero.
    pub(crate) fn tcp(&mut self, t: &Tcp, options: &[u8]) -> &mut Self {
        self.put(&t.src_port.to_be_bytes()).put(&t.dst_port.to_be_bytes());
        self.put(&t.seq.to_be_bytes()).put(&t.ack.to_be_bytes());
        let words = (20 + options.len()) / 4;
        self.put(&[(words as u8) << 4, t.flags]).put(&t.window.to_be_bytes());
        self.put(&[0; 4]).put(options)
    }
}

/// Ones'-complement sum in 32 bits; at most 64 KB.
pub(crate) fn sum(b: &[u8]) -> u32 {
    let (pairs, rest) = b.as_chunks::<2>();
    let last = rest.first().map_or(0, |b| u32::from(*b) << 8);
    pairs.iter().map(|c| u32::from(u16::from_be_bytes(*c))).sum::<u32>() + last
}

/// Folds a sum into 16 bits.
pub(crate) fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The pseudo-header's sum for `len` bytes of TCP: what a `Csum::Partial` packet holds in its field.
pub(crate) fn pseudo(src: IpAddr, dst: IpAddr, len: u32) -> u16 {
    let addresses = match (src, dst) {
        (IpAddr::V4(s), IpAddr::V4(d)) => sum(&s.octets()) + sum(&d.octets()),
        (IpAddr::V6(s), IpAddr::V6(d)) => sum(&s.octets()) + sum(&d.octets()),
        _ => 0,
    };
    fold(addresses + u32::from(PROTO_TCP) + (len >> 16) + (len & 0xffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_what_is_parsed() {
        for (s, d) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
            let (s, d): (IpAddr, IpAddr) = (s.parse().unwrap(), d.parse().unwrap());
            let t = Tcp { src_port: 1, dst_port: 2, seq: 3, ack: 4, flags: SYN, window: 5, header: 0 };
            let mut b = Build::new();
            b.ip(s, d, 40).tcp(&t, &[2, 4, 5, 0xb4, 3, 3, 14, 1, 1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0]);
            let ip = Ip::parse(b.bytes()).unwrap();
            assert_eq!((ip.src, ip.dst), (s, d));
            let p = Tcp::parse(&ip, b.bytes()).unwrap();
            assert_eq!((p.seq, p.ack, p.flags, p.window, p.header), (3, 4, SYN, 5, 40));
            let o = Options::parse(&b.bytes()[ip.header + 20..]);
            assert_eq!(o, Options { mss: Some(1460), wscale: Some(14), sack: false, timestamp: Some(9) });
        }
    }

    #[test]
    fn hostile_options_end_the_parse() {
        for bad in [&[2u8][..], &[2, 0, 1], &[8, 1], &[5, 200, 1], &[3, 3], &[0, 2, 4]] {
            let _ = Options::parse(bad);
        }
        assert!(Ip::parse(&[]).is_none());
        assert!(Ip::parse(&[0x45; 10]).is_none());
    }
}
