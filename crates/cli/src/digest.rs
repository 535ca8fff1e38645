//! The SHA-256 of a stream, on a thread of its own so that hashing does not slow the transfer's thread.

use sha2::{Digest, Sha256};

/// Hashes what it is given.
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash in hexadecimal.
    pub fn finish(self) -> String {
        self.0.finalize().iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// The hash of `data` repeated until `total` bytes.
pub fn of_repeated(data: &[u8], total: u64) -> String {
    let mut hasher = Hasher::default();
    let mut left = total;
    while left > 0 {
        let n = left.min(data.len() as u64) as usize;
        hasher.update(&data[..n]);
        left -= n as u64;
    }
    hasher.finish()
}
