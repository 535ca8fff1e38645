//! The packet.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};

use arrayvec::ArrayVec;
use crossbeam_queue::ArrayQueue;

use crate::{Frag, MAX_SKB_FRAGS, PagePool, Reason, checksum};

/// Bytes in a packet's private head.
pub const HEAD_SIZE: usize = 256;
/// Of which a fresh packet keeps this many free in front, for the headers to be pushed.
pub const HEADROOM: usize = 160;
/// Where a received packet's head begins: almost all of it is room to pull headers into.
const RX_START: usize = 32;
/// The largest payload that is put into the head rather than into a fragment.
const SMALL: usize = HEAD_SIZE - HEADROOM;

/// What is known about the transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Csum {
    /// Sent: the field is final. Received: nobody has looked.
    #[default]
    None,
    /// To be finished by the device: sum from `start` to the end and store, inverted, at `start + offset`.
    /// The field already holds the pseudo-header's sum. `start` counts from the packet's current front.
    Partial {
        /// First byte summed.
        start: u16,
        /// Where the field lies, from `start`.
        offset: u16,
    },
    /// Received and verified by the device, or never at risk.
    Unnecessary,
}

/// Which protocol a large packet is to be segmented as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over either.
    Udp,
}

/// A packet that stands for several on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Protocol.
    pub kind: GsoKind,
    /// Payload bytes per segment.
    pub size: u16,
    /// How many segments.
    pub segs: u16,
}

/// What travels with a packet beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meta {
    /// Checksum state.
    pub csum: Csum,
    /// Set when the packet stands for several.
    pub gso: Option<Gso>,
    /// Link header bytes at the front (0 when it is off or there is none).
    pub mac_len: u16,
    /// Device queue the packet came from or goes to.
    pub queue: u16,
    /// Flow hash, 0 if unknown.
    pub hash: u32,
}

/// Whatever was charged for a packet: it is dropped with the last packet made of it, which gives it back
/// (Linux: `sock_wfree`).
pub type Charge = Arc<dyn std::any::Any + Send + Sync>;

/// A push or put does not fit into the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl core::fmt::Display for NoRoom {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("no room in the packet's head")
    }
}

impl std::error::Error for NoRoom {}

struct Inner {
    meta: Meta,
    charge: Option<Charge>,
    start: u16,
    end: u16,
    data_len: u32,
    frags: ArrayVec<Frag, MAX_SKB_FRAGS>,
    head: [u8; HEAD_SIZE],
}

/// A packet: a private head, up to [`MAX_SKB_FRAGS`] fragments, and [`Meta`] (reached by deref).
///
/// Dropping it drops its fragments, and with the last reference to lent memory completes the call. The
/// box itself is kept for the next packet.
pub struct SkBuff(Option<Box<Inner>>);

impl Deref for SkBuff {
    type Target = Meta;
    fn deref(&self) -> &Meta {
        &self.inner().meta
    }
}

impl DerefMut for SkBuff {
    fn deref_mut(&mut self) -> &mut Meta {
        &mut self.inner_mut().meta
    }
}

impl Default for SkBuff {
    fn default() -> Self {
        Self::new()
    }
}

impl core::fmt::Debug for SkBuff {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let i = self.inner();
        f.debug_struct("SkBuff")
            .field("head", &self.headlen())
            .field("frags", &i.frags.iter().map(Frag::len).collect::<Vec<_>>())
            .field("meta", &i.meta)
            .finish()
    }
}

impl Clone for SkBuff {
    /// Counts references; only the small head is copied.
    fn clone(&self) -> Self {
        let i = self.inner();
        let mut new = SkBuff::new();
        let n = new.inner_mut();
        n.meta = i.meta;
        n.charge.clone_from(&i.charge);
        (n.start, n.end, n.data_len) = (i.start, i.end, i.data_len);
        let used = i.start as usize..i.end as usize;
        n.head[used.clone()].copy_from_slice(&i.head[used]);
        n.frags.extend(i.frags.iter().cloned());
        new
    }
}

impl Drop for SkBuff {
    fn drop(&mut self) {
        if let Some(mut inner) = self.0.take() {
            inner.frags.clear();
            inner.charge = None;
            heads::put(inner);
        }
    }
}

impl SkBuff {
    /// An empty packet with [`HEADROOM`].
    pub fn new() -> SkBuff {
        let mut inner = heads::get();
        inner.meta = Meta::default();
        inner.start = HEADROOM as u16;
        inner.end = HEADROOM as u16;
        inner.data_len = 0;
        SkBuff(Some(inner))
    }

    /// A received packet: all of it in `frag`, the head free to pull headers into.
    pub fn from_frag(frag: Frag) -> SkBuff {
        let mut skb = SkBuff::new();
        let i = skb.inner_mut();
        (i.start, i.end) = (RX_START as u16, RX_START as u16);
        i.data_len = frag.len() as u32;
        if !frag.is_empty() {
            i.frags.push(frag);
        }
        skb
    }

    /// A packet over a private copy of `bytes`.
    pub fn from_slice(bytes: &[u8]) -> SkBuff {
        let mut skb = SkBuff::new();
        if bytes.len() > SMALL || skb.put(bytes).is_err() {
            let i = skb.inner_mut();
            i.data_len = bytes.len() as u32;
            i.frags.push(Frag::copied_from(bytes));
        }
        skb
    }

    fn inner(&self) -> &Inner {
        self.0.as_deref().expect("present until drop")
    }

    fn inner_mut(&mut self) -> &mut Inner {
        self.0.as_deref_mut().expect("present until drop")
    }

    /// Bytes in the packet.
    pub fn len(&self) -> usize {
        self.headlen() + self.data_len()
    }

    /// True for a packet of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in the head.
    pub fn headlen(&self) -> usize {
        let i = self.inner();
        usize::from(i.end - i.start)
    }

    /// Bytes in fragments.
    pub fn data_len(&self) -> usize {
        self.inner().data_len as usize
    }

    /// The head's bytes: the front of the packet.
    pub fn head(&self) -> &[u8] {
        let i = self.inner();
        &i.head[i.start as usize..i.end as usize]
    }

    /// The head's bytes, to be changed.
    pub fn head_mut(&mut self) -> &mut [u8] {
        let i = self.inner_mut();
        &mut i.head[i.start as usize..i.end as usize]
    }

    /// Puts `n` zeroed bytes in front, for a header.
    pub fn push(&mut self, n: usize) -> Result<&mut [u8], NoRoom> {
        let i = self.inner_mut();
        let start = usize::from(i.start).checked_sub(n).ok_or(NoRoom)?;
        if let Csum::Partial { start, .. } = &mut i.meta.csum {
            *start += n as u16;
        }
        i.start = start as u16;
        let room = &mut i.head[start..start + n];
        room.fill(0);
        Ok(room)
    }

    /// Appends `bytes` to the head. Only for a packet without fragments.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let i = self.inner_mut();
        let end = usize::from(i.end);
        if !i.frags.is_empty() || end + bytes.len() > HEAD_SIZE {
            return Err(NoRoom);
        }
        i.head[end..end + bytes.len()].copy_from_slice(bytes);
        i.end = (end + bytes.len()) as u16;
        Ok(())
    }

    /// Makes the first `n` bytes contiguous in the head, copying what is missing from the fragments, and
    /// returns them. `None` if the packet is shorter or the head too small.
    pub fn may_pull(&mut self, n: usize) -> Option<&[u8]> {
        let have = self.headlen();
        if have < n {
            self.pull_tail(n - have)?;
        }
        self.head().get(..n)
    }

    fn pull_tail(&mut self, more: usize) -> Option<()> {
        if more > self.data_len() {
            return None;
        }
        let i = self.inner_mut();
        if usize::from(i.end) + more > HEAD_SIZE {
            let used = usize::from(i.end - i.start);
            if used + more > HEAD_SIZE {
                return None;
            }
            i.head.copy_within(i.start as usize..i.end as usize, 0);
            (i.start, i.end) = (0, used as u16);
        }
        let end = usize::from(i.end);
        copy_frags(&i.frags, 0, &mut i.head[end..end + more]);
        i.end = (end + more) as u16;
        drop_front(&mut i.frags, more);
        i.data_len -= more as u32;
        Some(())
    }

    /// Drops `n` bytes from the front; false, dropping nothing, if the packet is shorter.
    pub fn advance(&mut self, n: usize) -> bool {
        if n > self.len() {
            return false;
        }
        let i = self.inner_mut();
        if let Csum::Partial { start, offset } = i.meta.csum {
            i.meta.csum = match usize::from(start).checked_sub(n) {
                Some(start) => Csum::Partial { start: start as u16, offset },
                // The summed part itself is being taken off: whoever does that has seen it.
                None => Csum::Unnecessary,
            };
        }
        let from_head = n.min(usize::from(i.end - i.start));
        i.start += from_head as u16;
        drop_front(&mut i.frags, n - from_head);
        i.data_len -= (n - from_head) as u32;
        true
    }

    /// Keeps the first `len` bytes.
    pub fn trim(&mut self, len: usize) {
        let i = self.inner_mut();
        let head = usize::from(i.end - i.start);
        if len <= head {
            i.end = i.start + len as u16;
            i.frags.clear();
            i.data_len = 0;
            return;
        }
        let mut left = len - head;
        if left >= i.data_len as usize {
            return;
        }
        i.data_len = left as u32;
        let mut keep = 0;
        for frag in &mut i.frags {
            if left == 0 {
                break;
            }
            frag.truncate(left);
            left -= frag.len();
            keep += 1;
        }
        i.frags.truncate(keep);
    }

    /// Says what is given back when this packet, and all that are cut out of it, are gone. `None` gives it
    /// back now (Linux: `skb_orphan`).
    pub fn set_charge(&mut self, charge: Option<Charge>) {
        self.inner_mut().charge = charge;
    }

    /// A packet over `[off, off + len)` of this one, cut to what there is: fragments are counted, head
    /// bytes copied. It has no meta, and shares the charge.
    pub fn slice(&self, off: usize, len: usize) -> SkBuff {
        let off = off.min(self.len());
        let len = len.min(self.len() - off);
        let head = self.head();
        let from_head = head.get(off..(off + len).min(head.len())).unwrap_or(&[]);
        let mut new = SkBuff::from_slice(from_head);
        new.inner_mut().charge.clone_from(&self.inner().charge);
        let mut skip = off.saturating_sub(head.len());
        let mut left = len - from_head.len();
        for frag in &self.inner().frags {
            if left == 0 {
                break;
            }
            if skip >= frag.len() {
                skip -= frag.len();
                continue;
            }
            let part = frag.slice(skip, left);
            skip = 0;
            left -= part.len();
            let n = new.inner_mut();
            n.data_len += part.len() as u32;
            // As many fragments as in `self` at most, plus one for a large head: never over.
            if n.frags.try_push(part).is_err() {
                debug_assert!(false, "a slice has no more fragments than its whole");
            }
        }
        new
    }

    /// Appends the bytes of `other`, head bytes as a fragment. The packet comes back if there would be too
    /// many fragments.
    pub fn append(&mut self, other: SkBuff) -> Result<(), SkBuff> {
        let more = other.inner().frags.len() + usize::from(other.headlen() > 0);
        if self.inner().frags.len() + more > MAX_SKB_FRAGS {
            return Err(other);
        }
        let mut other = other;
        if other.headlen() > 0 {
            let head = Frag::copied_from(other.head());
            self.push_frag(head);
        }
        for frag in other.take_frags() {
            self.push_frag(frag);
        }
        Ok(())
    }

    fn push_frag(&mut self, frag: Frag) {
        if let Err(frag) = self.add_frag(frag) {
            debug_assert!(frag.is_empty(), "room was checked");
        }
    }

    /// Appends a fragment, joining it to the last where it continues it. It comes back if the packet is
    /// full.
    pub fn add_frag(&mut self, frag: Frag) -> Result<(), Frag> {
        let len = frag.len() as u32;
        let i = self.inner_mut();
        let frag = match i.frags.last_mut() {
            Some(last) => match last.join(frag) {
                Ok(()) => {
                    i.data_len += len;
                    return Ok(());
                }
                Err(frag) => frag,
            },
            None => frag,
        };
        i.frags.try_push(frag).map_err(|e| e.element())?;
        i.data_len += len;
        Ok(())
    }

    /// The fragments.
    pub fn frags(&self) -> &[Frag] {
        &self.inner().frags
    }

    /// Takes the fragments out; the head stays.
    pub fn take_frags(&mut self) -> ArrayVec<Frag, MAX_SKB_FRAGS> {
        let i = self.inner_mut();
        i.data_len = 0;
        std::mem::take(&mut i.frags)
    }

    /// Copies `[off, off + out.len())` into `out`; false, copying nothing, if the packet is shorter.
    pub fn copy_bits(&self, off: usize, out: &mut [u8]) -> bool {
        if off.checked_add(out.len()).is_none_or(|end| end > self.len()) {
            return false;
        }
        let head = self.head();
        let from_head = head.get(off..).unwrap_or(&[]);
        let n = from_head.len().min(out.len());
        let (a, b) = out.split_at_mut(n);
        a.copy_from_slice(&from_head[..n]);
        copy_frags(&self.inner().frags, off.saturating_sub(head.len()), b);
        true
    }

    /// The ones'-complement sum of `[off, off + len)`, folded and not inverted. Lent bytes are summed from
    /// a private copy of each block; a packet to be sent with this sum must be orphaned first, or the sum
    /// may not be that of what goes out.
    pub fn checksum(&self, off: usize, len: usize) -> u16 {
        let mut total = 0u16;
        let mut done = 0;
        let mut block = [0u8; 2048];
        while done < len {
            let n = block.len().min(len - done);
            if !self.copy_bits(off + done, &mut block[..n]) {
                break;
            }
            total = checksum::combine(total, checksum::sum(&block[..n]), done % 2 == 1);
            done += n;
        }
        total
    }

    /// All bytes, copied into a vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut v = vec![0; self.len()];
        self.copy_bits(0, &mut v);
        v
    }

    /// Whether any fragment is lent.
    pub fn has_lent(&self) -> bool {
        self.inner().frags.iter().any(Frag::is_lent)
    }

    /// Notes `reason` on the calls whose bytes are in this packet, copying nothing.
    pub fn mark(&self, reason: Reason) {
        for frag in &self.inner().frags {
            if let Some(ubuf) = frag.ubuf() {
                ubuf.mark(reason);
            }
        }
    }

    /// Replaces lent fragments by private copies, notes `reason` on their calls, and lets go of the lent
    /// memory. Returns the bytes copied.
    pub fn orphan(&mut self, reason: Reason) -> usize {
        if !self.has_lent() {
            return 0;
        }
        self.mark(reason);
        let old = self.take_frags();
        let mut copied = 0;
        let mut writer = ORPHANS.alloc().into_writer();
        for frag in old {
            if !frag.is_lent() {
                self.push_frag(frag);
                continue;
            }
            copied += frag.len();
            let _look = crate::evict::touching();
            let mut rest = frag.span();
            while !rest.is_empty() {
                let Some(part) = writer.append(rest) else {
                    writer = ORPHANS.alloc().into_writer();
                    continue;
                };
                rest = rest.slice(part.len(), rest.len());
                self.push_private(part);
            }
        }
        copied
    }

    /// Appends a copied part. Copies of a full packet may straddle a page's end and so need one fragment
    /// more than the original had: then the last ones are joined in a page of their own.
    fn push_private(&mut self, part: Frag) {
        let Err(part) = self.add_frag(part) else { return };
        let i = self.inner_mut();
        if let Some(last) = i.frags.pop() {
            let mut joined = vec![0; last.len() + part.len()];
            last.copy_to(0, &mut joined[..last.len()]);
            part.copy_to(0, &mut joined[last.len()..]);
            i.data_len += part.len() as u32;
            i.frags.push(Frag::from_bytes(joined.into()));
        }
    }

    /// Makes the payload one private fragment, for a device without scatter-gather. Lent bytes are noted
    /// with `reason`.
    pub fn linearize(&mut self, reason: Reason) {
        self.mark(reason);
        let i = self.inner_mut();
        let mut payload = vec![0; i.data_len as usize];
        copy_frags(&i.frags, 0, &mut payload);
        i.frags.clear();
        if !payload.is_empty() {
            i.frags.push(Frag::from_bytes(payload.into()));
        }
    }

    /// A deep copy that shares nothing and marks nothing.
    pub fn private_copy(&self) -> SkBuff {
        let mut new = SkBuff::from_slice(&self.to_vec());
        new.inner_mut().meta = self.inner().meta;
        new
    }

    /// The sum of the private bytes a packet holds: what it costs to keep it queued.
    pub fn truesize(&self) -> usize {
        size_of::<Inner>() + self.data_len()
    }
}

/// Copies from fragments; the range was checked.
fn copy_frags(frags: &[Frag], mut skip: usize, mut out: &mut [u8]) {
    for frag in frags {
        if out.is_empty() {
            return;
        }
        if skip >= frag.len() {
            skip -= frag.len();
            continue;
        }
        let n = (frag.len() - skip).min(out.len());
        let (now, later) = out.split_at_mut(n);
        frag.copy_to(skip, now);
        skip = 0;
        out = later;
    }
}

fn drop_front(frags: &mut ArrayVec<Frag, MAX_SKB_FRAGS>, mut n: usize) {
    let whole = frags.iter().take_while(|f| {
        let gone = n >= f.len() && n > 0;
        n -= if gone { f.len() } else { 0 };
        gone
    });
    let whole = whole.count();
    frags.drain(..whole);
    if let Some(first) = frags.first_mut() {
        first.advance(n);
    }
}

/// Private copies of lent bytes are written here.
static ORPHANS: LazyLock<Arc<PagePool>> = LazyLock::new(|| PagePool::new(64 * 1024, 64));

/// Used boxes, so that a packet costs no allocation. A thread keeps a few; what a thread that only frees
/// collects goes to a shared queue, from which a thread that only sends takes.
#[expect(clippy::vec_box, reason = "it is the boxes that are kept")]
mod heads {
    use super::*;

    const PER_THREAD: usize = 32;
    const SHARED: usize = 1024;

    thread_local! {
        static LOCAL: RefCell<Vec<Box<Inner>>> = const { RefCell::new(Vec::new()) };
    }
    static GLOBAL: LazyLock<ArrayQueue<Box<Inner>>> = LazyLock::new(|| ArrayQueue::new(SHARED));

    pub(super) fn get() -> Box<Inner> {
        let local = LOCAL.try_with(|l| l.borrow_mut().pop()).ok().flatten();
        local.or_else(|| GLOBAL.pop()).unwrap_or_else(fresh)
    }

    pub(super) fn put(inner: Box<Inner>) {
        // A thread that is ending has no cache any more; its packets go to the shared queue.
        let mut inner = Some(inner);
        let _ = LOCAL.try_with(|l| {
            let mut l = l.borrow_mut();
            if l.len() < PER_THREAD {
                l.extend(inner.take());
            }
        });
        if let Some(inner) = inner {
            drop(GLOBAL.push(inner));
        }
    }

    fn fresh() -> Box<Inner> {
        Box::new(Inner {
            meta: Meta::default(),
            charge: None,
            start: 0,
            end: 0,
            data_len: 0,
            frags: ArrayVec::new(),
            head: [0; HEAD_SIZE],
        })
    }
}

#[cfg(test)]
mod tests;
