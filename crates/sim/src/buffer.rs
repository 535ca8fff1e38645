//! Lent buffers that are poisoned when they are given back, and the contents of streams.

use std::sync::{Arc, Mutex};

use stack::skb::Lent;

/// What a buffer that was given back holds.
const POISON: u8 = 0xdb;

/// Buffers that were given back. They are kept until the world ends: whoever still reads one reads poison.
#[derive(Clone, Default)]
pub(crate) struct Graveyard(Arc<Mutex<Vec<Box<[u8]>>>>);

impl Graveyard {
    /// A lent buffer over `bytes`.
    pub(crate) fn lend(&self, bytes: Vec<u8>) -> Lent {
        Lent::from_owner(Buffer { bytes: bytes.into(), graveyard: self.clone() })
    }
}

struct Buffer {
    bytes: Box<[u8]>,
    graveyard: Graveyard,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.bytes.fill(POISON);
        if let Ok(mut buried) = self.graveyard.0.lock() {
            buried.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// Byte `offset` of stream `stream`. Never the poison.
pub(crate) fn content(stream: u64, offset: u64) -> u8 {
    let mixed = (offset ^ (stream << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let byte = (mixed >> 56) as u8;
    if byte == POISON { 0 } else { byte }
}

/// Bytes `[offset, offset + len)` of a stream.
pub(crate) fn stretch(stream: u64, offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| content(stream, offset + n)).collect()
}
