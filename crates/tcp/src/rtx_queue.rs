//! What is in flight, and what is known of it: the scoreboard of RFC 6675.

use std::collections::VecDeque;

use time::Instant;
use wire::SeqNum;

/// A run of sequence numbers that was sent in one packet (or is a part of one).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) seq: SeqNum,
    pub(crate) end: SeqNum,
    pub(crate) sent_at: Instant,
    /// Sent more than once: says nothing about the round-trip time (Karn).
    pub(crate) again: bool,
    /// The peer has it.
    sacked: bool,
    /// Taken for lost.
    lost: bool,
    /// Lost and sent again since.
    rexmit: bool,
}

impl Sent {
    fn len(&self) -> u32 {
        self.end.since(self.seq)
    }
}

/// What an acknowledgment took off the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Acked {
    /// When the newest packet that was sent only once was sent.
    pub(crate) sample: Option<Instant>,
}

/// The queue, in sequence order, with its sums.
#[derive(Debug, Default)]
pub(crate) struct RtxQueue {
    queue: VecDeque<Sent>,
    total: u32,
    sacked: u32,
    lost: u32,
    rexmit: u32,
    /// Newest sequence number that was selectively acknowledged.
    high: Option<SeqNum>,
}

impl RtxQueue {
    /// Records new data as sent.
    pub(crate) fn push(&mut self, seq: SeqNum, end: SeqNum, now: Instant) {
        self.total += end.since(seq);
        self.queue.push_back(Sent {
            seq,
            end,
            sent_at: now,
            again: false,
            sacked: false,
            lost: false,
            rexmit: false,
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes believed to be in the network (RFC 6675, 4: pipe).
    pub(crate) fn in_flight(&self) -> u32 {
        self.total.saturating_sub(self.sacked + self.lost) + self.rexmit
    }

    /// Bytes the peer holds out of order.
    pub(crate) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Bytes taken for lost.
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    /// Whether something lost waits to be sent again.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost > self.rexmit
    }

    /// Everything before `upto` is acknowledged.
    pub(crate) fn ack(&mut self, upto: SeqNum) -> Acked {
        let mut acked = Acked::default();
        while let Some(front) = self.queue.front().copied() {
            if front.end.after(upto) {
                if upto.after(front.seq) {
                    self.split(0, upto);
                    continue;
                }
                break;
            }
            self.forget(&front);
            self.queue.pop_front();
            if !front.again && !front.sacked {
                acked.sample = Some(front.sent_at);
            }
        }
        if self.high.is_some_and(|h| h.before_eq(upto)) {
            self.high = None;
        }
        if self.queue.is_empty() && self.queue.capacity() > 64 {
            self.queue = VecDeque::new();
        }
        acked
    }

    fn forget(&mut self, s: &Sent) {
        let len = s.len();
        self.total -= len;
        self.sacked -= if s.sacked { len } else { 0 };
        self.lost -= if s.lost { len } else { 0 };
        self.rexmit -= if s.rexmit { len } else { 0 };
    }

    /// Cuts entry `n` in two at `at`, which lies inside it.
    fn split(&mut self, n: usize, at: SeqNum) {
        let Some(entry) = self.queue.get_mut(n) else { return };
        let mut rest = *entry;
        entry.end = at;
        rest.seq = at;
        self.queue.insert(n + 1, rest);
    }

    /// Marks `[start, end)` as held by the peer; whether that was news.
    pub(crate) fn sack(&mut self, start: SeqNum, end: SeqNum) -> bool {
        let mut n = self.queue.partition_point(|s| s.end.before_eq(start));
        let mut news = false;
        while let Some(s) = self.queue.get(n).copied() {
            if s.seq.after_eq(end) {
                break;
            }
            if s.seq.before(start) {
                self.split(n, start);
                n += 1;
                continue;
            }
            if s.end.after(end) {
                self.split(n, end);
                continue;
            }
            if !s.sacked {
                self.forget(&s);
                self.total += s.len();
                self.sacked += s.len();
                self.queue[n] = Sent { sacked: true, lost: false, rexmit: false, ..s };
                self.high = Some(self.high.map_or(s.end, |h| h.max(s.end)));
                news = true;
            }
            n += 1;
        }
        news
    }

    //= rfc6675#section-4
    //# The routine returns true when either DupThresh discontiguous SACKed sequences have arrived above
    //# 'SeqNum' or more than (DupThresh - 1) * SMSS bytes with sequence numbers greater than 'SeqNum' have
    //# been SACKed.
    /// Marks what lies so far below selectively acknowledged data that it must be lost (the byte rule).
    /// Whether anything was marked.
    pub(crate) fn mark_lost_by_sack(&mut self, mss: u32) -> bool {
        let Some(high) = self.high else { return false };
        let mut above = self.sacked;
        let mut marked = false;
        for s in &mut self.queue {
            if s.seq.after_eq(high) || above <= 2 * mss {
                break;
            }
            let len = s.end.since(s.seq);
            if s.sacked {
                above -= len;
            } else if !s.lost {
                s.lost = true;
                self.lost += len;
                marked = true;
            }
        }
        marked
    }

    /// Whether the first run is taken for lost already, sent again or not.
    pub(crate) fn front_is_lost(&self) -> bool {
        self.queue.front().is_some_and(|s| s.lost)
    }

    /// Marks the first `mss` bytes as lost (three duplicate acknowledgments, or a partial one, without
    /// SACK).
    pub(crate) fn mark_front_lost(&mut self, mss: u32) {
        let Some(front) = self.queue.front().copied() else { return };
        if front.sacked || (front.lost && !front.rexmit) {
            return;
        }
        if front.len() > mss {
            self.split(0, front.seq + mss);
        }
        if let Some(s) = self.queue.front_mut() {
            let len = s.end.since(s.seq);
            if s.rexmit {
                s.rexmit = false;
                self.rexmit -= len;
            }
            if !s.lost {
                s.lost = true;
                self.lost += len;
            }
        }
    }

    /// Marks everything as lost after a retransmission timeout. What was selectively acknowledged stays so
    /// unless the peer seems to have taken it back (RFC 2018, 8): then `front_sacked` says so.
    pub(crate) fn mark_all_lost(&mut self) {
        let reneged = self.queue.front().is_some_and(|s| s.sacked);
        (self.lost, self.rexmit, self.sacked) = (0, 0, 0);
        for s in &mut self.queue {
            s.sacked &= !reneged;
            s.lost = !s.sacked;
            s.rexmit = false;
            let len = s.end.since(s.seq);
            *(if s.sacked { &mut self.sacked } else { &mut self.lost }) += len;
        }
        if reneged {
            self.high = None;
        }
    }

    /// The first lost run that has not been sent again.
    pub(crate) fn next_lost(&self) -> Option<(SeqNum, SeqNum)> {
        if !self.has_lost() {
            return None;
        }
        self.queue.iter().find(|s| s.lost && !s.rexmit).map(|s| (s.seq, s.end))
    }

    /// Records that `[seq, end)`, the front of a lost run, was sent again.
    pub(crate) fn sent_again(&mut self, seq: SeqNum, end: SeqNum, now: Instant) {
        let n = self.queue.partition_point(|s| s.end.before_eq(seq));
        if self.queue.get(n).is_some_and(|s| s.end.after(end)) {
            self.split(n, end);
        }
        if let Some(s) = self.queue.get_mut(n) {
            self.rexmit += if s.rexmit { 0 } else { s.end.since(s.seq) };
            (s.rexmit, s.again, s.sent_at) = (true, true, now);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> RtxQueue {
        let mut q = RtxQueue::default();
        q.push(SeqNum(0), SeqNum(10_000), Instant::ZERO);
        q.push(SeqNum(10_000), SeqNum(20_000), Instant::from_millis(1));
        q
    }

    #[test]
    fn selective_acknowledgments_split_packets_and_mark_holes_as_lost() {
        let mut q = queue();
        assert!(q.sack(SeqNum(1000), SeqNum(3000)));
        assert!(!q.mark_lost_by_sack(1000), "two segments above are not enough");
        assert!(q.sack(SeqNum(3000), SeqNum(5000)));
        assert!(!q.sack(SeqNum(1000), SeqNum(5000)), "no news");
        assert!(q.mark_lost_by_sack(1000));
        assert_eq!((q.lost(), q.sacked(), q.in_flight()), (1000, 4000, 15_000));
        assert_eq!(q.next_lost(), Some((SeqNum(0), SeqNum(1000))));
        q.sent_again(SeqNum(0), SeqNum(1000), Instant::from_millis(2));
        assert_eq!((q.in_flight(), q.next_lost()), (16_000, None));
        q.ack(SeqNum(5000));
        assert_eq!((q.in_flight(), q.sacked(), q.lost()), (15_000, 0, 0));
    }

    #[test]
    fn a_partial_acknowledgment_cuts_a_packet() {
        let mut q = queue();
        assert!(q.ack(SeqNum(4000)).sample.is_some());
        assert_eq!(q.in_flight(), 16_000);
        q.mark_front_lost(1000);
        assert_eq!(q.next_lost(), Some((SeqNum(4000), SeqNum(5000))));
        q.sent_again(SeqNum(4000), SeqNum(5000), Instant::from_millis(2));
        assert!(q.ack(SeqNum(5000)).sample.is_none(), "a retransmission gives no sample");
    }

    #[test]
    fn a_timeout_forgets_selective_acknowledgments_that_were_taken_back() {
        let mut q = queue();
        q.sack(SeqNum(5000), SeqNum(20_000));
        q.mark_all_lost();
        assert_eq!((q.lost(), q.sacked()), (5000, 15_000));
        q.ack(SeqNum(5000));
        q.mark_all_lost();
        assert_eq!((q.lost(), q.sacked()), (15_000, 0), "the front was sacked but not acknowledged");
    }
}
