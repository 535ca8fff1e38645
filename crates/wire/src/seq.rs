//! TCP sequence numbers: a circle, not a line.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A sequence number (RFC 9293, 3.4). It has no `Ord`: on a circle nothing is greater, only *after* by less
/// than half of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// Whether this lies before `other`.
    pub fn before(self, other: SeqNum) -> bool {
        self - other < 0
    }
    /// Whether this lies before `other` or is it.
    pub fn before_eq(self, other: SeqNum) -> bool {
        self - other <= 0
    }
    /// Whether this lies after `other`.
    pub fn after(self, other: SeqNum) -> bool {
        self - other > 0
    }
    /// Whether this lies after `other` or is it.
    pub fn after_eq(self, other: SeqNum) -> bool {
        self - other >= 0
    }
    /// Bytes from `earlier` to this; 0 if `earlier` is in fact later.
    pub fn since(self, earlier: SeqNum) -> u32 {
        (self - earlier).max(0) as u32
    }
    /// The later of two.
    pub fn max(self, other: SeqNum) -> SeqNum {
        if self.after(other) { self } else { other }
    }
    /// The earlier of two.
    pub fn min(self, other: SeqNum) -> SeqNum {
        if self.before(other) { self } else { other }
    }
    /// Whether this lies in `[start, end)`.
    pub fn within(self, start: SeqNum, end: SeqNum) -> bool {
        self.0.wrapping_sub(start.0) < end.0.wrapping_sub(start.0)
    }
}

impl Add<u32> for SeqNum {
    type Output = SeqNum;
    fn add(self, n: u32) -> SeqNum {
        SeqNum(self.0.wrapping_add(n))
    }
}

impl AddAssign<u32> for SeqNum {
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}

impl Sub<u32> for SeqNum {
    type Output = SeqNum;
    fn sub(self, n: u32) -> SeqNum {
        SeqNum(self.0.wrapping_sub(n))
    }
}

impl Sub<SeqNum> for SeqNum {
    type Output = i32;
    /// The signed distance from `other` to this.
    fn sub(self, other: SeqNum) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_holds_for_less_than_half_the_circle(a: u32, d in 1u32..(1 << 31)) {
            let (x, y) = (SeqNum(a), SeqNum(a) + d);
            prop_assert!(x.before(y) && y.after(x) && !y.before(x) && x != y);
            prop_assert_eq!(y.since(x), d);
            prop_assert_eq!(x.since(y), 0);
            prop_assert_eq!((x.max(y), x.min(y)), (y, x));
            prop_assert_eq!(y - d, x);
        }

        #[test]
        fn within_is_half_open(a: u32, len in 0u32..1000, off in 0u32..2000) {
            let s = SeqNum(a);
            prop_assert_eq!((s + off).within(s, s + len), off < len);
        }
    }
}
