//! The Internet checksum over private memory (RFC 1071), for packets whose device does not sum.

/// Ones'-complement sum of `bytes` as big-endian 16-bit words, folded, not inverted. An odd last byte
/// counts as the high half of a word.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut total: u64 = 0;
    let mut chunks = bytes.chunks_exact(4);
    for c in &mut chunks {
        total += u64::from(u32::from_ne_bytes([c[0], c[1], c[2], c[3]]));
    }
    let mut tail = [0u8; 4];
    let rest = chunks.remainder();
    tail[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(tail));
    fold(total).to_be()
}

fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// Joins the sum of a first part with that of a second part that began at an odd or even offset.
pub(crate) fn combine(first: u16, second: u16, second_is_odd: bool) -> u16 {
    let second = if second_is_odd { second.swap_bytes() } else { second };
    fold(u64::from(first) + u64::from(second))
}
