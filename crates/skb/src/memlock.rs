//! The bound on lent bytes, per user, over all sockets of the stack.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes may be lent at once (`RLIMIT_MEMLOCK`), and how many are.
#[derive(Debug)]
pub struct MemLock {
    limit: u64,
    used: AtomicU64,
}

impl MemLock {
    /// A bound of `limit` bytes; `u64::MAX` for a user with `CAP_IPC_LOCK`.
    pub fn new(limit: u64) -> Self {
        Self { limit, used: AtomicU64::new(0) }
    }

    /// The bound in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes lent now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How much a socket may keep of what its completed calls had charged: little enough that the bound is
    /// still one for all sockets.
    pub(crate) fn most_credit(&self) -> u64 {
        (self.limit / 64).min(4 << 20)
    }

    /// Takes `bytes` if they fit under the bound.
    pub(crate) fn charge(&self, bytes: u64) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.checked_add(bytes).is_some_and(|sum| sum <= self.limit);
        if !fits {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Gives back what `charge` took.
    pub(crate) fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
