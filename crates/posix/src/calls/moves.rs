//! Bytes that go from descriptor to descriptor.
//!
//! Contract. Pointers are the program's, as in [`calls`](super).
#![allow(unsafe_code)]

use std::os::fd::RawFd;

use super::{Answer, counted, send_on};
use stack::Ready;

use crate::errno::{Errno, Result};
use crate::socket::Socket;
use crate::user::{self, RecvBuf, SendBuf};
use crate::{sys, table};

/// Bytes moved per step of `sendfile` and `splice`.
const CHUNK: usize = 256 * 1024;

/// `sendfile(2)` to a socket of ours. The file's bytes are copied once, into the stack.
///
/// # Safety
/// `offset` is null or points at an offset.
pub unsafe fn sendfile(out: RawFd, file: RawFd, offset: *mut i64, count: usize) -> Answer {
    let socket = table::socket(out)?;
    // SAFETY: null, or the program's offset. Test: test_sendfile_and_splice of sockets.py.
    let mut at = (!offset.is_null()).then(|| unsafe { offset.read_unaligned() });
    if socket.is_nonblocking() && count > 0 && !socket.ready().intersects(Ready::OUT | Ready::ERR) {
        return Some(Err(Errno::AGAIN));
    }
    let mut chunk = vec![0; CHUNK.min(count)];
    let mut total = 0;
    let result = loop {
        let want = chunk.len().min(count - total);
        if want == 0 {
            break Ok(());
        }
        let n = match sys::read(file, &mut chunk[..want], at) {
            Ok(0) => break Ok(()),
            Ok(n) => n,
            Err(e) => break Err(e),
        };
        let mut buf = SendBuf::of(&chunk[..n], if total + n < count { libc::MSG_MORE } else { 0 });
        let sent = send_on(&socket, &mut buf, 0);
        let moved = *sent.as_ref().unwrap_or(&0);
        total += moved;
        match &mut at {
            Some(at) => *at += moved as i64,
            // What was read and not sent is put back.
            None if moved < n => drop(sys::lseek(file, moved as i64 - n as i64, libc::SEEK_CUR)),
            None => {}
        }
        match sent {
            Ok(moved) if moved == n => {}
            Ok(_) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    if let Some(at) = at {
        // SAFETY: as above.
        let _ = unsafe { user::write(offset, at) };
    }
    counted(if total > 0 { Ok(total) } else { result.map(|()| 0) })
}

/// `splice(2)` between a pipe and a socket of ours, through a buffer.
///
/// # Safety
/// The offsets are null, or pointers whose target is not looked at: neither end can seek.
pub unsafe fn splice(
    from: RawFd,
    off_in: *const i64,
    to: RawFd,
    off_out: *const i64,
    len: usize,
    flags: u32,
) -> Answer {
    if !table::is_ours(from) && !table::is_ours(to) {
        return None;
    }
    if !off_in.is_null() || !off_out.is_null() {
        return Some(Err(Errno::SPIPE));
    }
    let wait = if flags & libc::SPLICE_F_NONBLOCK != 0 { libc::MSG_DONTWAIT } else { 0 };
    let mut chunk = vec![0; len.min(64 * 1024)];
    if chunk.is_empty() {
        return Some(Ok(0));
    }
    counted(match (table::socket(from), table::socket(to)) {
        // One end of a splice is a pipe.
        (Some(_), Some(_)) => Err(Errno::INVAL),
        (Some(socket), None) => from_socket(&socket, to, &mut chunk, wait),
        (None, Some(socket)) => to_socket(from, &socket, &mut chunk, wait),
        (None, None) => Err(Errno::INVAL),
    })
}

/// Looks first and takes what the pipe took: nothing is lost if it is full.
fn from_socket(socket: &Socket, pipe: RawFd, chunk: &mut [u8], wait: i32) -> Result<usize> {
    let n = socket.recv(&mut RecvBuf::of(chunk), wait | libc::MSG_PEEK)?;
    if n == 0 {
        return Ok(0);
    }
    let written = sys::write(pipe, &chunk[..n])?;
    socket.recv(&mut RecvBuf::of(&mut chunk[..written]), libc::MSG_DONTWAIT)
}

/// Reads no more than there is room for, so that all of it can be sent.
fn to_socket(pipe: RawFd, socket: &Socket, chunk: &mut [u8], wait: i32) -> Result<usize> {
    if (wait != 0 || socket.is_nonblocking()) && !socket.ready().contains(Ready::OUT) {
        return Err(Errno::AGAIN);
    }
    let n = sys::read(pipe, chunk, None)?;
    socket.send_all(&mut SendBuf::of(&chunk[..n], 0))
}
