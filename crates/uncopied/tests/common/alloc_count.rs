//! An allocator that counts.
#![allow(unsafe_code, dead_code, unreachable_pub, missing_docs)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counted.
pub struct Counting;

/// Bytes allocated now, by all threads.
pub fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// Allocations of this thread so far, growing ones included.
pub fn calls() -> u64 {
    CALLS.with(Cell::get)
}

fn count(bytes: usize) {
    LIVE.fetch_add(bytes, Ordering::Relaxed);
    let _ = CALLS.try_with(|c| c.set(c.get() + 1));
}

// SAFETY: every call goes on to the system's allocator unchanged. Test: all of the files that use it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: our caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: our caller's promise is the one asked for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: our caller's promise is the one asked for.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        count(size);
        // SAFETY: our caller's promise is the one asked for.
        unsafe { System.realloc(ptr, layout, size) }
    }
}
