//! The one file that touches memory which somebody else may be writing, or which is shared while a part
//! of it is still being filled.
//!
//! Contract. A [`Span`] names memory by address; whoever makes one guarantees that the memory stays
//! mapped and readable until the owner that travels with the span (in a [`Frag`](crate::Frag)) is dropped.
//! The *contents* may change at any time. This file therefore never makes a reference to a span's bytes:
//! it copies them out with raw copies, and callers look only at the copies. A [`PageWriter`] is the single
//! writer of its page and writes only above the mark below which frozen fragments read.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::pool::PageRef;

/// A span of memory known only by address and length. It is not a borrow and keeps nothing alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: a Span is an address and a length. Reading through it happens only in this file, under the
// contract above, which does not depend on the thread. Test: spans_are_read_from_other_threads.
unsafe impl Send for Span {}
// SAFETY: as above; a Span has no interior state.
unsafe impl Sync for Span {}

impl Span {
    /// Names `len` bytes at `ptr`.
    ///
    /// # Safety
    /// The memory must stay mapped and readable until the owner this span is stored with is dropped (for
    /// a lent send: until the call's completion).
    pub unsafe fn new(ptr: *const u8, len: usize) -> Option<Span> {
        NonNull::new(ptr.cast_mut()).map(|ptr| Span { ptr, len })
    }

    /// Names the bytes of `slice`. Reading them later needs an owner; see the module's contract.
    pub(crate) fn of(slice: &[u8]) -> Span {
        Span { ptr: NonNull::from(slice).cast(), len: slice.len() }
    }

    /// Bytes in the span.
    pub fn len(self) -> usize {
        self.len
    }

    /// True for a span of no bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The address, for a device's iovec.
    pub fn as_ptr(self) -> *const u8 {
        self.ptr.as_ptr()
    }

    /// The part `[off, off + len)`, cut to what the span has.
    pub fn slice(self, off: usize, len: usize) -> Span {
        let off = off.min(self.len);
        // SAFETY: off <= self.len, so the result stays inside (or one past) the span's allocation.
        // Test: a_slice_stays_inside_its_span.
        let ptr = unsafe { self.ptr.add(off) };
        Span { ptr, len: len.min(self.len - off) }
    }

    /// Whether `next` begins where this span ends.
    pub(crate) fn touches(self, next: Span) -> bool {
        self.ptr.as_ptr() as usize + self.len == next.ptr.as_ptr() as usize
    }

    /// This span made longer by a span that [touches](Self::touches) it and has the same owner.
    pub(crate) fn joined(self, next: Span) -> Span {
        debug_assert!(self.touches(next));
        Span { ptr: self.ptr, len: self.len + next.len }
    }

    /// Copies `[off, off + out.len())` into `out`; false, copying nothing, if the span is shorter.
    ///
    /// `_owner` is whoever keeps the memory alive; asking for it keeps this call honest.
    pub(crate) fn copy_to<O: ?Sized>(self, _owner: &O, off: usize, out: &mut [u8]) -> bool {
        if off.checked_add(out.len()).is_none_or(|end| end > self.len) {
            return false;
        }
        // SAFETY: the range was just checked to lie in the span; the owner keeps it mapped; `out` is
        // exclusive and so cannot overlap a page that others read, and a lender whose memory overlaps
        // would have to alias a `&mut` of ours. Test: every_copy_is_bounded.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.as_ptr().add(off), out.as_mut_ptr(), out.len()) };
        true
    }
}

/// The bytes of a fragment that is not lent.
pub(crate) fn private_slice(frag: &crate::Frag) -> Option<&[u8]> {
    if frag.is_lent() {
        return None;
    }
    let span = frag.span();
    // SAFETY: `frag` owns a reference to a page or to `Bytes`, so the memory lives as long as the borrow;
    // `Bytes` never changes, and a page's writer never writes below the mark under which fragments lie.
    // Test: a_page_is_filled_behind_frozen_fragments.
    Some(unsafe { std::slice::from_raw_parts(span.as_ptr(), span.len()) })
}

/// The memory behind a shared page. Called by the page's `Drop`, once, for what `Box::leak` gave out.
pub(crate) struct PageBox {
    base: NonNull<u8>,
    capacity: usize,
}

// SAFETY: a PageBox owns its bytes like the Box it came from; shared access is by the contract of this
// file (frozen parts are only read, the rest has one writer). Test: pages_return_from_other_threads.
unsafe impl Send for PageBox {}
// SAFETY: as above.
unsafe impl Sync for PageBox {}

impl PageBox {
    /// Takes over the bytes of `buf`.
    pub(crate) fn new(buf: Box<[u8]>) -> Self {
        let capacity = buf.len();
        Self { base: NonNull::from(Box::leak(buf)).cast(), capacity }
    }

    /// Names all of its bytes.
    pub(crate) fn span(&self) -> Span {
        Span { ptr: self.base, len: self.capacity }
    }

    /// Gives the bytes back as a box. The PageBox is empty afterwards.
    pub(crate) fn take(&mut self) -> Box<[u8]> {
        let len = std::mem::take(&mut self.capacity);
        let ptr = std::ptr::slice_from_raw_parts_mut(
            std::mem::replace(&mut self.base, NonNull::dangling()).as_ptr(),
            len,
        );
        // SAFETY: `base` and `capacity` came from `Box::leak` in `new` and are given back exactly once,
        // because this leaves an empty box behind (for which a dangling pointer of length 0 is right).
        // `&mut self` in the owner's Drop means no fragment is left. Test: pages_return_to_their_pool.
        unsafe { Box::from_raw(ptr) }
    }
}

impl Drop for PageBox {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl std::fmt::Debug for PageBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageBox({} bytes)", self.capacity)
    }
}

/// Fills a page front to back while fragments over its finished part are already on their way.
#[derive(Debug)]
pub struct PageWriter {
    page: PageRef,
    filled: usize,
}

impl PageWriter {
    /// The single writer of a fresh page.
    pub(crate) fn new(page: PageRef) -> Self {
        Self { page, filled: 0 }
    }

    /// Bytes still free.
    pub fn room(&self) -> usize {
        self.page.capacity() - self.filled
    }

    /// Copies as much of `src` as fits behind what is there, and returns the fragment over it; `None` when
    /// the page is full or `src` is empty.
    pub fn append(&mut self, src: Span) -> Option<crate::Frag> {
        let n = src.len().min(self.room());
        if n == 0 {
            return None;
        }
        // SAFETY: `filled + n <= capacity`; nothing reads or writes above `filled` but this writer, which
        // is exclusive (`&mut self`, one per page); `src` is readable by its maker's promise and may be
        // foreign, hence a raw copy. Test: a_page_is_filled_behind_frozen_fragments.
        unsafe {
            std::ptr::copy_nonoverlapping(src.as_ptr(), self.page.span().ptr.as_ptr().add(self.filled), n);
        }
        let span = self.page.span().slice(self.filled, n);
        self.filled += n;
        Some(crate::Frag::over_page(span, self.page.clone()))
    }

    /// Copies as much of `src` as fits, like [`append`](Self::append).
    pub fn append_slice(&mut self, src: &[u8]) -> Option<crate::Frag> {
        self.append(Span::of(src))
    }

    /// The uninitialised-by-us rest of the page, for a device to read into. Pages are zeroed when made, so
    /// this is always initialised memory.
    pub fn spare(&mut self) -> &mut [u8] {
        // SAFETY: `[filled, capacity)` is initialised and reached by nobody but this exclusive writer.
        // Test: a_page_is_filled_behind_frozen_fragments.
        unsafe { std::slice::from_raw_parts_mut(self.page.span().ptr.as_ptr().add(self.filled), self.room()) }
    }

    /// Freezes the first `n` bytes of [`spare`](Self::spare) into a fragment.
    pub fn commit(&mut self, n: usize) -> crate::Frag {
        let n = n.min(self.room());
        let span = self.page.span().slice(self.filled, n);
        self.filled += n;
        crate::Frag::over_page(span, self.page.clone())
    }
}

#[cfg(test)]
impl Span {
    /// Names memory that a test changes while it is lent.
    pub(crate) fn of_atomics(cells: &[std::sync::atomic::AtomicU8]) -> Span {
        Span { ptr: NonNull::from(cells).cast(), len: cells.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PagePool;

    #[test]
    fn every_copy_is_bounded() {
        let v = vec![1u8, 2, 3, 4];
        let s = Span::of(&v);
        let mut out = [0u8; 2];
        assert!(s.copy_to(&v, 2, &mut out));
        assert_eq!(out, [3, 4]);
        assert!(!s.copy_to(&v, 3, &mut out));
        assert!(!s.copy_to(&v, usize::MAX, &mut out));
    }

    #[test]
    fn a_slice_stays_inside_its_span() {
        let v = vec![0u8; 10];
        let s = Span::of(&v);
        assert_eq!(s.slice(4, 100).len(), 6);
        assert_eq!(s.slice(40, 1).len(), 0);
        assert!(s.slice(0, 4).touches(s.slice(4, 6)));
        assert_eq!(s.slice(0, 4).joined(s.slice(4, 6)), s);
    }

    #[test]
    fn spans_are_read_from_other_threads() {
        let v = std::sync::Arc::new(vec![7u8; 100]);
        let s = Span::of(&v);
        let owner = v.clone();
        let seen = std::thread::spawn(move || {
            let mut out = [0u8; 100];
            s.copy_to(&owner, 0, &mut out);
            out
        });
        assert_eq!(seen.join().unwrap(), [7u8; 100]);
    }

    #[test]
    fn pages_return_to_their_pool() {
        let pool = PagePool::new(64, 1);
        let (a, b) = (pool.alloc().freeze(0..10), pool.alloc().freeze(0..10));
        let a2 = a.clone();
        drop(a);
        assert_eq!(pool.free_pages(), 0, "a clone still refers to the page");
        drop(a2);
        drop(b);
        assert_eq!(pool.free_pages(), 1, "the pool keeps no more than its bound");
    }

    #[test]
    fn pages_return_from_other_threads() {
        let pool = PagePool::new(64, 4);
        let f = pool.alloc().freeze(0..64);
        std::thread::spawn(move || drop(f)).join().unwrap();
        assert_eq!(pool.free_pages(), 1);
    }

    #[test]
    fn a_page_is_filled_behind_frozen_fragments() {
        let pool = PagePool::new(64, 4);
        let mut w = pool.alloc().into_writer();
        let a = w.append_slice(&[1; 40]).unwrap();
        w.spare()[..4].copy_from_slice(&[9; 4]);
        let b = w.commit(4);
        let c = w.append_slice(&[2; 40]).unwrap();
        assert!(w.append_slice(&[3]).is_none());
        assert_eq!((a.len(), b.len(), c.len()), (40, 4, 20));
        let mut out = [0u8; 40];
        a.copy_to(0, &mut out);
        assert_eq!(out, [1; 40]);
        assert_eq!(b.as_private_slice().unwrap(), [9; 4]);
        assert_eq!(c.as_private_slice().unwrap(), [2; 20]);
    }
}
