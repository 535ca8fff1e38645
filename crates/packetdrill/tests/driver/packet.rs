//! TCP segments as scripts write them: sequence numbers count from 0 on both sides.

use std::net::{IpAddr, SocketAddr};

use wire::ipv4::Ipv4Header;
use wire::ipv6::Ipv6Header;
use wire::tcp::{TcpFlags, TcpHeader, TcpOptions, Timestamps};
use wire::{SeqNum, checksum};

const TCP: u8 = 6;

/// A segment; its payload is zeros, as all of packetdrill's is.
#[derive(Clone, Debug, Default)]
pub struct Seg {
    pub flags: TcpFlags,
    pub seq: u32,
    pub len: usize,
    pub ack: u32,
    pub window: Option<u16>,
    pub options: TcpOptions,
    /// Options are compared.
    pub options_matter: bool,
}

/// `seg("P.", 1, 1000)` is `P. 1:1001(1000)`.
pub fn seg(flags: &str, seq: u32, len: usize) -> Seg {
    let flag = |c| match c {
        'S' => TcpFlags::SYN,
        'F' => TcpFlags::FIN,
        'R' => TcpFlags::RST,
        'P' => TcpFlags::PSH,
        '.' => TcpFlags::ACK,
        'E' => TcpFlags::ECE,
        'W' => TcpFlags::CWR,
        other => panic!("{other}"),
    };
    Seg { flags: flags.chars().map(flag).collect(), seq, len, ..Seg::default() }
}

impl Seg {
    pub fn ack(self, ack: u32) -> Self {
        Self { ack, ..self }
    }

    pub fn win(self, window: u16) -> Self {
        Self { window: Some(window), ..self }
    }

    fn with(mut self, change: impl FnOnce(&mut TcpOptions)) -> Self {
        change(&mut self.options);
        self.options_matter = true;
        self
    }

    pub fn mss(self, mss: u16) -> Self {
        self.with(|o| o.mss = Some(mss))
    }

    pub fn sack_permitted(self) -> Self {
        self.with(|o| o.sack_permitted = true)
    }

    pub fn wscale(self, shift: u8) -> Self {
        self.with(|o| o.window_scale = Some(shift))
    }

    /// With a timestamp; the echo is the last value seen.
    pub fn ts(self, val: u32) -> Self {
        self.with(|o| o.timestamps = Some(Timestamps { val, ecr: 0 }))
    }

    pub fn sack(self, from: u32, to: u32) -> Self {
        self.with(|o| o.sack.push((SeqNum(from), SeqNum(to))))
    }

    /// No options at all.
    pub fn bare(self) -> Self {
        self.with(|_| {})
    }

    /// The packet on the wire: `iss` is what the acknowledged numbers count from.
    pub fn to_packet(&self, src: SocketAddr, dst: SocketAddr, iss: u32, ts_recent: u32) -> Vec<u8> {
        let mut options = self.options.clone();
        for (from, to) in &mut options.sack {
            (from.0, to.0) = (from.0.wrapping_add(iss), to.0.wrapping_add(iss));
        }
        if let Some(ts) = &mut options.timestamps {
            ts.ecr = ts_recent;
        }
        let acks = self.flags.contains(TcpFlags::ACK);
        let header = TcpHeader {
            src_port: src.port(),
            dst_port: dst.port(),
            seq: SeqNum(self.seq),
            ack: SeqNum(if acks { self.ack.wrapping_add(iss) } else { 0 }),
            flags: self.flags,
            window: self.window.unwrap_or(65535),
            urgent: 0,
            options,
        };
        let mut tcp = vec![0; header.header_len() + self.len];
        header.emit(&mut tcp);
        let pseudo = checksum::pseudo(src.ip(), dst.ip(), TCP, tcp.len() as u32);
        let sum = checksum::finish(checksum::combine(pseudo, checksum::sum(&tcp)));
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        ip_packet(src.ip(), dst.ip(), TCP, &tcp)
    }
}

/// An IP packet as packetdrill makes them.
pub fn ip_packet(src: IpAddr, dst: IpAddr, proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = Ipv4Header {
                tos: 0,
                total_len: (20 + payload.len()) as u16,
                ident: 0,
                dont_fragment: false,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 255,
                proto,
                src,
                dst,
            };
            let mut out = vec![0; 20];
            header.emit(&mut out);
            out
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = Ipv6Header {
                traffic_class: 0,
                flow_label: 0,
                payload_len: payload.len() as u16,
                next_header: proto,
                hop_limit: 255,
                src,
                dst,
            };
            let mut out = vec![0; 40];
            header.emit(&mut out);
            out
        }
        _ => panic!("two families"),
    };
    out.extend_from_slice(payload);
    out
}

/// Reads a packet of the stack's, as strictly as packetdrill does.
pub fn parse(bytes: &[u8]) -> (SocketAddr, SocketAddr, Seg) {
    let (src, dst, tcp): (IpAddr, IpAddr, &[u8]) = match bytes[0] >> 4 {
        4 => {
            let (ip, len) = Ipv4Header::parse(bytes).unwrap();
            assert_eq!(usize::from(ip.total_len), bytes.len());
            assert!(!ip.is_fragment() && ip.proto == TCP);
            (ip.src.into(), ip.dst.into(), &bytes[len..])
        }
        6 => {
            let ip = Ipv6Header::parse(bytes).unwrap();
            assert_eq!(40 + usize::from(ip.payload_len), bytes.len());
            assert_eq!(ip.next_header, TCP);
            (ip.src.into(), ip.dst.into(), &bytes[40..])
        }
        _ => panic!("no IP packet: {bytes:?}"),
    };
    let (header, len) = TcpHeader::parse(tcp).unwrap();
    assert!(tcp[len..].iter().all(|b| *b == 0), "the payload is what was written");
    let segment = Seg {
        flags: header.flags,
        seq: header.seq.0,
        len: tcp.len() - len,
        ack: header.ack.0,
        window: Some(header.window),
        options: header.options,
        options_matter: true,
    };
    (SocketAddr::new(src, header.src_port), SocketAddr::new(dst, header.dst_port), segment)
}
