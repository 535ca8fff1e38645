//! Sends from memory that is only borrowed by address: the `sendmsg`-shaped entry under the C interfaces.
//!
//! Contract. [`BorrowedIo::new`] is unsafe: its caller promises that the memory stays mapped and readable
//! until the call's completion has been read (or the socket is closed and the stack's devices have let go,
//! which [`Stack::quiesce`](crate::Stack::quiesce) waits for). The contents may change; then the peer gets
//! what was there when the device looked, and nothing else suffers.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::Arc;

use skb::{ErrorQueue, Lent, Span, UbufInfo};

use crate::error::Error;
use crate::tcp_calls::{SendFlags, Ticket};
use crate::tcp_socket::TcpSocket;

/// `MSG_ZEROCOPY` (Linux's number): lend the memory instead of copying it.
pub const MSG_ZEROCOPY: u32 = 0x400_0000;
/// `MSG_MORE`: more follows; hold back a small segment.
pub const MSG_MORE: u32 = 0x8000;
/// `MSG_EOR`: a record ends; later bytes go into other packets.
pub const MSG_EOR: u32 = 0x80;
/// `MSG_OOB`: the last byte is urgent.
pub const MSG_OOB: u32 = 0x1;

/// The pieces of one call's memory, by address.
#[derive(Debug)]
pub struct BorrowedIo {
    spans: Vec<Span>,
    len: usize,
}

impl BorrowedIo {
    /// Names the memory of one send call. Empty pieces are skipped; a null pointer with a length is
    /// `Invalid` (`EFAULT`).
    ///
    /// # Safety
    /// Every piece must stay mapped and readable until the call has completed.
    pub unsafe fn new(pieces: &[(*const u8, usize)]) -> Result<Self, Error> {
        let mut spans = Vec::with_capacity(pieces.len());
        for (ptr, len) in pieces.iter().filter(|(_, len)| *len > 0) {
            // SAFETY: the caller's promise is the one `Span::new` asks for.
            // Test: borrowed_memory_is_sent_and_completes.
            spans.push(unsafe { Span::new(*ptr, *len) }.ok_or(Error::Invalid)?);
        }
        let len = spans.iter().map(|s| s.len()).sum();
        Ok(Self { spans, len })
    }

    /// Bytes in all pieces.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }
}

/// Names the bytes of a buffer that is lent by value.
pub(crate) fn lent_span(lent: &Lent) -> Option<Span> {
    let bytes = lent.as_slice();
    // SAFETY: the span goes into fragments of a call that keeps a counted reference to the buffer (`Kept`),
    // and into nothing else. Test: pieces_of_all_kinds_make_one_datagram.
    unsafe { Span::new(bytes.as_ptr(), bytes.len()) }
}

/// The buffers of one call that were lent by value, as one owner.
pub(crate) struct Kept {
    _buffers: Vec<Lent>,
}

impl Kept {
    /// What keeps `buffers` alive; `None` if there are none.
    pub(crate) fn of(mut buffers: Vec<Lent>) -> Option<Lent> {
        match buffers.len() {
            0 | 1 => buffers.pop(),
            _ => Some(Lent::from_owner(Kept { _buffers: buffers })),
        }
    }
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &[]
    }
}

/// A piece of memory to be copied from within one call.
#[derive(Clone, Copy)]
pub(crate) struct CopyIn<'a> {
    span: Span,
    _borrow: PhantomData<&'a [u8]>,
}

impl<'a> CopyIn<'a> {
    pub(crate) fn from_slice(slice: &'a [u8]) -> Self {
        // SAFETY: the borrow outlives this value, and with it every use of the span. A slice's pointer is
        // never null. Test: copied_bytes_arrive_in_order.
        let span = unsafe { Span::new(slice.as_ptr(), slice.len()) };
        Self {
            span: span.unwrap_or_else(|| unreachable!("a slice's pointer is not null")),
            _borrow: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.span.len()
    }

    pub(crate) fn span(&self) -> Span {
        self.span
    }
}

/// A `sendmsg` call in progress: it may take several attempts, and counts once.
#[derive(Debug)]
pub struct SendCall {
    io: BorrowedIo,
    flags: u32,
    sent: usize,
    /// Held until the call returns, so that it cannot complete before.
    ubuf: Option<Arc<UbufInfo>>,
    /// Who is told of the completion, if not the socket's error queue.
    queue: Option<Arc<ErrorQueue>>,
}

impl SendCall {
    /// Prepares a call with `flags` ([`MSG_ZEROCOPY`], [`MSG_MORE`], [`MSG_EOR`], [`MSG_OOB`]; others
    /// are the caller's business).
    pub fn new(io: BorrowedIo, flags: u32) -> Self {
        Self { io, flags, sent: 0, ubuf: None, queue: None }
    }

    /// Takes the call's number from `queue`, which is told of the completion instead of the socket's error
    /// queue. Such a call lends whether or not `SO_ZEROCOPY` is on.
    pub fn completing_on(self, queue: Arc<ErrorQueue>) -> Self {
        Self { queue: Some(queue), ..self }
    }

    /// Bytes queued so far.
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Whether all bytes are queued.
    pub fn is_done(&self) -> bool {
        self.sent == self.io.len()
    }

    /// The call's number, if it lent anything.
    pub fn ticket(&self) -> Option<Ticket> {
        self.ubuf.as_ref().map(|u| Ticket { id: u.id() })
    }

    /// Queues as much as there is room for. Without `SO_ZEROCOPY` on the socket the flag is ignored and the
    /// bytes are copied.
    pub fn attempt(&mut self, socket: &Arc<TcpSocket>) -> Result<usize, Error> {
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::MORE, self.flags & MSG_MORE != 0);
        flags.set(SendFlags::EOR, self.flags & MSG_EOR != 0);
        flags.set(SendFlags::OOB, self.flags & MSG_OOB != 0);
        let queue = match &self.queue {
            None if socket.zerocopy() => Some(&socket.errors),
            other => other.as_ref(),
        };
        let n = if let Some(queue) = queue.filter(|_| self.flags & MSG_ZEROCOPY != 0) {
            socket.send_borrowed(&self.io, &mut self.ubuf, self.sent, flags, queue)?
        } else {
            let mut skip = self.sent;
            let pieces: Vec<_> = self.io.spans().iter().filter_map(|s| remaining(*s, &mut skip)).collect();
            socket.send_copied(&pieces, flags)?
        };
        self.sent += n;
        Ok(n)
    }
}

fn remaining<'a>(span: Span, skip: &mut usize) -> Option<CopyIn<'a>> {
    let rest = span.slice(*skip, span.len());
    *skip = skip.saturating_sub(span.len());
    (!rest.is_empty()).then_some(CopyIn { span: rest, _borrow: PhantomData })
}
