//! The Internet checksum (RFC 1071).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ones'-complement sum of `bytes` as big-endian 16-bit words, folded, not inverted. An odd last byte counts
/// as the high half of a word.
pub fn sum(bytes: &[u8]) -> u16 {
    // Sums commute with byte order (RFC 1071, 2(B)): add native words, swap once. Eight lanes let the
    // compiler use vectors.
    let mut lanes = [0u64; 8];
    let mut chunks = bytes.chunks_exact(32);
    for chunk in &mut chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk.chunks_exact(4)) {
            *lane += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
    }
    let mut total: u64 = lanes.iter().sum();
    let mut words = chunks.remainder().chunks_exact(2);
    for word in &mut words {
        total += u64::from(u16::from_ne_bytes([word[0], word[1]]));
    }
    if let [last] = words.remainder() {
        total += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    fold(total).to_be()
}

/// Adds two folded sums.
pub fn combine(a: u16, b: u16) -> u16 {
    fold(u64::from(a) + u64::from(b))
}

/// Adds the sum `b` of bytes that begin at an odd offset behind those of `a`.
pub fn combine_odd(a: u16, b: u16) -> u16 {
    combine(a, b.swap_bytes())
}

/// The checksum field's value for a sum.
pub fn finish(sum: u16) -> u16 {
    !sum
}

/// Sum of a pseudo-header (RFC 9293, 3.1; RFC 8200, 8.1). `len` is that of the transport header and data.
/// Both addresses are of one family; a mixed pair gives the sum of what it has.
pub fn pseudo(src: IpAddr, dst: IpAddr, proto: u8, len: u32) -> u16 {
    let address = |a: IpAddr| match a {
        IpAddr::V4(a) => pseudo_v4_half(a),
        IpAddr::V6(a) => pseudo_v6_half(a),
    };
    let len = combine((len >> 16) as u16, len as u16);
    combine(combine(address(src), address(dst)), combine(u16::from(proto), len))
}

fn pseudo_v4_half(a: Ipv4Addr) -> u16 {
    sum(&a.octets())
}

fn pseudo_v6_half(a: Ipv6Addr) -> u16 {
    sum(&a.octets())
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(bytes: &[u8]) -> u16 {
        let total = bytes
            .chunks(2)
            .fold(0u64, |t, c| t + (u64::from(c[0]) << 8) + u64::from(c.get(1).copied().unwrap_or(0)));
        fold(total)
    }

    proptest! {
        #[test]
        fn sums_agree_with_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..300), skip in 0usize..8) {
            let bytes = bytes.get(skip..).unwrap_or(&[]);
            prop_assert_eq!(sum(bytes), naive(bytes));
        }

        #[test]
        fn sums_of_parts_combine(bytes in prop::collection::vec(any::<u8>(), 1..200), at in 0usize..200) {
            let (a, b) = bytes.split_at(at % bytes.len());
            let joined = if a.len() % 2 == 0 { combine(sum(a), sum(b)) } else { combine_odd(sum(a), sum(b)) };
            prop_assert_eq!(joined, naive(&bytes));
        }
    }

    #[test]
    fn a_known_header_sums_to_its_checksum() {
        // The IPv4 header of an SSDP packet, a worked example found in many texts.
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8, 0x00, 0x01,
            0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(finish(sum(&header)), 0xb861);
    }
}
