//! Pages: reusable buffers for received frames and for the bytes of copying sends.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::foreign::PageBox;
use crate::{Frag, PageWriter, Span};

/// A source of pages of one size. A page returns here when its last fragment is dropped, on whichever
/// thread that happens; at most `max_free` wait to be reused, the rest go back to the allocator.
#[derive(Debug)]
pub struct PagePool {
    page_size: usize,
    max_free: usize,
    /// The page that came back last is used first: it is still in somebody's cache.
    free: Mutex<Vec<Box<[u8]>>>,
}

impl PagePool {
    /// A pool of pages of `page_size` bytes that keeps at most `max_free` (at least one) unused.
    pub fn new(page_size: usize, max_free: usize) -> Arc<Self> {
        Arc::new(Self { page_size, max_free: max_free.max(1), free: Mutex::default() })
    }

    /// Bytes per page.
    pub fn page_size(&self) -> usize {
        self.page_size
    }

    /// Pages waiting to be reused.
    pub fn free_pages(&self) -> usize {
        self.free.lock().len()
    }

    /// A page of one's own, with arbitrary earlier contents.
    pub fn alloc(self: &Arc<Self>) -> PageMut {
        let used = self.free.lock().pop();
        let buf = used.unwrap_or_else(|| vec![0u8; self.page_size].into_boxed_slice());
        PageMut { buf, pool: self.clone() }
    }
}

/// A page nobody else refers to yet.
#[derive(Debug)]
pub struct PageMut {
    buf: Box<[u8]>,
    pool: Arc<PagePool>,
}

impl PageMut {
    /// Freezes the page; the fragment covers `range`, cut to the page.
    pub fn freeze(self, range: Range<usize>) -> Frag {
        let page = self.share();
        let len = range.end.saturating_sub(range.start);
        let span = page.span().slice(range.start, len);
        Frag::over_page(span, page)
    }

    /// Turns the page into one that is filled step by step while its finished part is in use.
    pub fn into_writer(self) -> PageWriter {
        PageWriter::new(self.share())
    }

    fn share(self) -> PageRef {
        PageRef(Arc::new(Page { bytes: PageBox::new(self.buf), pool: self.pool }))
    }
}

impl Deref for PageMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf
    }
}

impl DerefMut for PageMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf
    }
}

/// A counted reference to a page.
#[derive(Clone, Debug)]
pub struct PageRef(Arc<Page>);

#[derive(Debug)]
struct Page {
    bytes: PageBox,
    pool: Arc<PagePool>,
}

impl PageRef {
    pub(crate) fn capacity(&self) -> usize {
        self.span().len()
    }

    pub(crate) fn is(&self, other: &PageRef) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn span(&self) -> Span {
        self.0.bytes.span()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let page = self.bytes.take();
        let mut free = self.pool.free.lock();
        if free.len() < self.pool.max_free {
            free.push(page);
        } else {
            // Freed with the lock released.
            drop(free);
            drop(page);
        }
    }
}
