//! Socket options where packetdrill is not a program like others: wrong lengths on purpose, and what code blocks
//! ask for.
//!
//! Contract. Pointers and lengths are the script's; a value behind a pointer is as long as packetdrill makes it,
//! which [`readable`] knows.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::RawFd;

use libc::{c_int, socklen_t};
use posix::calls::{self, Answer};
use posix::errno::Errno;

/// How much of an option's value may be read: where the script gave a number there are four bytes, whatever it
/// says their length is.
pub(crate) fn readable(level: c_int, name: c_int, len: socklen_t) -> socklen_t {
    let longer = match level {
        libc::SOL_SOCKET => {
            [libc::SO_LINGER, libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, libc::SO_BINDTODEVICE].contains(&name)
        }
        libc::IPPROTO_TCP => name == libc::TCP_CONGESTION,
        _ => false,
    };
    // A negative length stays one, and is refused.
    if longer || (len as c_int) < 0 { len } else { len.min(size_of::<c_int>() as socklen_t) }
}

const SO_MEMINFO: c_int = 55;
const TCP_CC_INFO: c_int = 26;
/// Far beyond any kernel's `struct tcp_info`.
const LONGEST_INFO: usize = 4096;

/// `getsockopt`, with what the code blocks of scripts ask for.
///
/// # Safety
/// As for `getsockopt`.
pub(crate) unsafe fn get(
    fd: RawFd,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Answer {
    if !posix::is_ours(fd) {
        return None;
    }
    // SAFETY: the caller's promise, passed on. Test: tests/code_blocks.rs.
    unsafe {
        match (level, name) {
            (libc::SOL_SOCKET, SO_MEMINFO) => fill(value, len, &memory(fd)),
            // CUBIC and Reno have none.
            (libc::IPPROTO_TCP, TCP_CC_INFO) => fill(value, len, &[]),
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                // Later kernels know more fields, and so may packetdrill: those are 0.
                let room = if len.is_null() { 0 } else { len.read() };
                let mut known = vec![0; (room as usize).min(LONGEST_INFO)];
                let mut known_len = known.len() as socklen_t;
                match calls::getsockopt(fd, level, name, known.as_mut_ptr().cast(), &raw mut known_len) {
                    Some(Ok(_)) => fill(value, len, &known),
                    other => other,
                }
            }
            _ => calls::getsockopt(fd, level, name, value, len),
        }
    }
}

/// Writes an option's value, as much as there is room for, and its length.
///
/// # Safety
/// `len` is null or points at the length of the room at `value`.
unsafe fn fill(value: *mut c_void, len: *mut socklen_t, bytes: &[u8]) -> Answer {
    if len.is_null() || (value.is_null() && !bytes.is_empty()) {
        return Some(Err(Errno::FAULT));
    }
    // SAFETY: the caller's promise. Test: tests/code_blocks.rs.
    let room = unsafe { len.read() } as c_int;
    let Ok(room) = usize::try_from(room) else { return Some(Err(Errno::INVAL)) };
    let n = bytes.len().min(room);
    // SAFETY: as above, and no more than the room.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast::<u8>(), n);
        len.write(n as socklen_t);
    }
    Some(Ok(0))
}

/// `SO_MEMINFO`: the sizes of the buffers. Other memory of a socket is not accounted for.
fn memory(fd: RawFd) -> [u8; 36] {
    let size = |name| {
        let mut n = [0u8; 4];
        let mut len = 4;
        // SAFETY: four bytes, and that length. Test: tests/code_blocks.rs.
        let _ = unsafe { calls::getsockopt(fd, libc::SOL_SOCKET, name, n.as_mut_ptr().cast(), &mut len) };
        n
    };
    let mut out = [0; 36];
    out[4..8].copy_from_slice(&size(libc::SO_RCVBUF));
    out[12..16].copy_from_slice(&size(libc::SO_SNDBUF));
    out
}
