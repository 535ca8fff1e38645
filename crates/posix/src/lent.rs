//! Lent memory that the program takes away: for whoever stands in front of `munmap` and `free`.

use stack::skb::evict;

/// From now on lent memory is watched over.
pub fn watch() {
    evict::enable();
}

/// Whether anything is lent. Cheap.
#[inline]
pub fn is_any() -> bool {
    evict::is_any_lent()
}

/// The memory `[start, start + len)` is about to go: what is lent there is copied first.
pub fn evict(start: usize, len: usize) {
    evict::evict(start, len);
}
