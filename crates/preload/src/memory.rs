//! Memory that the program gives back while it is lent: the stack takes a private copy first.
//!
//! `free` is watched for large blocks only. A small block stays mapped, and what its next owner writes there
//! is as if the lender had changed it.

use libc::{c_int, c_void, off64_t, size_t};
use posix::lent;

use crate::real;

/// Blocks from this size on may be unmapped by `free` (glibc's `M_MMAP_THRESHOLD` begins here).
const LARGE: usize = 128 * 1024;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: size_t) -> c_int {
    lent::evict(addr as usize, len);
    unsafe { real::munmap(addr, len) }
}

/// A fixed mapping replaces what was there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    if flags & libc::MAP_FIXED != 0 {
        lent::evict(addr as usize, len);
    }
    unsafe { real::mmap64(addr, len, protection, flags, fd, offset) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    unsafe { mmap64(addr, len, protection, flags, fd, offset) }
}

/// Variadic in C: the new address is only there with `MREMAP_FIXED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    addr: *mut c_void,
    old: size_t,
    new: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    lent::evict(addr as usize, old);
    if flags & libc::MREMAP_FIXED != 0 {
        lent::evict(to as usize, new);
    }
    unsafe { real::mremap(addr, old, new, flags, to) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: size_t, advice: c_int) -> c_int {
    if matches!(
        advice,
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE | libc::MADV_DONTNEED_LOCKED
    ) {
        lent::evict(addr as usize, len);
    }
    unsafe { real::madvise(addr, len, advice) }
}

/// Takes memory away from reading: what is lent is to be read all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, len: size_t, protection: c_int) -> c_int {
    if protection & libc::PROT_READ == 0 {
        lent::evict(addr as usize, len);
    }
    unsafe { real::mprotect(addr, len, protection) }
}

/// A block about to be freed or moved.
#[inline]
unsafe fn leaving(block: *mut c_void) {
    if lent::is_any() && !block.is_null() {
        // SAFETY: the program's own block, by its call. Test: crates/cli/tests/preload_memory.rs.
        let size = unsafe { libc::malloc_usable_size(block) };
        if size >= LARGE {
            lent::evict(block as usize, size);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    unsafe {
        leaving(block);
        real::free(block);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, size: size_t) -> *mut c_void {
    unsafe {
        leaving(block);
        real::realloc(block, size)
    }
}
