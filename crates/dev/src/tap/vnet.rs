//! The virtio header in front of each packet: `struct virtio_net_hdr` of `linux/virtio_net.h`, in the
//! machine's byte order as TUN has it by default.

use skb::{Csum, Gso, GsoKind, SkBuff};

use crate::hdr::ETH_LEN;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Header fields as the kernel names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VnetHeader {
    pub(crate) flags: u8,
    pub(crate) gso_type: u8,
    pub(crate) hdr_len: u16,
    pub(crate) gso_size: u16,
    pub(crate) csum_start: u16,
    pub(crate) csum_offset: u16,
}

impl VnetHeader {
    pub(crate) const LEN: usize = 10;

    /// What the kernel must know of a packet to be sent.
    pub(crate) fn of(skb: &SkBuff, ethernet: bool) -> VnetHeader {
        let mut h = VnetHeader::default();
        if let Csum::Partial { start, offset } = skb.csum {
            (h.flags, h.csum_start, h.csum_offset) = (F_NEEDS_CSUM, start, offset);
        }
        let Some(gso) = skb.gso else { return h };
        h.gso_size = gso.size;
        h.gso_type = match gso.kind {
            GsoKind::Tcp4 => GSO_TCPV4,
            GsoKind::Tcp6 => GSO_TCPV6,
            GsoKind::Udp => GSO_UDP_L4,
        };
        // How much the kernel makes linear. All headers are in the head, which is what it wants to see.
        h.hdr_len = transport_end(skb.head(), h, gso.kind, ethernet);
        h
    }

    /// What a received header says about `frame`.
    pub(crate) fn received(self, frame: &[u8]) -> (Csum, Option<Gso>) {
        let trusted = self.flags & (F_NEEDS_CSUM | F_DATA_VALID) != 0;
        let csum = if trusted { Csum::Unnecessary } else { Csum::None };
        let kind = match self.gso_type & !GSO_ECN {
            GSO_TCPV4 => GsoKind::Tcp4,
            GSO_TCPV6 => GsoKind::Tcp6,
            GSO_UDP_L4 => GsoKind::Udp,
            _ => return (csum, None),
        };
        let headers = usize::from(transport_end(frame, self, kind, true));
        let segs = frame.len().saturating_sub(headers).div_ceil(usize::from(self.gso_size.max(1)));
        let segs = u16::try_from(segs.max(1)).unwrap_or(u16::MAX);
        (csum, Some(Gso { kind, size: self.gso_size, segs }))
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut b = [0; Self::LEN];
        (b[0], b[1]) = (self.flags, self.gso_type);
        let fields = [self.hdr_len, self.gso_size, self.csum_start, self.csum_offset];
        for (to, from) in b[2..].chunks_exact_mut(2).zip(fields) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        b
    }

    pub(crate) fn from_bytes(b: &[u8; Self::LEN]) -> VnetHeader {
        let field = |i: usize| u16::from_ne_bytes([b[i], b[i + 1]]);
        VnetHeader {
            flags: b[0],
            gso_type: b[1],
            hdr_len: field(2),
            gso_size: field(4),
            csum_start: field(6),
            csum_offset: field(8),
        }
    }
}

/// Bytes of all headers of a GSO frame, from its transport header where the checksum says where that is.
fn transport_end(frame: &[u8], h: VnetHeader, kind: GsoKind, ethernet: bool) -> u16 {
    let start = if h.flags & F_NEEDS_CSUM != 0 {
        usize::from(h.csum_start)
    } else {
        let link = if ethernet { ETH_LEN } else { 0 };
        link + if kind == GsoKind::Tcp6 { 40 } else { 20 }
    };
    let transport = match kind {
        GsoKind::Udp => 8,
        GsoKind::Tcp4 | GsoKind::Tcp6 => frame.get(start + 12).map_or(20, |b| usize::from(b >> 4) * 4),
    };
    u16::try_from((start + transport).min(frame.len())).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_its_bytes() {
        let h = VnetHeader {
            flags: 1,
            gso_type: 4,
            hdr_len: 86,
            gso_size: 1428,
            csum_start: 54,
            csum_offset: 16,
        };
        assert_eq!(VnetHeader::from_bytes(&h.to_bytes()), h);
    }

    #[test]
    fn a_large_packet_names_its_headers_and_segments() {
        let mut skb = SkBuff::new();
        let mut head = [0u8; 66];
        head[34 + 12] = 8 << 4;
        skb.put(&head).unwrap();
        skb.add_frag(skb::Frag::copied_from(&[0; 3000])).unwrap();
        skb.csum = Csum::Partial { start: 34, offset: 16 };
        skb.gso = Some(Gso { kind: GsoKind::Tcp4, size: 1448, segs: 3 });
        let h = VnetHeader::of(&skb, true);
        assert_eq!(
            (h.flags, h.gso_type, h.hdr_len, h.gso_size, h.csum_start, h.csum_offset),
            (1, 1, 66, 1448, 34, 16)
        );
        let (csum, gso) = h.received(&skb.to_vec());
        assert_eq!((csum, gso), (Csum::Unnecessary, skb.gso));
    }

    #[test]
    fn a_plain_packet_has_a_plain_header() {
        assert_eq!(VnetHeader::of(&SkBuff::from_slice(&[0; 60]), true), VnetHeader::default());
        assert_eq!(VnetHeader::default().received(&[0; 60]), (Csum::None, None));
    }

    #[test]
    fn hostile_headers_are_harmless() {
        for b in [[0xff; 10], [1, 1, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]] {
            let _ = VnetHeader::from_bytes(&b).received(&[0; 20]);
            let _ = VnetHeader::from_bytes(&b).received(&[]);
        }
    }
}
