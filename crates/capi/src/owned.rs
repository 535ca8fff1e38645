//! Received bytes that are not copied.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use posix::embed;
use posix::errno::Errno;
use stack::skb::Frag;

use crate::guard::{guard, status};
use crate::handles::Registry;
use crate::sockets::not_ours;

/// Received bytes, in the memory that they arrived in. They are the caller's to read until `uc_release`, also
/// after the socket and its stack are gone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct uc_buffer {
    /// The bytes. Not to be written.
    pub data: *const c_void,
    /// How many.
    pub len: usize,
    /// What to release.
    pub handle: u64,
}

static BUFFERS: Registry<Frag> = Registry::new();

/// Pieces taken in one call at most.
const MOST: usize = 1024;

/// `recv(2)` without the copy: takes up to `max` bytes in up to `*count` pieces. `bufs[0 .. *count]` is filled in
/// stream order, and `*count` set to how many there are; each is to be released. Unreleased buffers hold memory
/// of the stack's, up to a page of 64 KB for each, and the peer may go on sending. `flags`: `MSG_DONTWAIT`.
///
/// The bytes in all pieces; 0 with no pieces at the end of the stream; or -1: as `recv(2)`; `EFAULT` null;
/// `EINVAL` another flag, or a `max` or `*count` of 0; `EOPNOTSUPP` not a socket of a stack of this process.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub unsafe extern "C" fn uc_recv_owned(
    fd: c_int,
    bufs: *mut uc_buffer,
    count: *mut usize,
    max: usize,
    flags: c_int,
) -> libc::ssize_t {
    guard(-1, || {
        if bufs.is_null() || count.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: the caller's promise, here and below. Test: crates/capi/tests/c/owned.c.
        let room = unsafe { count.read_unaligned() };
        let mut pieces = Vec::new();
        let received = embed::recv_owned(fd, max, room.min(MOST), flags, &mut pieces);
        let n = received.unwrap_or_else(|| Err(not_ours(fd)))?;
        let found = pieces.len();
        for (at, piece) in pieces.into_iter().enumerate() {
            let piece = private(piece);
            let (data, len) = piece.as_iovec();
            let handle = BUFFERS.insert(Arc::new(piece)) as u64;
            // SAFETY: there is room for `*count`, and no more pieces than that were taken.
            unsafe { bufs.add(at).write_unaligned(uc_buffer { data: data.cast(), len, handle }) };
        }
        // SAFETY: as above.
        unsafe { count.write_unaligned(found) };
        Ok(n as libc::ssize_t)
    })
}

/// Received memory is never lent; if it were, its owner could take it back.
fn private(piece: Frag) -> Frag {
    if !piece.is_lent() {
        return piece;
    }
    let mut copy = vec![0; piece.len()];
    piece.copy_to(0, &mut copy);
    Frag::copied_from(&copy)
}

/// Gives a buffer back: its bytes must not be looked at any more.
///
/// 0, or -1: `EBADF` not a buffer, or released already; `EFAULT` 0.
#[unsafe(no_mangle)] // SAFETY: the prefix is ours.
pub extern "C" fn uc_release(handle: u64) -> c_int {
    status(|| BUFFERS.remove(handle as usize).map(drop))
}
