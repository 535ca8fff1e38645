//! Memory that the program gives back while it is lent: the stack takes a private copy first.
//!
//! `free` is watched for large blocks only. A small block stays mapped, and what its next owner writes there
//! is as if the lender had changed it.

use libc::{c_int, c_void, off64_t, size_t};
use posix::lent;

/// Blocks from this size on may be unmapped by `free` (glibc's `M_MMAP_THRESHOLD` begins here).
const LARGE: usize = 128 * 1024;

/// Memory about to go, if `goes`.
fn leaving<R>(goes: bool, addr: *mut c_void, len: size_t) -> Option<R> {
    if goes {
        lent::evict(addr as usize, len);
    }
    None
}

/// A block about to be freed or moved.
#[inline]
fn block_leaving<R>(block: *mut c_void) -> Option<R> {
    if lent::is_any() && !block.is_null() {
        // SAFETY: the program's own block, by its call of free or realloc.
        // Test: takeaway.c, run by crates/cli/tests/programs.rs.
        let size = unsafe { libc::malloc_usable_size(block) };
        return leaving(size >= LARGE, block, size);
    }
    None
}

/// Whether the advice makes the kernel forget what is there.
fn forgets(advice: c_int) -> bool {
    matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE | libc::MADV_DONTNEED_LOCKED)
}

interpose! {
    fn munmap(addr: *mut c_void, len: size_t) -> c_int = leaving(true, addr, len);
    /// A fixed mapping replaces what was there.
    fn mmap(addr: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off64_t)
        -> *mut c_void = leaving(flags & libc::MAP_FIXED != 0, addr, len);
    fn mmap64(addr: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off64_t)
        -> *mut c_void = leaving(flags & libc::MAP_FIXED != 0, addr, len);
    /// The new address is only there with `MREMAP_FIXED`.
    fn mremap(addr: *mut c_void, old: size_t, new: size_t, flags: c_int, to: *mut c_void) -> *mut c_void = {
        let _: Option<()> = leaving(flags & libc::MREMAP_FIXED != 0, to, new);
        leaving(true, addr, old)
    };
    fn madvise(addr: *mut c_void, len: size_t, advice: c_int) -> c_int = leaving(forgets(advice), addr, len);
    /// What is lent is to be read even if the program itself may not.
    fn mprotect(addr: *mut c_void, len: size_t, protection: c_int) -> c_int =
        leaving(protection & libc::PROT_READ == 0, addr, len);
    fn free(block: *mut c_void) -> () = block_leaving(block);
    fn realloc(block: *mut c_void, size: size_t) -> *mut c_void = block_leaving(block);
}
