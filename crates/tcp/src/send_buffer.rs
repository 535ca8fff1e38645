//! What the program has sent and the peer has not acknowledged: a rope of fragments in sequence order.
//!
//! It is not a queue of packets. A lent megabyte is one chunk; packets cut counted slices out of it, any
//! number of times, and the chunk leaves when its last byte is acknowledged.

use std::collections::VecDeque;

use skb::{Frag, SkBuff};
use wire::SeqNum;

use crate::Released;

#[derive(Debug)]
struct Chunk {
    seq: SeqNum,
    /// A record ends here: no packet goes on beyond it.
    eor: bool,
    frag: Frag,
}

impl Chunk {
    fn end(&self) -> SeqNum {
        self.seq + self.frag.len() as u32
    }
}

/// The rope.
#[derive(Debug)]
pub(crate) struct SendBuffer {
    chunks: VecDeque<Chunk>,
    /// First byte not acknowledged.
    start: SeqNum,
    /// One past the last byte.
    end: SeqNum,
    /// Chunks that end a record.
    records: u32,
}

impl SendBuffer {
    pub(crate) fn new(start: SeqNum) -> Self {
        Self { chunks: VecDeque::new(), start, end: start, records: 0 }
    }

    /// Bytes not acknowledged.
    pub(crate) fn len(&self) -> usize {
        self.end.since(self.start) as usize
    }

    /// One past the last byte.
    pub(crate) fn end(&self) -> SeqNum {
        self.end
    }

    /// Appends a fragment; one that continues the last in memory becomes a part of it.
    pub(crate) fn append(&mut self, frag: Frag) {
        let len = frag.len() as u32;
        let seq = self.end;
        self.end += len;
        let frag = match self.chunks.back_mut() {
            Some(last) if !last.eor => match last.frag.join(frag) {
                Ok(()) => return,
                Err(frag) => frag,
            },
            _ => frag,
        };
        self.chunks.push_back(Chunk { seq, eor: false, frag });
    }

    /// What is appended from here on goes into other packets.
    pub(crate) fn end_record(&mut self) {
        if let Some(last) = self.chunks.back_mut().filter(|c| !c.eor) {
            last.eor = true;
            self.records += 1;
        }
    }

    /// Where the record that `seq` lies in ends, or the queue.
    pub(crate) fn record_end(&self, seq: SeqNum) -> SeqNum {
        if self.records == 0 {
            return self.end;
        }
        let first = self.chunks.partition_point(|c| c.end().before_eq(seq));
        self.chunks.range(first..).find(|c| c.eor).map_or(self.end, Chunk::end)
    }

    /// Lets go of everything before `upto`.
    pub(crate) fn ack(&mut self, upto: SeqNum, released: &mut Released) {
        self.start = upto.min(self.end).max(self.start);
        while self.chunks.front().is_some_and(|c| c.end().before_eq(self.start)) {
            if let Some(chunk) = self.chunks.pop_front() {
                self.records -= u32::from(chunk.eor);
                released.push(chunk.frag);
            }
        }
        if self.chunks.is_empty() && self.chunks.capacity() > 64 {
            // An idle connection keeps no large queue.
            self.chunks = VecDeque::new();
        }
    }

    /// Lets go of everything.
    pub(crate) fn clear(&mut self, released: &mut Released) {
        self.start = self.end;
        self.records = 0;
        released.extend(self.chunks.drain(..).map(|c| c.frag));
    }

    /// A packet over at most `max` bytes from `seq` on: counted slices, no copy. Shorter when the packet
    /// runs out of fragments.
    pub(crate) fn slice(&self, seq: SeqNum, max: usize) -> SkBuff {
        let mut skb = SkBuff::new();
        let first = self.chunks.partition_point(|c| c.end().before_eq(seq));
        let mut at = seq;
        let mut left = max;
        for chunk in self.chunks.range(first..) {
            if left == 0 {
                break;
            }
            let part = chunk.frag.slice(at.since(chunk.seq) as usize, left);
            let n = part.len();
            if skb.add_frag(part).is_err() {
                break;
            }
            left -= n;
            at += n as u32;
            if chunk.eor && at == chunk.end() {
                break;
            }
        }
        skb
    }
}
