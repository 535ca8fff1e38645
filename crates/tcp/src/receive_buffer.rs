//! What the peer has sent: in order for the reader, out of order until the holes fill.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use skb::{Frag, SkBuff};
use wire::SeqNum;

/// What a queued packet costs beside its payload: its box and its place here. Counting it bounds what many
/// tiny segments can take.
const OVERHEAD: usize = 512;

/// A run of bytes that came too early.
#[derive(Debug)]
struct Early {
    seq: SeqNum,
    end: SeqNum,
    frags: Vec<Frag>,
}

/// In-order and out-of-order queues.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    ready: VecDeque<Frag>,
    readable: usize,
    /// Sorted, not overlapping, not touching `rcv.nxt`.
    ooo: VecDeque<Early>,
    ooo_bytes: usize,
    /// Fragments in `ooo`: tiny ones cost more than their bytes.
    ooo_frags: usize,
    /// Runs that changed last come first in SACK blocks (RFC 2018, 4).
    recent: ArrayVec<SeqNum, 4>,
}

impl ReceiveBuffer {
    pub(crate) fn new() -> Self {
        Self {
            ready: VecDeque::new(),
            readable: 0,
            ooo: VecDeque::new(),
            ooo_bytes: 0,
            ooo_frags: 0,
            recent: ArrayVec::new(),
        }
    }

    /// Bytes that can be read.
    pub(crate) fn readable(&self) -> usize {
        self.readable
    }

    /// Whether there are holes.
    pub(crate) fn has_holes(&self) -> bool {
        !self.ooo.is_empty()
    }

    /// Memory held, overhead counted.
    pub(crate) fn held(&self) -> usize {
        self.readable + self.ooo_bytes + (self.ready.len() + self.ooo_frags) * OVERHEAD
    }

    /// Queues payload that begins at `rcv.nxt`.
    pub(crate) fn push(&mut self, payload: SkBuff) {
        let mut payload = payload;
        if payload.headlen() > 0 {
            self.push_frag(Frag::copied_from(payload.head()));
        }
        for frag in payload.take_frags() {
            self.push_frag(frag);
        }
    }

    fn push_frag(&mut self, frag: Frag) {
        if frag.is_empty() {
            return;
        }
        self.readable += frag.len();
        let frag = match self.ready.back_mut() {
            // Small pieces are gathered, so that a stream of tiny segments does not hold a page each.
            Some(last) if frag.len() < 256 && last.len() < 2048 => {
                let mut both = vec![0; last.len() + frag.len()];
                last.copy_to(0, &mut both[..last.len()]);
                frag.copy_to(0, &mut both[last.len()..]);
                *last = Frag::from_bytes(both.into());
                return;
            }
            _ => frag,
        };
        self.ready.push_back(frag);
    }

    /// Keeps payload that begins at `seq`, beyond `rcv.nxt`; false if all of it was known.
    pub(crate) fn insert_early(&mut self, mut seq: SeqNum, mut payload: SkBuff) -> bool {
        let mut end = seq + payload.len() as u32;
        let first = self.ooo.partition_point(|e| e.end.before(seq));
        // What an earlier run has is cut off the front, what later ones have is theirs to lose.
        if let Some(e) = self.ooo.get(first).filter(|e| e.seq.before_eq(seq)) {
            if e.end.after_eq(end) {
                self.touch(e.seq);
                return false;
            }
            payload.advance(e.end.since(seq) as usize);
            seq = e.end;
        }
        let mut n = self.ooo.partition_point(|e| e.end.before_eq(seq));
        while let Some(e) = self.ooo.get(n).filter(|e| e.seq.before(end)) {
            if e.end.after(end) {
                payload.trim(e.seq.since(seq) as usize);
                end = e.seq;
                break;
            }
            self.ooo_bytes -= e.end.since(e.seq) as usize;
            self.ooo_frags -= e.frags.len();
            self.ooo.remove(n);
        }
        n = self.ooo.partition_point(|e| e.seq.before(seq));
        self.ooo_bytes += end.since(seq) as usize;
        let mut run = Early { seq, end, frags: into_frags(payload) };
        self.ooo_frags += run.frags.len();
        // Join with the neighbours it touches, so that SACK blocks are as long as can be.
        if self.ooo.get(n).is_some_and(|e| e.seq == run.end)
            && let Some(next) = self.ooo.remove(n)
        {
            run.end = next.end;
            run.frags.extend(next.frags);
        }
        match n.checked_sub(1).and_then(|p| self.ooo.get_mut(p)).filter(|e| e.end == run.seq) {
            Some(previous) => {
                previous.end = run.end;
                previous.frags.extend(run.frags);
                seq = previous.seq;
            }
            None => {
                seq = run.seq;
                self.ooo.insert(n, run);
            }
        }
        self.touch(seq);
        true
    }

    /// The run that begins at `seq` changed last.
    fn touch(&mut self, seq: SeqNum) {
        self.recent.retain(|s| *s != seq);
        if self.recent.is_full() {
            self.recent.pop();
        }
        self.recent.insert(0, seq);
    }

    /// Moves what `nxt` has reached into the readable queue; the new `rcv.nxt`.
    pub(crate) fn fill(&mut self, mut nxt: SeqNum) -> SeqNum {
        while let Some(run) = self.ooo.front() {
            if run.seq.after(nxt) {
                break;
            }
            let Some(run) = self.ooo.pop_front() else { break };
            self.ooo_bytes -= run.end.since(run.seq) as usize;
            self.ooo_frags -= run.frags.len();
            self.recent.retain(|s| *s != run.seq);
            if run.end.before_eq(nxt) {
                continue;
            }
            let mut skip = nxt.since(run.seq) as usize;
            for mut frag in run.frags {
                let cut = skip.min(frag.len());
                frag.advance(cut);
                skip -= cut;
                self.push_frag(frag);
            }
            nxt = run.end;
        }
        nxt
    }

    /// SACK blocks, most recently changed first.
    pub(crate) fn sack_blocks(&self, most: usize) -> ArrayVec<(SeqNum, SeqNum), 4> {
        let mut blocks: ArrayVec<(SeqNum, SeqNum), 4> = ArrayVec::new();
        for recent in &self.recent {
            if blocks.len() == most {
                break;
            }
            let n = self.ooo.partition_point(|e| e.end.before_eq(*recent));
            let Some(e) = self.ooo.get(n).filter(|e| e.seq.before_eq(*recent)) else { continue };
            if !blocks.contains(&(e.seq, e.end)) {
                blocks.push((e.seq, e.end));
            }
        }
        blocks
    }

    /// Makes room for `len` bytes at `seq` within `limit`, at the cost of what lies further out: the peer
    /// sends that again (RFC 2018, 8, allows it). False if there is none to be made.
    pub(crate) fn make_room(&mut self, seq: SeqNum, len: usize, limit: usize) -> bool {
        while self.held() + len + OVERHEAD > limit {
            if !self.ooo.back().is_some_and(|e| e.seq.after(seq)) {
                return false;
            }
            let Some(last) = self.ooo.pop_back() else { return false };
            self.ooo_bytes -= last.end.since(last.seq) as usize;
            self.ooo_frags -= last.frags.len();
            self.recent.retain(|s| *s != last.seq);
        }
        true
    }

    /// Moves up to `max` readable bytes to `out`; how many.
    pub(crate) fn take(&mut self, max: usize, out: &mut Vec<Frag>) -> usize {
        let mut left = max.min(self.readable);
        let taken = left;
        while left > 0 {
            let Some(front) = self.ready.front_mut() else { break };
            if front.len() > left {
                out.push(front.split_to(left));
                break;
            }
            left -= front.len();
            out.extend(self.ready.pop_front());
        }
        self.readable -= taken;
        if self.ready.is_empty() && self.ready.capacity() > 64 {
            self.ready = VecDeque::new();
        }
        taken
    }

    /// Readable bytes in the first `pieces` pieces.
    pub(crate) fn in_front(&self, pieces: usize) -> usize {
        self.ready.iter().take(pieces).map(Frag::len).sum()
    }

    /// Copies readable bytes, without the first `skip`, and without taking them.
    pub(crate) fn peek(&self, skip: usize, out: &mut [u8]) -> usize {
        let (mut skip, mut done) = (skip, 0);
        for frag in &self.ready {
            let from = skip.min(frag.len());
            skip -= from;
            let n = (frag.len() - from).min(out.len() - done);
            if n == 0 && skip == 0 && done == out.len() {
                break;
            }
            frag.copy_to(from, &mut out[done..done + n]);
            done += n;
        }
        done
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}

fn into_frags(mut payload: SkBuff) -> Vec<Frag> {
    let mut frags = Vec::new();
    if payload.headlen() > 0 {
        frags.push(Frag::copied_from(payload.head()));
    }
    frags.extend(payload.take_frags());
    frags
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(range: std::ops::Range<u32>) -> SkBuff {
        SkBuff::from_slice(&range.map(|i| (i % 251) as u8).collect::<Vec<_>>())
    }

    /// Whatever the order and overlap, the stream comes out once and whole.
    #[test]
    fn pieces_in_any_order_with_any_overlap_make_the_stream() {
        let mut seed = 1u64;
        let mut random = |n: u32| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as u32 % n
        };
        let base = SeqNum(u32::MAX - 3000);
        for _ in 0..300 {
            let mut b = ReceiveBuffer::new();
            let mut nxt = base;
            let mut rounds = 0;
            while nxt.since(base) < 8000 {
                let at = if rounds > 200 { nxt.since(base) } else { random(8000) };
                let len = (1 + random(900)).min(8000 - at);
                rounds += 1;
                let (seq, mut payload) = (base + at, bytes(at..at + len));
                if (seq + len).before_eq(nxt) {
                    continue;
                }
                if seq.after(nxt) {
                    b.insert_early(seq, payload);
                } else {
                    payload.advance(nxt.since(seq) as usize);
                    nxt = seq + len;
                    b.push(payload);
                    nxt = b.fill(nxt);
                }
                let blocks = b.sack_blocks(4);
                assert!(blocks.iter().all(|(s, e)| s.before(*e) && s.after(nxt)));
            }
            let mut out = Vec::new();
            assert_eq!(b.take(usize::MAX, &mut out), 8000);
            let got: Vec<u8> = out.iter().flat_map(|f| f.as_private_slice().unwrap().to_vec()).collect();
            assert_eq!(got, bytes(0..8000).to_vec());
            assert_eq!((b.held(), b.has_holes()), (0, false));
        }
    }

    #[test]
    fn the_block_that_changed_last_comes_first() {
        let mut b = ReceiveBuffer::new();
        b.insert_early(SeqNum(100), bytes(0..10));
        b.insert_early(SeqNum(300), bytes(0..10));
        b.insert_early(SeqNum(110), bytes(0..10));
        let blocks = b.sack_blocks(3);
        assert_eq!(blocks[..], [(SeqNum(100), SeqNum(120)), (SeqNum(300), SeqNum(310))]);
    }

    #[test]
    fn tiny_pieces_are_gathered() {
        let mut b = ReceiveBuffer::new();
        (0..1000u32).for_each(|i| b.push(bytes(i..i + 1)));
        assert!(b.held() < 1000 + 4 * OVERHEAD);
    }
}
