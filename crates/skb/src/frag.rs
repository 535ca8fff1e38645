//! A fragment: a span of memory and a counted reference to its owner.

use std::sync::Arc;

use bytes::Bytes;

use crate::{ErrorQueue, LendError, PageRef, Span, UbufInfo, evict};

#[derive(Clone, Debug)]
enum Owner {
    /// A page of a pool: written once, then only read.
    Page(PageRef),
    /// Shared immutable bytes that nobody waits for.
    Bytes(Arc<Bytes>),
    /// Memory lent for one send call. It may change under us.
    Lent(LentRef),
}

/// A reference to a lending call. It is there until drop.
#[derive(Clone, Debug)]
struct LentRef(Option<Arc<UbufInfo>>);

impl Drop for LentRef {
    fn drop(&mut self) {
        if let Some(ubuf) = self.0.take() {
            UbufInfo::give_back(ubuf);
        }
    }
}

/// A counted reference to a span of memory. Cloning counts; dropping the last one frees the page or
/// completes the call.
#[derive(Clone, Debug)]
pub struct Frag {
    span: Span,
    owner: Owner,
}

impl Frag {
    pub(crate) fn over_page(span: Span, page: PageRef) -> Frag {
        Frag { span, owner: Owner::Page(page) }
    }

    pub(crate) fn over_lent(span: Span, ubuf: Arc<UbufInfo>) -> Frag {
        Frag { span, owner: Owner::Lent(LentRef(Some(ubuf))) }
    }

    /// A fragment over shared immutable bytes; nobody is notified of its end.
    pub fn from_bytes(bytes: Bytes) -> Frag {
        let bytes = Arc::new(bytes);
        Frag { span: Span::of(&bytes), owner: Owner::Bytes(bytes) }
    }

    /// Lends `buffer` by value for one call on `queue`'s socket; on error it stays where it is. With `check`
    /// its contents are remembered and compared at completion (they cannot change, unless they are a mapping
    /// of a file that does).
    pub fn from_lent(
        queue: &Arc<ErrorQueue>,
        buffer: &mut Option<Bytes>,
        check: bool,
    ) -> Result<Frag, LendError> {
        let span = Span::of(buffer.as_deref().unwrap_or(&[]));
        let mut call = queue.begin(span.len() as u64, buffer)?;
        if check {
            call.remember(&[span]);
        }
        Ok(Self::over_lent(span, call))
    }

    /// A private copy of `bytes`.
    pub fn copied_from(bytes: &[u8]) -> Frag {
        Frag::from_bytes(Bytes::copy_from_slice(bytes))
    }

    /// Bytes in the fragment.
    pub fn len(&self) -> usize {
        self.span.len()
    }

    /// True for a fragment of no bytes.
    pub fn is_empty(&self) -> bool {
        self.span.is_empty()
    }

    /// Address and length, for a device's iovec. Valid while the fragment lives, and for lent memory while
    /// the caller is [`touching`](crate::evict::touching) it.
    pub fn as_iovec(&self) -> (*const u8, usize) {
        let span = self.span();
        (span.as_ptr(), span.len())
    }

    /// Whether the memory is lent, and so may change at any time.
    pub fn is_lent(&self) -> bool {
        matches!(self.owner, Owner::Lent(_))
    }

    /// The lending call, if the memory is lent.
    pub fn ubuf(&self) -> Option<&Arc<UbufInfo>> {
        match &self.owner {
            Owner::Lent(call) => call.0.as_ref(),
            Owner::Page(_) | Owner::Bytes(_) => None,
        }
    }

    /// A fragment over `[off, off + len)` of this one, cut to what there is.
    pub fn slice(&self, off: usize, len: usize) -> Frag {
        Frag { span: self.span.slice(off, len), owner: self.owner.clone() }
    }

    /// Drops the first `n` bytes, without touching the count.
    pub fn advance(&mut self, n: usize) {
        self.span = self.span.slice(n, self.span.len());
    }

    /// Keeps the first `len` bytes, without touching the count.
    pub fn truncate(&mut self, len: usize) {
        self.span = self.span.slice(0, len);
    }

    /// Cuts off and returns the first `n` bytes.
    pub fn split_to(&mut self, n: usize) -> Frag {
        let front = self.slice(0, n);
        self.advance(n);
        front
    }

    /// Copies `[off, off + out.len())` into `out`; false, copying nothing, if the fragment is shorter.
    pub fn copy_to(&self, off: usize, out: &mut [u8]) -> bool {
        let _look = self.is_lent().then(evict::touching);
        self.span().copy_to(self, off, out)
    }

    /// The bytes, unless they are lent: those can only be copied out.
    pub fn as_private_slice(&self) -> Option<&[u8]> {
        crate::foreign::private_slice(self)
    }

    /// Where the bytes are.
    pub(crate) fn span(&self) -> Span {
        match &self.owner {
            Owner::Lent(call) => call.0.as_ref().map_or(self.span, |ubuf| ubuf.current(self.span)),
            Owner::Page(_) | Owner::Bytes(_) => self.span,
        }
    }

    /// Makes `next` a part of this fragment if it continues it in memory and has the same owner; else gives
    /// it back.
    pub fn join(&mut self, next: Frag) -> Result<(), Frag> {
        let same = match (&self.owner, &next.owner) {
            (Owner::Page(a), Owner::Page(b)) => a.is(b),
            (Owner::Bytes(a), Owner::Bytes(b)) => Arc::ptr_eq(a, b),
            (Owner::Lent(a), Owner::Lent(b)) => {
                a.0.as_ref().map(Arc::as_ptr) == b.0.as_ref().map(Arc::as_ptr)
            }
            _ => false,
        };
        if !same || !self.span.touches(next.span) {
            return Err(next);
        }
        self.span = self.span.joined(next.span);
        Ok(())
    }
}
