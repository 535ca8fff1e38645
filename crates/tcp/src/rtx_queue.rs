//! What is in flight, and what is known of it: the scoreboard (RFC 6675, 3; RFC 8985, 5).

use std::collections::VecDeque;

use time::Instant;
use wire::SeqNum;

use crate::rate::SendRate;

/// A run of sequence numbers that was sent in one packet (or is a part of one).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) seq: SeqNum,
    pub(crate) end: SeqNum,
    pub(crate) sent_at: Instant,
    /// What had been delivered when it was sent.
    pub(crate) rate: SendRate,
    /// Sent more than once: says nothing about the round-trip time (Karn).
    pub(crate) again: bool,
    /// The peer has it.
    sacked: bool,
    /// Taken for lost.
    lost: bool,
    /// Lost and sent again since.
    rexmit: bool,
    /// It ended with a push.
    pushed: bool,
}

impl Sent {
    fn len(&self) -> u32 {
        self.end.since(self.seq)
    }

    fn packets(&self, mss: u32) -> u32 {
        self.len().div_ceil(mss)
    }

    /// Whether it was sent after the packet that ended at `end` (RFC 8985, 6.2 step 2).
    fn sent_after(&self, at: Instant, end: SeqNum) -> bool {
        self.sent_at > at || (self.sent_at == at && self.end.after(end))
    }
}

/// What one acknowledgment told of, cumulative and selective together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivery {
    /// Bytes that were not known to have arrived.
    pub(crate) bytes: u32,
    /// The same in packets.
    pub(crate) packets: u32,
    /// When the oldest packet of them that was sent only once was sent: cumulative, selective.
    pub(crate) sample: Option<Instant>,
    pub(crate) sack_sample: Option<Instant>,
    /// The packet sent last among them.
    pub(crate) newest: Option<Sent>,
    /// Something was selectively acknowledged.
    pub(crate) sacked: bool,
    /// Something that was never sent again and lies below `high_seq` arrived (F-RTO).
    pub(crate) original: bool,
    /// Something that had been sent again is acknowledged.
    pub(crate) again: bool,
    /// Lowest of what arrived, unsent again, below something known to have arrived before: reordering.
    pub(crate) late: Option<SeqNum>,
}

/// Where an acknowledgment is looked at from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) mss: u32,
    /// End of the last recovery's data.
    pub(crate) high_seq: SeqNum,
    /// Packets again with a shorter round trip than this are the first ones' acknowledgments.
    pub(crate) earliest: Instant,
}

impl Delivery {
    fn add(&mut self, s: &Sent, view: &View, high: Option<SeqNum>) {
        self.bytes += s.len();
        self.packets += s.packets(view.mss);
        if s.again {
            self.again = true;
        } else {
            self.original |= s.end.before_eq(view.high_seq);
            if high.is_some_and(|h| s.seq.before(h)) {
                self.late = Some(self.late.map_or(s.seq, |l| l.min(s.seq)));
            }
        }
        let ambiguous = s.again && s.sent_at > view.earliest;
        if !ambiguous && self.newest.is_none_or(|n| s.sent_after(n.sent_at, n.end)) {
            self.newest = Some(*s);
        }
    }
}

/// Packets by their fate, for `TCP_INFO`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packets {
    pub(crate) out: u32,
    pub(crate) sacked: u32,
    pub(crate) lost: u32,
    pub(crate) retrans: u32,
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
    pub(crate) fn push(&mut self, seq: SeqNum, end: SeqNum, now: Instant, rate: SendRate) {
        self.total += end.since(seq);
        let (again, sacked, lost, rexmit) = (false, false, false, false);
        self.queue.push_back(Sent {
            seq,
            end,
            sent_at: now,
            rate,
            again,
            sacked,
            lost,
            rexmit,
            pushed: false,
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes believed to be in the network (RFC 6675, 4: pipe).
    pub(crate) fn in_flight(&self) -> u32 {
        self.total.saturating_sub(self.sacked + self.lost) + self.rexmit
    }

    /// Bytes not acknowledged.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Bytes the peer holds out of order.
    pub(crate) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Bytes taken for lost.
    pub(crate) fn lost(&self) -> u32 {
        self.lost
    }

    /// Bytes sent again and neither acknowledged nor lost since.
    pub(crate) fn rexmit(&self) -> u32 {
        self.rexmit
    }

    /// Newest sequence number that was selectively acknowledged.
    pub(crate) fn high(&self) -> Option<SeqNum> {
        self.high
    }

    /// Whether something lost waits to be sent again.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost > self.rexmit
    }

    /// When the first packet was last sent.
    pub(crate) fn front_sent_at(&self) -> Option<Instant> {
        self.queue.front().map(|s| s.sent_at)
    }

    /// The last run.
    pub(crate) fn last(&self) -> Option<(SeqNum, SeqNum)> {
        self.queue.back().map(|s| (s.seq, s.end))
    }

    /// Whether anything in flight was sent more than once.
    pub(crate) fn any_again(&self) -> bool {
        self.queue.front().is_some_and(|s| s.again) || self.rexmit > 0
    }

    /// Packets by their fate.
    pub(crate) fn packets(&self, mss: u32) -> Packets {
        let mut p = Packets::default();
        for s in &self.queue {
            let n = s.packets(mss);
            p.out += n;
            p.sacked += if s.sacked { n } else { 0 };
            p.lost += if s.lost { n } else { 0 };
            p.retrans += if s.rexmit { n } else { 0 };
        }
        p
    }

    /// Whether at least `n` packets were selectively acknowledged.
    pub(crate) fn sacked_at_least(&self, n: u32, mss: u32) -> bool {
        let mut seen = 0;
        self.sacked > 0
            && self.queue.iter().filter(|s| s.sacked).any(|s| {
                seen += s.packets(mss);
                seen >= n
            })
    }

    /// The data recorded last went out with a push at its end.
    pub(crate) fn pushed(&mut self) {
        if let Some(last) = self.queue.back_mut() {
            last.pushed = true;
        }
    }

    /// Whether a packet with a push ended at `end`.
    pub(crate) fn was_pushed_at(&self, end: SeqNum) -> bool {
        let n = self.queue.partition_point(|s| s.end.before(end));
        self.queue.get(n).is_some_and(|s| s.end == end && s.pushed)
    }

    /// Everything before `upto` is acknowledged. `high` is the newest that was selectively acknowledged before:
    /// what the same acknowledgment selects is no sign of reordering.
    pub(crate) fn ack(&mut self, upto: SeqNum, view: &View, high: Option<SeqNum>, d: &mut Delivery) {
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
            if !front.sacked {
                d.add(&front, view, high);
                if !front.again {
                    d.sample.get_or_insert(front.sent_at);
                }
            }
        }
        if self.high.is_some_and(|h| h.before_eq(upto)) {
            self.high = None;
        }
        if self.queue.is_empty() && self.queue.capacity() > 64 {
            self.queue = VecDeque::new();
        }
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
        (entry.end, entry.pushed) = (at, false);
        rest.seq = at;
        self.queue.insert(n + 1, rest);
    }

    /// Marks `[start, end)` as held by the peer. `high` is the newest that was before this acknowledgment.
    pub(crate) fn sack(
        &mut self,
        start: SeqNum,
        end: SeqNum,
        view: &View,
        high: Option<SeqNum>,
        d: &mut Delivery,
    ) {
        let mut n = self.queue.partition_point(|s| s.end.before_eq(start));
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
                d.sacked = true;
                d.add(&s, view, high);
                if !s.again {
                    d.sack_sample.get_or_insert(s.sent_at);
                }
            }
            n += 1;
        }
    }

    /// Marks what was sent so long before the packet `(at, end)`, which has arrived, that it must be lost
    /// (RFC 8985, 6.2 step 5): `patience` ago or longer. Returns how long the others still have.
    pub(crate) fn mark_lost_before(
        &mut self,
        (at, end): (Instant, SeqNum),
        now: Instant,
        patience: time::Duration,
    ) -> Option<time::Duration> {
        let mut wait = None;
        for s in &mut self.queue {
            let waits_already = s.lost && !s.rexmit;
            if s.sacked || waits_already || s.sent_after(at, end) || (s.sent_at, s.end) == (at, end) {
                continue;
            }
            let age = now - s.sent_at;
            if age >= patience {
                let len = s.len();
                self.lost += if s.lost { 0 } else { len };
                self.rexmit -= if s.rexmit { len } else { 0 };
                (s.lost, s.rexmit) = (true, false);
            } else {
                wait = wait.max(Some(patience - age));
            }
        }
        wait
    }

    /// Whether the first run is taken for lost already, sent again or not.
    pub(crate) fn front_is_lost(&self) -> bool {
        self.queue.front().is_some_and(|s| s.lost)
    }

    /// Whether the peer once said that it has the first run.
    pub(crate) fn front_is_sacked(&self) -> bool {
        self.queue.front().is_some_and(|s| s.sacked)
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

    /// Marks everything that was not sent within `recent` as lost after a retransmission timeout; the first
    /// in any case. What was selectively acknowledged stays so unless the peer seems to have taken it back
    /// (RFC 2018, 8): then `front_sacked` says so, and everything is lost.
    pub(crate) fn mark_all_lost(&mut self, now: Instant, recent: time::Duration) {
        let reneged = self.front_is_sacked();
        (self.lost, self.rexmit, self.sacked) = (0, 0, 0);
        let mut first = true;
        for s in &mut self.queue {
            s.sacked &= !reneged;
            if !s.sacked && (first || reneged || now - s.sent_at >= recent) {
                (s.lost, s.rexmit) = (true, false);
            }
            first = false;
            let len = s.end.since(s.seq);
            self.sacked += if s.sacked { len } else { 0 };
            self.lost += if s.lost { len } else { 0 };
            self.rexmit += if s.rexmit { len } else { 0 };
        }
        if reneged {
            self.high = None;
        }
    }

    /// Nothing was lost after all.
    pub(crate) fn unmark_lost(&mut self) {
        for s in &mut self.queue {
            (s.lost, s.rexmit) = (false, false);
        }
        (self.lost, self.rexmit) = (0, 0);
    }

    /// The first lost run that has not been sent again.
    pub(crate) fn next_lost(&self) -> Option<(SeqNum, SeqNum)> {
        if !self.has_lost() {
            return None;
        }
        self.queue.iter().find(|s| s.lost && !s.rexmit).map(|s| (s.seq, s.end))
    }

    /// Records that `[seq, end)`, a part of a run, was sent again.
    pub(crate) fn sent_again(&mut self, seq: SeqNum, end: SeqNum, now: Instant, rate: SendRate) {
        let mut n = self.queue.partition_point(|s| s.end.before_eq(seq));
        if self.queue.get(n).is_some_and(|s| s.seq.before(seq)) {
            self.split(n, seq);
            n += 1;
        }
        if self.queue.get(n).is_some_and(|s| s.end.after(end)) {
            self.split(n, end);
        }
        if let Some(s) = self.queue.get_mut(n) {
            if s.lost && !s.rexmit {
                self.rexmit += s.end.since(s.seq);
                s.rexmit = true;
            }
            (s.again, s.sent_at, s.rate) = (true, now, rate);
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
    use time::Duration;

    const VIEW: View = View { mss: 1000, high_seq: SeqNum(0), earliest: Instant::ZERO };

    fn queue() -> RtxQueue {
        let mut q = RtxQueue::default();
        q.push(SeqNum(0), SeqNum(10_000), Instant::ZERO, SendRate::default());
        q.push(SeqNum(10_000), SeqNum(20_000), Instant::from_millis(1), SendRate::default());
        q
    }

    #[test]
    fn a_push_stays_with_the_last_part() {
        let mut q = queue();
        q.pushed();
        q.sent_again(SeqNum(10_000), SeqNum(11_000), Instant::from_millis(2), SendRate::default());
        assert!(q.was_pushed_at(SeqNum(20_000)));
        for end in [10_000, 11_000, 15_000, 21_000] {
            assert!(!q.was_pushed_at(SeqNum(end)), "{end}");
        }
    }

    fn sack(q: &mut RtxQueue, start: u32, end: u32) -> Delivery {
        let mut d = Delivery::default();
        q.sack(SeqNum(start), SeqNum(end), &VIEW, q.high(), &mut d);
        d
    }

    fn ack(q: &mut RtxQueue, upto: u32) -> Delivery {
        let mut d = Delivery::default();
        q.ack(SeqNum(upto), &VIEW, q.high(), &mut d);
        d
    }

    #[test]
    fn selective_acknowledgments_split_packets_and_what_was_sent_before_is_lost() {
        let mut q = queue();
        let d = sack(&mut q, 1000, 5000);
        assert_eq!((d.bytes, d.packets, d.late), (4000, 4, None));
        assert!(!sack(&mut q, 1000, 5000).sacked, "no news");
        let newest = d.newest.unwrap();
        let now = Instant::from_millis(50);
        let wait = q.mark_lost_before((newest.sent_at, newest.end), now, Duration::from_millis(60));
        assert_eq!((wait, q.lost()), (Some(Duration::from_millis(10)), 0));
        let wait = q.mark_lost_before((newest.sent_at, newest.end), now, Duration::from_millis(50));
        assert_eq!(wait, None);
        assert_eq!((q.lost(), q.sacked(), q.in_flight()), (1000, 4000, 15_000), "what follows is not");
        assert_eq!(q.next_lost(), Some((SeqNum(0), SeqNum(1000))));
        q.sent_again(SeqNum(0), SeqNum(1000), Instant::from_millis(2), SendRate::default());
        assert_eq!((q.in_flight(), q.next_lost()), (16_000, None));
        ack(&mut q, 5000);
        assert_eq!((q.in_flight(), q.sacked(), q.lost()), (15_000, 0, 0));
    }

    #[test]
    fn a_partial_acknowledgment_cuts_a_packet() {
        let mut q = queue();
        assert!(ack(&mut q, 4000).sample.is_some());
        assert_eq!(q.in_flight(), 16_000);
        q.mark_front_lost(1000);
        assert_eq!(q.next_lost(), Some((SeqNum(4000), SeqNum(5000))));
        q.sent_again(SeqNum(4000), SeqNum(5000), Instant::from_millis(2), SendRate::default());
        assert!(ack(&mut q, 5000).sample.is_none(), "a retransmission gives no sample");
    }

    #[test]
    fn a_timeout_forgets_selective_acknowledgments_that_were_taken_back() {
        let (now, none) = (Instant::from_secs(1), Duration::ZERO);
        let mut q = queue();
        sack(&mut q, 5000, 20_000);
        q.mark_all_lost(now, none);
        assert_eq!((q.lost(), q.sacked()), (5000, 15_000));
        ack(&mut q, 5000);
        q.mark_all_lost(now, none);
        assert_eq!((q.lost(), q.sacked()), (15_000, 0), "the front was sacked but not acknowledged");
    }

    #[test]
    fn what_arrives_below_what_has_arrived_was_late() {
        let mut q = queue();
        sack(&mut q, 5000, 6000);
        assert_eq!(sack(&mut q, 2000, 3000).late, Some(SeqNum(2000)));
        q.sent_again(SeqNum(0), SeqNum(1000), Instant::from_millis(2), SendRate::default());
        assert_eq!(ack(&mut q, 1000).late, None, "or sent again");
        assert_eq!(ack(&mut q, 2000).late, Some(SeqNum(1000)));
    }

    #[test]
    fn a_probe_of_the_tail_is_not_lost_data() {
        let mut q = queue();
        q.sent_again(SeqNum(19_000), SeqNum(20_000), Instant::from_millis(2), SendRate::default());
        assert_eq!((q.in_flight(), q.rexmit(), q.lost()), (20_000, 0, 0));
    }
}
