//! Sends from memory that is only borrowed. The memory of these tests is leaked, so it stays mapped.
#![allow(unsafe_code, dead_code, unreachable_pub, missing_docs)]

use std::io::{self, IoSlice};
use std::ptr::NonNull;

use uncopied::{TcpStream, Ticket};

/// Memory that lives as long as the process and can be changed at any time.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    at: NonNull<u8>,
    len: usize,
}

impl Area {
    pub fn new(bytes: &[u8]) -> Self {
        let leaked: &'static mut [u8] = Box::leak(bytes.into());
        Self { len: leaked.len(), at: NonNull::new(leaked.as_mut_ptr()).unwrap() }
    }

    /// Changes one byte, lent or not.
    pub fn set(&self, n: usize, byte: u8) {
        assert!(n < self.len);
        // SAFETY: in bounds of memory that is never freed, to which there is no reference at this moment:
        // those made for the send calls below have ended, and the stack keeps none. The tests are single
        // threaded here. Test: every test that changes lent bytes.
        unsafe { self.at.as_ptr().add(n).write_volatile(byte) }
    }

    /// The memory as one piece of a call.
    pub fn io(&self) -> stack::BorrowedIo {
        // SAFETY: the memory stays mapped until the process ends. Test: every test that lends it.
        unsafe { stack::BorrowedIo::new(&[(self.at.as_ptr().cast_const(), self.len)]) }.unwrap()
    }

    pub fn addr(&self) -> usize {
        self.at.as_ptr().addr()
    }

    pub fn len(&self) -> usize {
        self.len
    }
}

/// `sendmsg` of the areas.
pub fn sendmsg(tx: &TcpStream, areas: &[Area], flags: u32) -> io::Result<(usize, Option<Ticket>)> {
    // SAFETY: in bounds, never freed; the references end with this call, in which nobody writes. Test:
    // every test that lends borrowed memory.
    let slices = areas.iter().map(|a| unsafe { std::slice::from_raw_parts(a.at.as_ptr(), a.len) });
    let pieces: Vec<_> = slices.map(IoSlice::new).collect();
    // SAFETY: the memory stays mapped until the process ends. Test: as above.
    unsafe { tx.sendmsg(&pieces, flags) }
}

/// One attempt of a `sendmsg` on a socket of the layer below: bytes queued, and the call's number.
pub fn attempt(socket: &std::sync::Arc<stack::TcpSocket>, area: Area, flags: u32) -> (usize, Option<u32>) {
    // SAFETY: the memory stays mapped until the process ends. Test: as above.
    let io = unsafe { stack::BorrowedIo::new(&[(area.at.as_ptr().cast_const(), area.len)]) }.unwrap();
    let mut call = stack::SendCall::new(io, flags);
    let sent = call.attempt(socket).unwrap();
    (sent, call.ticket().map(|t| t.id))
}
