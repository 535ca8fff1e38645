//! A buffer given to a send by value.

use std::sync::Arc;

use bytes::Bytes;

/// A buffer on its way into the stack: owned, shared, immutable. While it is lent nobody can change it,
/// which is why the bug of changing lent memory does not compile in safe Rust.
#[derive(Clone, Debug)]
pub struct Lent(Bytes);

impl Lent {
    /// Lends whatever owns bytes that do not move while it lives: an mmap, a slab slot, a page of a cache.
    /// The owner is dropped when the call completes.
    pub fn from_owner<T: AsRef<[u8]> + Send + 'static>(owner: T) -> Lent {
        Lent(Bytes::from_owner(owner))
    }

    /// Bytes to be sent.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True for an empty buffer.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }

    /// The shared buffer itself.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<Bytes> for Lent {
    fn from(b: Bytes) -> Self {
        Lent(b)
    }
}

impl From<Vec<u8>> for Lent {
    fn from(v: Vec<u8>) -> Self {
        Lent(Bytes::from(v))
    }
}

impl From<Box<[u8]>> for Lent {
    fn from(b: Box<[u8]>) -> Self {
        Lent(Bytes::from(b))
    }
}

impl From<Arc<[u8]>> for Lent {
    fn from(a: Arc<[u8]>) -> Self {
        Lent::from_owner(a)
    }
}

impl From<String> for Lent {
    fn from(s: String) -> Self {
        Lent(Bytes::from(s))
    }
}

impl From<&'static [u8]> for Lent {
    fn from(s: &'static [u8]) -> Self {
        Lent(Bytes::from_static(s))
    }
}

impl From<&'static str> for Lent {
    fn from(s: &'static str) -> Self {
        Lent(Bytes::from_static(s.as_bytes()))
    }
}
