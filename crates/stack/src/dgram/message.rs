//! What one send call brings, and how its pieces become fragments.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use skb::{Frag, Lent, MAX_SKB_FRAGS, PageWriter, Reason, SkBuff, Span, UbufInfo};

use crate::dgram::Dgram;
use crate::error::Error;
use crate::raw::{BorrowedIo, CopyIn, Kept, lent_span};
use crate::stats::Counters;
use crate::tcp_calls::Ticket;

/// A piece of a message.
#[derive(Debug)]
pub enum Piece<'a> {
    /// Copied in.
    Copy(&'a [u8]),
    /// Lent by value: not copied, and nobody can change it before the call's completion.
    Lent(Lent),
    /// Borrowed memory, by address. With `lend` (`MSG_ZEROCOPY`) and `SO_ZEROCOPY` on the socket it is lent;
    /// else copied in.
    Borrowed {
        /// The memory.
        io: &'a BorrowedIo,
        /// Whether to lend it.
        lend: bool,
    },
}

impl Piece<'_> {
    fn len(&self) -> usize {
        match self {
            Piece::Copy(bytes) => bytes.len(),
            Piece::Lent(lent) => lent.len(),
            Piece::Borrowed { io, .. } => io.len(),
        }
    }

    fn is_lent(&self, zerocopy: bool) -> bool {
        match self {
            Piece::Copy(_) => false,
            Piece::Lent(lent) => !lent.is_empty(),
            Piece::Borrowed { io, lend } => *lend && zerocopy && !io.is_empty(),
        }
    }
}

/// Bytes in all pieces.
pub(crate) fn total(pieces: &[Piece<'_>]) -> usize {
    pieces.iter().map(Piece::len).sum()
}

/// What a call says about its packet, in place of the socket's options (control messages).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Source address (`IP_PKTINFO`).
    pub source: Option<IpAddr>,
    /// Interface to leave by (`IP_PKTINFO`), numbered as in [`Received::interface`](crate::Received::interface).
    pub interface: Option<u32>,
    /// `IP_TTL`, `IPV6_HOPLIMIT`.
    pub hop_limit: Option<u8>,
    /// `IP_TOS`, `IPV6_TCLASS`.
    pub tos: Option<u8>,
    /// `UDP_SEGMENT`.
    pub segment: Option<u16>,
}

/// One `sendmsg` call.
#[derive(Debug, Default)]
pub struct Message<'a> {
    /// Where to; `None` for where the socket is connected to.
    pub to: Option<SocketAddr>,
    /// The payload.
    pub pieces: &'a [Piece<'a>],
    /// What differs from the socket's options.
    pub control: Control,
    /// `MSG_MORE`: the datagram goes on in the next call.
    pub more: bool,
}

/// What a send call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Payload bytes taken: all of them.
    pub len: usize,
    /// The call's number, if any piece was lent.
    pub ticket: Option<Ticket>,
}

thread_local! {
    /// The page that copied bytes go to; one per thread and not per socket (Linux's `task_frag`).
    static TAIL: RefCell<Option<PageWriter>> = const { RefCell::new(None) };
}

impl Dgram {
    /// Turns the pieces into fragments, behind those in `out`. All lent pieces are one call; on error nothing
    /// was appended and no number taken.
    pub(crate) fn gather(&self, pieces: &[Piece<'_>], out: &mut Vec<Frag>) -> Result<Option<Ticket>, Error> {
        let zerocopy = self.zerocopy();
        let is_lent = |p: &&Piece<'_>| p.is_lent(zerocopy);
        let lent: usize = pieces.iter().filter(is_lent).map(Piece::len).sum();
        let call = if lent == 0 { None } else { Some(self.begin(pieces, lent)?) };
        let mut copied = 0;
        for piece in pieces.iter().filter(|p| p.len() > 0) {
            match (piece, call.as_ref().filter(|_| piece.is_lent(zerocopy))) {
                (Piece::Lent(buffer), Some(call)) => out.extend(lent_span(buffer).map(|s| call.frag(s))),
                (Piece::Borrowed { io, .. }, Some(call)) => {
                    out.extend(io.spans().iter().map(|s| call.frag(*s)));
                }
                (Piece::Copy(bytes), _) => {
                    copied += bytes.len();
                    self.copy_in(CopyIn::from_slice(bytes).span(), out);
                }
                (Piece::Borrowed { io, .. }, None) => {
                    copied += io.len();
                    io.spans().iter().for_each(|s| self.copy_in(*s, out));
                }
                // A buffer that is not empty is lent.
                (Piece::Lent(_), None) => {}
            }
        }
        let counters = &self.shared.counters.send;
        Counters::add(&counters.copied_bytes, copied as u64);
        Counters::add(&counters.lent_calls, u64::from(call.is_some()));
        Counters::add(&counters.lent_bytes, lent as u64);
        Ok(call.map(|c| Ticket { id: c.id() }))
    }

    /// A private copy of the first `n` bytes of the pieces, or of all there are: what is decided by them must
    /// not change any more.
    pub(crate) fn front(&self, pieces: &[Piece<'_>], n: usize) -> Vec<u8> {
        let mut copied = Vec::new();
        let mut left = n;
        let mut take = |span: Span| {
            let part = span.slice(0, left);
            left -= part.len();
            self.copy_in(part, &mut copied);
        };
        for piece in pieces {
            match piece {
                Piece::Copy(bytes) => take(CopyIn::from_slice(bytes).span()),
                Piece::Lent(lent) => lent_span(lent).into_iter().for_each(&mut take),
                Piece::Borrowed { io, .. } => io.spans().iter().copied().for_each(&mut take),
            }
        }
        let parts = copied.iter().filter_map(Frag::as_private_slice);
        parts.flatten().copied().collect()
    }

    fn begin(&self, pieces: &[Piece<'_>], lent: usize) -> Result<Arc<UbufInfo>, Error> {
        let mut owned: Vec<_> = Vec::new();
        let (mut spans, mut borrowed): (Vec<Span>, Vec<Span>) = (Vec::new(), Vec::new());
        for piece in pieces.iter().filter(|p| p.is_lent(self.zerocopy())) {
            match piece {
                Piece::Lent(buffer) => {
                    owned.push(buffer.clone());
                    spans.extend(lent_span(buffer));
                }
                Piece::Borrowed { io, .. } => {
                    borrowed.extend(io.spans());
                    spans.extend(io.spans());
                }
                Piece::Copy(_) => {}
            }
        }
        let mut keep = Kept::of(owned).map(Lent::into_bytes);
        let mut call = self.errors.begin(lent as u64, &mut keep)?;
        if !borrowed.is_empty() {
            call = call.borrowing(&borrowed);
        }
        if self.shared.config.check_lent {
            call.remember(&spans);
        }
        Ok(call)
    }

    fn copy_in(&self, mut rest: Span, out: &mut Vec<Frag>) {
        let mut copy = |tail: &mut Option<PageWriter>| {
            while !rest.is_empty() {
                let writer = tail.get_or_insert_with(|| self.shared.pages.alloc().into_writer());
                let Some(part) = writer.append(rest) else {
                    *tail = None;
                    continue;
                };
                rest = rest.slice(part.len(), rest.len());
                match out.last_mut().map(|last| last.join(part.clone())) {
                    Some(Ok(())) => {}
                    _ => out.push(part),
                }
            }
        };
        TAIL.with(|tail| copy(&mut tail.borrow_mut()));
    }
}

/// One packet over the fragments. What is beyond the number that a packet can have is copied into one, and its
/// calls say [`Reason::Linearize`].
pub(crate) fn pack(frags: Vec<Frag>) -> SkBuff {
    let mut skb = SkBuff::new();
    let mut frags = frags.into_iter();
    let mut rest = Vec::new();
    while let Some(frag) = frags.next() {
        // One place is kept for the rest.
        let full = skb.frags().len() + 1 == MAX_SKB_FRAGS && frags.len() > 0;
        if let Err(frag) = if full { Err(frag) } else { skb.add_frag(frag) } {
            rest.push(frag);
            rest.extend(frags);
            break;
        }
    }
    if !rest.is_empty() {
        let mut bytes = vec![0; rest.iter().map(Frag::len).sum()];
        let mut at = 0;
        for frag in &rest {
            let end = at + frag.len();
            frag.copy_to(0, &mut bytes[at..end]);
            at = end;
            if let Some(call) = frag.ubuf() {
                call.mark(Reason::Linearize);
            }
        }
        if skb.add_frag(Frag::from_bytes(bytes.into())).is_err() {
            debug_assert!(false, "a place was kept");
        }
    }
    skb
}
