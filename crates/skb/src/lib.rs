//! The packet, and the memory it points at.
//!
//! # Theory of operation
//!
//! A [`SkBuff`] is a small private head, where all headers live, and up to [`MAX_SKB_FRAGS`] fragments.
//! A [`Frag`] is a span of memory together with a counted reference to whoever owns it: a page of a
//! [`PagePool`], shared [`bytes::Bytes`], or memory a program has *lent* for one send call. Cloning a
//! packet counts references; no payload moves.
//!
//! Each lending send call has one [`UbufInfo`]. Every fragment that points into the call's memory holds
//! it, whether the fragment sits in a retransmit queue, a device ring, a traffic shaper or a neighbour
//! queue. **Completion is the drop of the last reference**: the end of a call's last fragment puts the notification
//! on the socket's [`ErrorQueue`]. Nobody calls it, so no path can forget it and no path can do it twice.
//! Because references are owned by fragments, one packet may carry several calls, and lent and copied
//! bytes side by side, and each call completes with its own bytes and no others.
//!
//! [`SkBuff::orphan`] is the way back to a copy: it replaces a packet's lent fragments by private ones and
//! writes the [`Reason`] into their calls. Other packets over the same bytes (the retransmit queue's) are
//! not touched.
//!
//! *Foreign memory.* Lent memory may be changed by its owner at any moment. It is therefore never a
//! `&[u8]` here: [`foreign`] is the one file that touches it, by raw copies, and every decision on payload
//! is taken on a private copy.
//!
//! # What cannot fail later
//! The room for a notification is reserved when the call is begun ([`ErrorQueue::begin`]), which is where
//! `ENOBUFS` comes from. Completing allocates nothing.

mod batch;
mod checksum;
mod errqueue;
pub mod evict;
pub mod foreign;
mod frag;
mod lent;
mod memlock;
mod pool;
mod reason;
mod skbuff;
mod ubuf;

pub use batch::completing_together;
pub use errqueue::{
    Completion, ErrorOrigin, ErrorQueue, ExtendedError, LendError, Notify, OPTMEM_PER_CALL, Queued,
};
pub use foreign::{PageWriter, Span};
pub use frag::Frag;
pub use lent::Lent;
pub use memlock::MemLock;
pub use pool::{PageMut, PagePool, PageRef};
pub use reason::{REASONS, Reason};
pub use skbuff::{Charge, Csum, Gso, GsoKind, HEAD_SIZE, HEADROOM, Meta, NoRoom, SkBuff};
pub use ubuf::{Change, UbufInfo};

/// Most fragments in one packet, as in Linux.
pub const MAX_SKB_FRAGS: usize = 17;
