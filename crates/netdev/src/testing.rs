//! Packets for tests.

use skb::{Csum, Frag, Gso, GsoKind, SkBuff};

use crate::gso::{finish_ipv4, pseudo_of, set16};
use crate::{DeviceInfo, Features, LinkKind};

pub(crate) fn info(features: Features, ethernet: bool) -> DeviceInfo {
    let link = if ethernet { LinkKind::Ethernet([2; 6]) } else { LinkKind::Ip };
    DeviceInfo { name: "test0".into(), mtu: 1500, link, features, gso_max_size: 65535 }
}

/// What a test packet is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) ipv6: bool,
    pub(crate) ethernet: bool,
    pub(crate) udp: bool,
    /// TCP option bytes (a multiple of 4).
    pub(crate) options: usize,
    pub(crate) seq: u32,
    pub(crate) ident: u16,
    pub(crate) flags: u8,
    pub(crate) port: u16,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            ipv6: false,
            ethernet: true,
            udp: false,
            options: 12,
            seq: 1000,
            ident: 7,
            flags: 0x10,
            port: 80,
        }
    }
}

impl Shape {
    pub(crate) fn transport(&self) -> usize {
        (if self.ethernet { 14 } else { 0 }) + if self.ipv6 { 40 } else { 20 }
    }

    pub(crate) fn headers(&self) -> usize {
        self.transport() + if self.udp { 8 } else { 20 + self.options }
    }

    pub(crate) fn kind(&self) -> GsoKind {
        match (self.udp, self.ipv6) {
            (true, _) => GsoKind::Udp,
            (false, false) => GsoKind::Tcp4,
            (false, true) => GsoKind::Tcp6,
        }
    }

    fn head(&self, payload: usize) -> Vec<u8> {
        let mut h = Vec::new();
        if self.ethernet {
            h.extend([1; 6]);
            h.extend([2; 6]);
            h.extend(if self.ipv6 { [0x86, 0xdd] } else { [8, 0] });
        }
        let ip = h.len();
        let len = self.headers() - self.transport() + payload;
        let protocol = if self.udp { 17 } else { 6 };
        let addresses = if self.ipv6 {
            h.extend([0x60, 1, 2, 3, 0, 0, protocol, 64]);
            set16(&mut h, ip + 4, len as u16);
            h.extend([0x20; 16]);
            h.extend([0x21; 16]);
            ip + 8..ip + 40
        } else {
            h.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            set16(&mut h, ip + 2, (20 + len) as u16);
            set16(&mut h, ip + 4, self.ident);
            finish_ipv4(&mut h, ip, ip + 20);
            ip + 12..ip + 20
        };
        let pseudo = pseudo_of(&h[addresses], protocol, len as u32);
        let t = h.len();
        h.resize(t + len - payload, 1);
        set16(&mut h, t, 4000);
        set16(&mut h, t + 2, self.port);
        if self.udp {
            set16(&mut h, t + 4, len as u16);
            set16(&mut h, t + 6, pseudo);
        } else {
            h[t + 4..t + 8].copy_from_slice(&self.seq.to_be_bytes());
            h[t + 12] = ((20 + self.options) / 4 * 16) as u8;
            h[t + 13] = self.flags;
            set16(&mut h, t + 16, pseudo);
        }
        h
    }

    /// A packet with its checksum left open and these fragments as payload.
    pub(crate) fn open(&self, frags: impl IntoIterator<Item = Frag>) -> SkBuff {
        let frags: Vec<_> = frags.into_iter().collect();
        let head = self.head(frags.iter().map(Frag::len).sum());
        let mut skb = SkBuff::new();
        // All of the head is free behind a push that is taken back.
        let room = skb.push(head.len()).unwrap();
        room.copy_from_slice(&head);
        for f in frags {
            skb.add_frag(f).unwrap();
        }
        skb.mac_len = if self.ethernet { 14 } else { 0 };
        let offset = if self.udp { 6 } else { 16 };
        skb.csum = Csum::Partial { start: self.transport() as u16, offset };
        skb
    }

    /// A large packet.
    pub(crate) fn large(&self, payload: &[u8], frag: usize, size: u16) -> SkBuff {
        let mut skb = self.open(payload.chunks(frag.max(1)).map(Frag::copied_from));
        let segs = payload.len().div_ceil(usize::from(size)).max(1) as u16;
        skb.gso = Some(Gso { kind: self.kind(), size, segs });
        skb
    }

    /// A frame as received from a wire, its checksums right and unverified.
    pub(crate) fn received(&self, payload: &[u8]) -> SkBuff {
        wire(finished(self.open([Frag::copied_from(payload)])))
    }
}

/// The packet with its checksum finished.
pub(crate) fn finished(skb: SkBuff) -> SkBuff {
    let mut out = crate::Conforming::new();
    let info = info(Features::SG, false);
    let _ = crate::validate_xmit(skb, &info, &crate::Taps::default(), &mut out).unwrap();
    assert_eq!(out.len(), 1);
    out.remove(0)
}

/// The packet after a trip over a wire.
pub(crate) fn wire(skb: SkBuff) -> SkBuff {
    SkBuff::from_frag(Frag::copied_from(&skb.to_vec()))
}

/// Whether a frame's transport checksum is right.
pub(crate) fn checksum_is_right(skb: &SkBuff, shape: &Shape) -> bool {
    let (t, v) = (shape.transport(), skb.to_vec());
    let addresses = if shape.ipv6 { t - 32..t } else { t - 8..t };
    let pseudo = pseudo_of(&v[addresses], if shape.udp { 17 } else { 6 }, (v.len() - t) as u32);
    ::wire::checksum::combine(pseudo, ::wire::checksum::sum(&v[t..])) == 0xffff
}
