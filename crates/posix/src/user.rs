//! Memory of the program, as its calls name it: by pointer and length.
//!
//! Contract. Whoever makes a buffer here has a caller that vouches for its pointers as C does: readable or
//! writable for the length given, for the duration of the call, and, where it is lent, until its completion.
//! A null pointer with a length is `EFAULT`; what else a wrong pointer does is what it does in C. Nothing
//! here forms a reference that outlives the call.
#![allow(unsafe_code)]

use std::sync::Arc;

use stack::skb::{ErrorQueue, Frag};
use stack::{BorrowedIo, MSG_EOR, MSG_MORE, MSG_OOB, MSG_ZEROCOPY, SendCall, TcpSocket};

use crate::errno::{Errno, Result, errno};

/// As many pieces as the kernel takes in one call (`UIO_MAXIOV`).
const IOV_MAX: usize = 1024;
/// As many bytes as the kernel takes in one call.
const MAX_RW_COUNT: usize = 0x7fff_f000;

/// The pieces of an iovec array, checked: no null piece, no more than the kernel takes.
///
/// # Safety
/// `iov` points at `count` iovecs.
pub(crate) unsafe fn pieces(iov: *const libc::iovec, count: usize) -> Result<Vec<(*mut u8, usize)>> {
    if count > IOV_MAX {
        return Err(Errno::MSGSIZE);
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    if iov.is_null() {
        return Err(Errno::FAULT);
    }
    let mut left = MAX_RW_COUNT;
    let mut out = Vec::with_capacity(count);
    for n in 0..count {
        // SAFETY: the caller vouches for `count` entries. Test: test_vectors of sockets.py.
        let v = unsafe { iov.add(n).read_unaligned() };
        if isize::try_from(v.iov_len).is_err() {
            return Err(Errno::INVAL);
        }
        let len = v.iov_len.min(left);
        left -= len;
        if len > 0 {
            if v.iov_base.is_null() {
                return Err(Errno::FAULT);
            }
            out.push((v.iov_base.cast(), len));
        }
    }
    Ok(out)
}

/// One buffer as pieces.
pub(crate) fn piece(ptr: *const u8, len: usize) -> Result<Vec<(*mut u8, usize)>> {
    match (ptr.is_null(), len) {
        (_, 0) => Ok(Vec::new()),
        (true, _) => Err(Errno::FAULT),
        (false, len) => Ok(vec![(ptr.cast_mut(), len.min(MAX_RW_COUNT))]),
    }
}

/// What a sending call sends, and how far it got.
pub(crate) struct SendBuf {
    pieces: Vec<(*mut u8, usize)>,
    total: usize,
    sent: usize,
    flags: u32,
    /// The stack's own call, once the first attempt was made here.
    call: Option<SendCall>,
    /// Who is told of the completion, if not the socket's error queue.
    queue: Option<Arc<ErrorQueue>>,
}

impl SendBuf {
    /// `flags` are those of the program's call.
    ///
    /// # Safety
    /// Each piece is readable for its length during the call, and with `MSG_ZEROCOPY` until the completion.
    pub(crate) unsafe fn new(pieces: Vec<(*mut u8, usize)>, flags: i32) -> Self {
        let total = pieces.iter().map(|p| p.1).sum();
        let flags = flags as u32 & (MSG_ZEROCOPY | MSG_MORE | MSG_EOR | MSG_OOB);
        Self { pieces, total, sent: 0, flags, call: None, queue: None }
    }

    /// The completion goes to `queue`, and the call lends whether or not `SO_ZEROCOPY` is on.
    pub(crate) fn complete_on(&mut self, queue: Arc<ErrorQueue>) {
        self.queue = Some(queue);
    }

    /// The number of the call, if it lent anything.
    pub(crate) fn ticket(&self) -> Option<u32> {
        self.call.as_ref().and_then(SendCall::ticket).map(|t| t.id)
    }

    /// Bytes of the slice, copied from; a call on memory of ours.
    pub(crate) fn of(bytes: &[u8], flags: i32) -> Self {
        let pieces = vec![(bytes.as_ptr().cast_mut(), bytes.len())];
        // SAFETY: the slice is borrowed for the call, and not lent. Test: test_sendfile_and_splice of sockets.py.
        unsafe { Self::new(pieces, flags & !(MSG_ZEROCOPY as i32)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.total
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    pub(crate) fn is_done(&self) -> bool {
        self.sent == self.total
    }

    pub(crate) fn flags(&self) -> u32 {
        self.flags
    }

    /// Notes that `n` more bytes are queued.
    pub(crate) fn advance(&mut self, n: usize) {
        self.sent += n;
    }

    /// One attempt on a socket of this process.
    pub(crate) fn attempt(&mut self, socket: &Arc<TcpSocket>) -> Result<usize> {
        let call = match &mut self.call {
            Some(call) => call,
            none => {
                let pieces: Vec<_> = self.pieces.iter().map(|(p, n)| (p.cast_const(), *n)).collect();
                // SAFETY: the promise made to `new`. Test: test_zerocopy of sockets.py.
                let io = unsafe { BorrowedIo::new(&pieces) }.map_err(errno)?;
                let call = SendCall::new(io, self.flags);
                none.insert(match &self.queue {
                    Some(queue) => call.completing_on(queue.clone()),
                    None => call,
                })
            }
        };
        let n = call.attempt(socket).map_err(errno)?;
        self.sent += n;
        Ok(n)
    }

    /// A copy of the next `max` bytes, for another process.
    pub(crate) fn copy_next(&self, max: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(max.min(self.total - self.sent));
        let mut skip = self.sent;
        for (ptr, len) in &self.pieces {
            let from = skip.min(*len);
            skip -= from;
            let n = (len - from).min(max - out.len());
            // SAFETY: within the piece, which `new` was promised to be readable. Test: test_fork of sockets.py.
            let part = unsafe { std::slice::from_raw_parts(ptr.add(from), n) };
            out.extend_from_slice(part);
        }
        out
    }
}

/// Where a receiving call puts what it gets.
pub(crate) struct RecvBuf {
    pieces: Vec<(*mut u8, usize)>,
    total: usize,
    got: usize,
}

impl RecvBuf {
    /// # Safety
    /// Each piece is writable for its length during the call.
    pub(crate) unsafe fn new(pieces: Vec<(*mut u8, usize)>) -> Self {
        let total = pieces.iter().map(|p| p.1).sum();
        Self { pieces, total, got: 0 }
    }

    /// Memory of ours.
    pub(crate) fn of(bytes: &mut [u8]) -> Self {
        // SAFETY: exclusive and writable for the call; callers keep it so. Test: test_fork of sockets.py.
        unsafe { Self::new(vec![(bytes.as_mut_ptr(), bytes.len())]) }
    }

    /// Room of the whole buffer.
    pub(crate) fn len(&self) -> usize {
        self.total
    }

    /// Room left.
    pub(crate) fn room(&self) -> usize {
        self.total - self.got
    }

    /// The first bytes are written again by what comes next (`MSG_PEEK`).
    pub(crate) fn rewind(&mut self) {
        self.got = 0;
    }

    /// Counts bytes that are dropped unread.
    pub(crate) fn skip(&mut self, n: usize) {
        self.got += n.min(self.room());
    }

    /// Copies the bytes of `frags` behind what is there; there must be room.
    pub(crate) fn put_frags(&mut self, frags: &[Frag]) {
        for frag in frags {
            let mut off = 0;
            while off < frag.len() {
                let Some(dst) = self.next_room(frag.len() - off) else { return };
                frag.copy_to(off, dst);
                off += dst.len();
                self.got += dst.len();
            }
        }
    }

    /// Copies `bytes` behind what is there; there must be room.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(dst) = self.next_room(bytes.len()) else { return };
            let (now, rest) = bytes.split_at(dst.len());
            dst.copy_from_slice(now);
            bytes = rest;
            self.got += dst.len();
        }
    }

    /// The next contiguous room, at most `max` bytes; `None` when full.
    fn next_room(&mut self, max: usize) -> Option<&mut [u8]> {
        let mut skip = self.got;
        for (ptr, len) in &self.pieces {
            if skip < *len {
                let n = (len - skip).min(max);
                // SAFETY: within the piece, which `new` was promised to be writable, and which nobody else
                // refers to while `self` is borrowed. Test: test_names and others of sockets.py.
                return Some(unsafe { std::slice::from_raw_parts_mut(ptr.add(skip), n) });
            }
            skip -= len;
        }
        None
    }
}

/// Reads `len` bytes at `ptr`.
///
/// # Safety
/// `ptr` is null or readable for `len` bytes.
pub(crate) unsafe fn read_bytes(ptr: *const u8, len: usize) -> Result<Vec<u8>> {
    if len == 0 {
        return Ok(Vec::new());
    }
    if ptr.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    Ok(unsafe { std::slice::from_raw_parts(ptr, len) }.to_vec())
}

/// Reads a plain value.
///
/// # Safety
/// `ptr` is null or points at a `T` of C, whose every bit pattern is a value.
pub(crate) unsafe fn read<T: Copy>(ptr: *const T) -> Result<T> {
    if ptr.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    Ok(unsafe { ptr.read_unaligned() })
}

/// Writes a plain value.
///
/// # Safety
/// `ptr` is null or writable for a `T`.
pub(crate) unsafe fn write<T>(ptr: *mut T, value: T) -> Result<()> {
    if ptr.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    unsafe { ptr.write_unaligned(value) };
    Ok(())
}

/// Writes as much of `bytes` as fits in `room` bytes at `ptr`, and returns how much that was.
///
/// # Safety
/// `ptr` is null or writable for `room` bytes.
pub(crate) unsafe fn write_bytes(ptr: *mut u8, room: usize, bytes: &[u8]) -> Result<usize> {
    let n = bytes.len().min(room);
    if n == 0 {
        return Ok(0);
    }
    if ptr.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: n <= room, for which the caller vouches; `bytes` is memory of ours. Test: test_names and others of sockets.py.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), ptr, n) };
    Ok(n)
}

/// The bytes of a plain C value.
pub(crate) fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: used for C structs without padding that matters: they were zeroed before being filled.
    // Test: test_options of sockets.py.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}
