//! The next segment: what may leave, and how large.

use arrayvec::ArrayVec;
use skb::{Gso, GsoKind, Reason, SkBuff};
use time::{Duration, Instant};
use wire::SeqNum;
use wire::tcp::{TcpFlags, TcpHeader, TcpOptions, Timestamps};

use crate::rate::Busy;
use crate::recovery::{CaState, TIMER_MIN};
use crate::state::State;
use crate::tcb::Tcb;
use crate::timers::Timer;

/// Paths shorter than this are in a machine or a rack: what is gathered waits no longer than that.
const GATHER_RTT: Duration = Duration::from_millis(1);

impl Tcb {
    /// The next segment to leave: the TCP header in the head (checksum 0), counted slices of the send queue
    /// as fragments, `gso` set when it stands for several. Call it until `None`.
    pub fn next_segment(&mut self, now: Instant) -> Option<SkBuff> {
        self.ect = false;
        if let Some(seq) = self.owed.reset.take() {
            // A handshake that went wrong is answered with SEG.ACK alone (RFC 9293, 3.10.7.3 and 3.10.7.4).
            let known = !matches!(self.state, State::SynSent | State::SynReceived);
            let flags = if known { TcpFlags::RST | TcpFlags::ACK } else { TcpFlags::RST };
            return Some(self.segment(now, seq, flags, SkBuff::new()));
        }
        match self.state {
            State::Closed | State::Listen => None,
            State::SynReceived if self.is_fast_open() => {
                self.handshake_segment(now).or_else(|| self.new_data(now)).or_else(|| self.pure_ack(now))
            }
            State::SynSent | State::SynReceived => self.handshake_segment(now),
            _ => self
                .tail_probe(now)
                .or_else(|| self.new_data_first(now))
                .or_else(|| self.retransmission(now))
                .or_else(|| self.new_data(now))
                .or_else(|| self.probe(now))
                .or_else(|| self.pure_ack(now)),
        }
    }

    /// After a timeout, new data tells whether what is taken for lost is (RFC 5682): it goes before that.
    fn new_data_first(&mut self, now: Instant) -> Option<SkBuff> {
        if !self.recovery.new_first {
            return None;
        }
        let segment = self.new_data(now);
        if segment.is_none() && self.snd.nxt == self.recovery.high_seq {
            // There is none after all.
            self.recovery.new_first = false;
        }
        segment
    }

    /// A probe of the tail: new data if there is some, else the last segment again (RFC 8985, 7.3).
    fn tail_probe(&mut self, now: Instant) -> Option<SkBuff> {
        if !std::mem::take(&mut self.owed.tail_probe) {
            return None;
        }
        let mss = u32::from(self.mss);
        let window = (self.snd.una + self.snd.wnd).since(self.snd.nxt);
        let unsent = self.out.record_end(self.snd.nxt).since(self.snd.nxt).min(mss);
        if unsent > 0 && window >= unsent {
            let segment = self.send_new(now, unsent);
            self.probe_sent(now, false);
            return Some(segment);
        }
        let (start, end) = self.rtx.last()?;
        let whole = end.since(start).saturating_sub(1) / mss * mss;
        let segment = self.send_again(now, start + whole, end)?;
        self.probe_sent(now, true);
        Some(segment)
    }

    /// Whether the segment that [`next_segment`](Self::next_segment) gave last may be marked by the network:
    /// ECT(0) in its IP header (RFC 3168, 5).
    pub fn is_ect(&self) -> bool {
        self.ect
    }

    /// A cheap look whether [`next_segment`](Self::next_segment) could have something.
    pub fn wants_to_send(&self) -> bool {
        self.owed.reset.is_some()
            || self.owed.ack
            || self.owed.probe
            || self.owed.tail_probe
            || self.handshake.as_ref().is_some_and(|h| h.send)
            || self.rtx.has_lost()
            || (!self.blocked && self.out.end().after(self.snd.nxt) && !self.still_gathers())
            || (self.fin_queued && !self.fin_sent() && self.state.is_synchronized())
    }

    /// The SYN, or the SYN-ACK.
    fn handshake_segment(&mut self, now: Instant) -> Option<SkBuff> {
        let answer = self.state != State::SynSent;
        let handshake = self.handshake.as_mut().filter(|h| h.send)?;
        handshake.send = false;
        handshake.attempts = handshake.attempts.saturating_add(1);
        handshake.sent_at = now;
        let again = handshake.attempts > 1;
        // What made the first SYN fail may be the option or the data: the next has neither.
        let fast_open = handshake.cookie.clone().filter(|_| answer || !again);
        let data = handshake.data_allowed && !answer && !again;
        let mut flags = if answer { TcpFlags::SYN | TcpFlags::ACK } else { TcpFlags::SYN };
        // What made the first SYN fail may be this, too (RFC 3168, 6.1.1.1).
        self.ecn &= answer || !again;
        if self.ecn {
            flags |= if answer { TcpFlags::ECE } else { TcpFlags::ECE | TcpFlags::CWR };
        }
        self.timers.set(Timer::Retransmit, now + self.rto.timeout());
        let window = self.rcvbuf.min(0xffff) as u16;
        self.rcv.edge = self.rcv.edge.max(self.rcv.nxt + u32::from(window));
        self.owed.ack = false;
        let scaled = self.cfg.window_scaling && (!answer || self.snd.shift > 0 || self.rcv.shift > 0);
        let options = TcpOptions {
            mss: Some(self.advertised_mss()),
            window_scale: scaled.then_some(self.rcv.shift),
            sack_permitted: self.sack,
            timestamps: self.timestamps(now),
            fast_open,
            ..TcpOptions::default()
        };
        let ack = if answer { self.rcv.nxt } else { SeqNum(0) };
        let payload = if data { self.syn_payload() } else { SkBuff::new() };
        // A fast opened connection may have sent data before its SYN-ACK is sent again.
        let first = self.snd.iss + 1;
        self.snd.nxt = if answer { self.snd.nxt.max(first) } else { first + payload.len() as u32 };
        Some(self.emit(self.snd.iss, ack, flags, window, options, payload))
    }

    /// Data that goes with the SYN. It is copied: the SYN may have to wait for the neighbour, and whether the
    /// peer takes the data is not known.
    fn syn_payload(&mut self) -> SkBuff {
        let mut payload = self.out.slice(self.snd.iss + 1, self.syn_capacity());
        payload.orphan(Reason::SynData);
        if let Some(h) = &mut self.handshake {
            h.syn_data = payload.len() as u32;
        }
        self.counts.bytes_sent += payload.len() as u64;
        self.counts.data_segs_out += u32::from(!payload.is_empty());
        payload
    }

    /// Something lost, before anything new (RFC 6675, 4, NextSeg rule 1).
    fn retransmission(&mut self, now: Instant) -> Option<SkBuff> {
        if self.recovery.new_first {
            return None;
        }
        let (seq, end) = self.rtx.next_lost()?;
        let mss = u32::from(self.mss);
        let in_flight = self.in_flight_estimate();
        let room = self.cc.cwnd().saturating_sub(in_flight);
        // One segment always goes: the timer said so.
        let room = if in_flight == 0 { room.max(mss) } else { room };
        let most = (room / mss * mss).min(self.largest());
        let len = end.since(seq).min(most);
        if len == 0 {
            return None;
        }
        let first = seq == self.snd.una;
        let segment = self.send_again(now, seq, seq + len)?;
        if first || !self.timers.is_set(Timer::Retransmit) {
            self.clear_xmit_timers();
            self.arm_retransmit(now);
        }
        Some(segment)
    }

    /// Sends `[seq, end)` again, or as much of it as a packet takes.
    fn send_again(&mut self, now: Instant, seq: SeqNum, end: SeqNum) -> Option<SkBuff> {
        let data = self.out.end().since(seq).min(end.since(seq));
        let payload = self.out.slice(seq, data as usize);
        let sent = payload.len() as u32;
        let with_fin = sent == data && self.fin_queued && end.after(self.fin_seq());
        let end = seq + sent + u32::from(with_fin);
        if end == seq {
            return None;
        }
        let rate = self.rate.on_send(now, false);
        // As the first time: cutting a packet leaves the push to its last part.
        let pushed = self.rtx.was_pushed_at(end);
        self.rtx.sent_again(seq, end, now, rate);
        let packets = end.since(seq).div_ceil(u32::from(self.mss));
        self.counts.total_retrans = self.counts.total_retrans.wrapping_add(packets);
        self.counts.bytes_retrans += u64::from(sent);
        self.recovery.prr_out = self.recovery.prr_out.saturating_add(end.since(seq));
        self.note_retransmission(now, packets);
        let mut flags = TcpFlags::ACK;
        flags.set(TcpFlags::PSH, pushed);
        flags.set(TcpFlags::FIN, with_fin);
        Some(self.data_segment(now, seq, flags, payload, self.mss))
    }

    /// New data, as much as windows, Nagle and the peer's buffer allow; a FIN behind the last byte.
    fn new_data(&mut self, now: Instant) -> Option<SkBuff> {
        let seq = self.snd.nxt;
        if self.fin_sent() || self.blocked {
            return None;
        }
        let end_of_data = self.out.end();
        let record_end = self.out.record_end(seq);
        let unsent = record_end.since(seq);
        let fin_only =
            unsent == 0 && record_end == end_of_data && self.fin_queued && self.state.is_synchronized();
        if unsent == 0 && !fin_only {
            if !self.rtx.is_empty() && self.in_flight_estimate() < self.cc.cwnd() {
                if self.send_room() == 0 {
                    self.counts.spend(now, Busy::SndbufLimited);
                }
                self.rate.on_app_limited(self.rtx.in_flight().div_ceil(u32::from(self.mss)));
            }
            return None;
        }
        let len = if fin_only { 0 } else { self.allowed(now, unsent, record_end == end_of_data)? };
        let idle = self.rtx.is_empty();
        let segment = self.send_new(now, len);
        if idle || !self.timers.is_set(Timer::Retransmit) && !self.timers.is_set(Timer::Reorder) {
            self.set_xmit_timer(now);
        }
        Some(segment)
    }

    /// Sends up to `len` new bytes, and the FIN if it follows.
    fn send_new(&mut self, now: Instant, len: u32) -> SkBuff {
        let mss = self.current_mss() as u16;
        let seq = self.snd.nxt;
        let payload = self.out.slice(seq, len as usize);
        let sent = payload.len() as u32;
        let at = seq + sent;
        let with_fin = at == self.out.end() && self.fin_queued;
        let end = at + u32::from(with_fin);
        let mut flags = TcpFlags::ACK;
        // Pushed: the end of a send call or of a record, and a packet that ran out of fragments (Z7), so that
        // the receiver's aggregation goes on with the next one.
        let ends = at == self.out.record_end(seq) || sent < len;
        let pushed = ends || self.push_at.after(seq) && self.push_at.before_eq(at);
        flags.set(TcpFlags::PSH, pushed && sent > 0);
        flags.set(TcpFlags::FIN, with_fin);
        if !sent.is_multiple_of(u32::from(mss)) {
            self.small_at = end;
        }
        if self.rtx.is_empty() {
            self.progress_at = now;
        }
        let rate = self.rate.on_send(now, self.rtx.is_empty());
        self.rtx.push(seq, end, now, rate);
        if flags.contains(TcpFlags::PSH) {
            self.rtx.pushed();
        }
        self.snd.nxt = end;
        self.owed.force = false;
        self.timers.clear(Timer::Persist);
        self.recovery.prr_out = self.recovery.prr_out.saturating_add(end.since(seq));
        let full = self.in_flight_estimate() + u32::from(self.mss) > self.cc.cwnd();
        self.validate_cwnd(full);
        self.counts.spend(now, Busy::Sending);
        // Only new data may be marked (RFC 3168, 6.1.5), and says that the window was reduced.
        self.ect = self.ecn && sent > 0;
        if self.ect && std::mem::take(&mut self.ecn_cwr) {
            flags |= TcpFlags::CWR;
        }
        self.data_segment(now, seq, flags, payload, mss)
    }

    /// How much new data may leave now; `None` for nothing.
    /// `tail` says whether `unsent` is all there is, and not a record with others behind it.
    fn allowed(&mut self, now: Instant, unsent: u32, tail: bool) -> Option<u32> {
        let mss = self.current_mss();
        self.restart_after_idle(now);
        let in_flight = self.in_flight_estimate();
        let cwnd = self.cc.cwnd().saturating_sub(in_flight);
        let window = (self.snd.una + self.snd.wnd).since(self.snd.nxt);
        if self.gathers(unsent, in_flight) {
            return None;
        }
        let most = cwnd.min(window).min(self.cfg.gso_max as u32);
        // An urgent pointer is counted from its own segment's beginning.
        let most = if self.snd_up.is_some() { most.min(mss) } else { most };
        let len = unsent.min(most);
        let tail_may_leave = !tail || self.tail_may_leave();
        if len >= mss {
            let whole = len / mss * mss;
            // The tail goes along if it may leave at all; then one packet does for both.
            let tail = len - whole;
            let len = if tail > 0 && len == unsent && tail_may_leave { len } else { whole };
            // A window that opens in small steps is left to open: large packets cost less (TSO deferral).
            let small =
                self.snd_up.is_none() && most < unsent && len < self.largest().min(self.cc.cwnd() / 4);
            self.blocked = small && !self.rtx.is_empty() && self.recovery.ca == CaState::Open;
            return (!self.blocked).then_some(len);
        }
        let all = len == unsent && len > 0;
        //= rfc9293#section-3.8.6.2.1
        //# Send data: ... (3) or if at least a fraction Fs of the maximum window can be sent
        let half_window = len > 0 && len >= self.snd.max_wnd / 2 && !all;
        if (all && tail_may_leave) || half_window || (self.owed.force && len > 0) {
            return Some(len);
        }
        let corked = all && (self.cfg.cork || self.more);
        if self.rtx.is_empty() && !self.timers.is_set(Timer::Persist) && (window < unsent.min(mss) || corked)
        {
            // Nothing in flight will bring an acknowledgment that opens the window: probe. And a cork holds
            // for so long only.
            self.timers.set(Timer::Persist, now + self.rto.timeout());
        }
        if window < unsent.min(mss) && window < cwnd && !self.rtx.is_empty() {
            self.counts.spend(now, Busy::RwndLimited);
        }
        self.blocked = most < unsent && !self.rtx.is_empty();
        None
    }

    /// Payload of a full segment, room for SACK blocks subtracted while there are any.
    fn current_mss(&self) -> u32 {
        u32::from(self.mss).saturating_sub(self.sack_len()).max(u32::from(self.mss) / 2)
    }

    /// Bytes of the SACK option that is due.
    fn sack_len(&self) -> u32 {
        if !self.sack || (self.dsack.is_none() && !self.input.has_holes()) {
            return 0;
        }
        4 + 8 * self.sack_blocks().len() as u32
    }

    /// What is held out of order, preceded by what came twice.
    fn sack_blocks(&self) -> ArrayVec<(SeqNum, SeqNum), 4> {
        let most = if self.ts.is_some() { 3 } else { 4 };
        let mut blocks = self.input.sack_blocks(most - usize::from(self.dsack.is_some()));
        if let Some(twice) = self.dsack {
            blocks.insert(0, twice);
        }
        blocks
    }

    /// Payload of the largest packet: whole segments.
    pub(crate) fn largest(&self) -> u32 {
        let mss = u32::from(self.mss);
        self.cfg.gso_max as u32 / mss * mss
    }

    /// Whether a stream of small sends is gathered into a large packet instead of leaving call by call: while
    /// a whole large packet is in flight over a short path, so that an acknowledgment is sure to come soon,
    /// one packet that is not full leaves per acknowledgment. Linux does this (`tcp_autocorking`) while the
    /// device still holds earlier packets; here the path's length stands for that.
    fn gathers(&mut self, unsent: u32, in_flight: u32) -> bool {
        let short_path = self.rto.srtt().is_some_and(|t| t < GATHER_RTT);
        let clocked = in_flight >= self.largest() && self.recovery.ca == CaState::Open;
        let urgent = self.cfg.nodelay || self.fin_queued || self.owed.force || self.snd_up.is_some();
        if unsent >= self.largest() || !short_path || !clocked || urgent {
            return false;
        }
        self.gathering = !std::mem::take(&mut self.partial_allowed);
        self.gathering
    }

    /// Whether what was being gathered is still too little.
    fn still_gathers(&self) -> bool {
        self.gathering && !self.fin_queued && self.out.end().since(self.snd.nxt) < self.largest()
    }

    /// Something happened that may let data leave.
    pub(crate) fn look_again(&mut self) {
        (self.blocked, self.gathering, self.partial_allowed) = (false, false, true);
    }

    /// Nagle, as Minshall amended it: a last small segment waits only for an earlier small one.
    fn tail_may_leave(&self) -> bool {
        if self.fin_queued || self.owed.force || self.snd_up.is_some() {
            return true;
        }
        if self.more || self.cfg.cork {
            return false;
        }
        self.cfg.nodelay || self.small_at.before_eq(self.snd.una)
    }

    /// Slow start again after a silence (RFC 5681, 4.1).
    fn restart_after_idle(&mut self, now: Instant) {
        let rto = self.rto.timeout();
        let mut idle = now - self.last_sent;
        if !self.rtx.is_empty() || idle <= rto {
            return;
        }
        // As Linux: halved for every timeout, not below the initial window.
        let ssthresh = self.cc.ssthresh().max(self.cc.cwnd() / 2 + self.cc.cwnd() / 4);
        let least = (self.cfg.initial_window * u32::from(self.mss)).min(self.cc.cwnd());
        let mut cwnd = self.cc.cwnd();
        while idle > rto && cwnd > least {
            idle -= rto;
            cwnd /= 2;
        }
        self.cc.set(cwnd.max(least), ssthresh);
        self.cc.on_idle();
        self.last_sent = now;
    }

    /// Bytes in the network; without SACK every duplicate acknowledgment tells of one segment less.
    pub(crate) fn in_flight_estimate(&self) -> u32 {
        let left = if self.sack { 0 } else { self.recovery.dup_acks.saturating_mul(u32::from(self.mss)) };
        self.rtx.in_flight().saturating_sub(left)
    }

    /// A window or keepalive probe: an old sequence number, so that the peer must answer.
    fn probe(&mut self, now: Instant) -> Option<SkBuff> {
        if !std::mem::take(&mut self.owed.probe) {
            return None;
        }
        Some(self.segment(now, self.snd.una - 1, TcpFlags::ACK, SkBuff::new()))
    }

    fn pure_ack(&mut self, now: Instant) -> Option<SkBuff> {
        if !self.owed.ack {
            return None;
        }
        let more = self.owed.duplicates.saturating_sub(1);
        let ack = self.segment(now, self.snd.nxt, TcpFlags::ACK, SkBuff::new());
        (self.owed.ack, self.owed.duplicates) = (more > 0, more);
        Some(ack)
    }

    pub(crate) fn arm_retransmit(&mut self, now: Instant) {
        let mut at = now + self.rto.timeout();
        if let Some(limit) = self.cfg.user_timeout.filter(|_| self.recovery.timeouts > 0) {
            // The last one runs out when the program's patience does (RFC 5482).
            at = at.min((self.progress_at + limit).max(now + TIMER_MIN));
        }
        self.timers.set(Timer::Retransmit, at);
    }

    /// A segment with payload: large ones are marked for segmentation, at `size`.
    fn data_segment(
        &mut self,
        now: Instant,
        seq: SeqNum,
        flags: TcpFlags,
        mut payload: SkBuff,
        size: u16,
    ) -> SkBuff {
        let len = payload.len();
        let mss = usize::from(size);
        if len > mss {
            let segs = len.div_ceil(mss) as u16;
            payload.gso = Some(Gso { kind: GsoKind::Tcp4, size, segs });
        }
        self.last_sent = now;
        let segs = len.div_ceil(mss).max(1) as u32;
        if len > 0 {
            self.counts.data_segs_out = self.counts.data_segs_out.wrapping_add(segs);
            self.counts.bytes_sent += len as u64;
        }
        // The header counts as one.
        self.counts.segs_out = self.counts.segs_out.wrapping_add(segs - 1);
        if now - self.last_data < self.cfg.delayed_ack && self.state.can_receive() && len > 0 {
            self.pingpong = true;
        }
        self.segment(now, seq, flags, payload)
    }

    /// Puts the header of an established connection in front. Every segment acknowledges.
    fn segment(&mut self, now: Instant, seq: SeqNum, flags: TcpFlags, payload: SkBuff) -> SkBuff {
        let window = self.advertise();
        let size = payload.gso.map_or(payload.len(), |g| g.size.into());
        let fits = size + self.sack_len() as usize <= self.mss.into() || payload.is_empty();
        // Blocks that find no room follow in a segment of their own.
        self.owed.ack &= !fits;
        let sack = if fits && self.sack_len() > 0 { self.sack_blocks() } else { ArrayVec::new() };
        if fits {
            self.dsack = None;
        }
        self.unacked_in = 0;
        self.rcv.acked = self.rcv.nxt;
        self.timers.clear(Timer::DelayedAck);
        let timestamps = self.timestamps(now);
        let mut flags = flags;
        flags.set(TcpFlags::ECE, self.ecn_echo && !flags.contains(TcpFlags::RST));
        let options = TcpOptions { timestamps, sack, ..TcpOptions::default() };
        let ack = self.rcv.nxt;
        self.emit(seq, ack, flags, window, options, payload)
    }

    fn emit(
        &mut self,
        seq: SeqNum,
        ack: SeqNum,
        flags: TcpFlags,
        window: u16,
        options: TcpOptions,
        mut skb: SkBuff,
    ) -> SkBuff {
        self.counts.segs_out = self.counts.segs_out.wrapping_add(1);
        let (mut flags, mut urgent) = (flags, 0);
        if let Some(pointer) = self.urgent_pointer(seq) {
            flags |= TcpFlags::URG;
            urgent = pointer;
        }
        let header = TcpHeader {
            src_port: self.ports.0,
            dst_port: self.ports.1,
            seq,
            ack,
            flags,
            window,
            urgent,
            options,
        };
        // A fresh head has room for the longest headers.
        if let Ok(room) = skb.push(header.header_len()) {
            header.emit(room);
        }
        skb
    }

    fn timestamps(&self, now: Instant) -> Option<Timestamps> {
        self.ts.map(|t| Timestamps { val: clock(now, t.offset), ecr: t.recent })
    }

    /// The window field, and with it the right edge, which never moves left (RFC 9293, 3.8.6).
    fn advertise(&mut self) -> u16 {
        let wanted = self.wanted_edge();
        let grown = wanted.since(self.rcv.edge);
        //= rfc9293#section-3.8.6.2.2
        //# The receiver's SWS avoidance algorithm determines when the right window edge may be advanced
        let worthwhile = grown >= u32::from(self.path_mss).min(self.rcvbuf as u32 / 2);
        let edge = if worthwhile { wanted } else { self.rcv.edge };
        let shift = self.rcv.shift;
        let size = edge.since(self.rcv.nxt);
        // Rounded down when it grows, up when it must not shrink.
        let field = if worthwhile { size >> shift } else { size.div_ceil(1 << shift) };
        let field = field.min(0xffff);
        self.rcv.edge = self.rcv.edge.max(self.rcv.nxt + (field << shift));
        field as u16
    }
}

/// The timestamp clock: milliseconds, as Linux's (RFC 7323, 5.4 allows 1 ms to 1 s).
pub(crate) fn clock(now: Instant, offset: u32) -> u32 {
    (now.as_millis() as u32).wrapping_add(offset)
}
