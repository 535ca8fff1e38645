//! The `sendmsg`-shaped entry, for memory that is only borrowed.
//!
//! Contract: the caller of [`TcpStream::sendmsg`] keeps lent memory mapped until its completion.
#![allow(unsafe_code)]

use std::io::{self, IoSlice};

use stack::{BorrowedIo, Error, Ready, SendCall, Ticket};
pub use stack::{MSG_MORE, MSG_ZEROCOPY};

use crate::TcpStream;
use crate::wait::wait;

/// Do not wait for room (Linux's number).
pub const MSG_DONTWAIT: u32 = 0x40;

impl TcpStream {
    /// `sendmsg(2)`: sends the pieces of `io`. With [`MSG_ZEROCOPY`] the memory is lent, and the ticket names
    /// the call; without it the bytes are copied and there is no ticket. Blocks until all is queued, unless
    /// the stream is nonblocking or `flags` has [`MSG_DONTWAIT`]; then it may queue a part. A call counts once
    /// however long it blocked, also when it was cut short.
    ///
    /// # Safety
    /// With [`MSG_ZEROCOPY`] every piece must stay mapped and readable until a [`Completion`] contains the
    /// ticket's number, or, if the stream is dropped before, until [`Stack::quiesce`] has returned `true`. It
    /// may be changed meanwhile; the peer then gets one or the other.
    ///
    /// [`Completion`]: crate::Completion
    /// [`Stack::quiesce`]: crate::Stack::quiesce
    pub unsafe fn sendmsg(&self, pieces: &[IoSlice<'_>], flags: u32) -> io::Result<(usize, Option<Ticket>)> {
        let pieces: Vec<_> = pieces.iter().map(|p| (p.as_ptr(), p.len())).collect();
        // SAFETY: our caller's promise is the one asked for. Test: borrowed_memory_is_sent_and_completes.
        let io = unsafe { BorrowedIo::new(&pieces) }?;
        let mut call = SendCall::new(io, flags);
        let wait_for_room = !self.is_nonblocking() && flags & MSG_DONTWAIT == 0;
        while !call.is_done() {
            match call.attempt(&self.socket.0) {
                Ok(_) => {}
                Err(Error::WouldBlock) if wait_for_room => {
                    match wait(&self.stack, &self.socket.0, Ready::OUT | Ready::HUP, self.write_timeout()) {
                        Err(e) if call.sent() == 0 => return Err(e.into()),
                        Err(_) => break,
                        Ok(()) => {}
                    }
                }
                Err(e) if call.sent() == 0 => return Err(e.into()),
                // Cut short: what is queued counts, and the error shows in the next call.
                Err(_) => break,
            }
        }
        Ok((call.sent(), call.ticket()))
    }
}
