//! The next segment: what may leave, and how large.

use skb::{Gso, GsoKind, SkBuff};
use time::{Duration, Instant};
use wire::SeqNum;
use wire::tcp::{TcpFlags, TcpHeader, TcpOptions, Timestamps};

use crate::state::State;
use crate::tcb::Tcb;
use crate::timers::Timer;

/// Paths shorter than this are in a machine or a rack: what is gathered waits no longer than that.
const GATHER_RTT: Duration = Duration::from_millis(1);

impl Tcb {
    /// The next segment to leave: the TCP header in the head (checksum 0), counted slices of the send queue
    /// as fragments, `gso` set when it stands for several. Call it until `None`.
    pub fn next_segment(&mut self, now: Instant) -> Option<SkBuff> {
        if let Some(seq) = self.owed.reset.take() {
            // A handshake that went wrong is answered with SEG.ACK alone (RFC 9293, 3.10.7.3 and 3.10.7.4).
            let known = !matches!(self.state, State::SynSent | State::SynReceived);
            let flags = if known { TcpFlags::RST | TcpFlags::ACK } else { TcpFlags::RST };
            return Some(self.segment(now, seq, flags, SkBuff::new()));
        }
        match self.state {
            State::Closed | State::Listen => None,
            State::SynSent | State::SynReceived => self.handshake_segment(now),
            _ => self
                .retransmission(now)
                .or_else(|| self.new_data(now))
                .or_else(|| self.probe(now))
                .or_else(|| self.pure_ack(now)),
        }
    }

    /// A cheap look whether [`next_segment`](Self::next_segment) could have something.
    pub fn wants_to_send(&self) -> bool {
        self.owed.reset.is_some()
            || self.owed.ack
            || self.owed.probe
            || self.handshake.as_ref().is_some_and(|h| h.send)
            || self.rtx.has_lost()
            || (!self.blocked && self.out.end().after(self.snd.nxt) && !self.still_gathers())
            || (self.fin_queued && !self.fin_sent() && self.state.is_synchronized())
    }

    /// The SYN, or the SYN-ACK.
    fn handshake_segment(&mut self, now: Instant) -> Option<SkBuff> {
        let handshake = self.handshake.as_mut().filter(|h| h.send)?;
        handshake.send = false;
        handshake.attempts = handshake.attempts.saturating_add(1);
        handshake.sent_at = now;
        let (flags, answer) = match self.state {
            State::SynSent => (TcpFlags::SYN, false),
            _ => (TcpFlags::SYN | TcpFlags::ACK, true),
        };
        self.snd.nxt = self.snd.iss + 1;
        self.timers.set(Timer::Retransmit, now + self.rto.timeout());
        let window = self.rcvbuf.min(0xffff) as u16;
        self.rcv.edge = self.rcv.nxt + u32::from(window);
        self.owed.ack = false;
        let scaled = self.cfg.window_scaling && (!answer || self.snd.shift > 0 || self.rcv.shift > 0);
        let options = TcpOptions {
            mss: Some(self.advertised_mss()),
            window_scale: scaled.then_some(self.rcv.shift),
            sack_permitted: self.sack,
            timestamps: self.timestamps(now),
            ..TcpOptions::default()
        };
        let ack = if answer { self.rcv.nxt } else { SeqNum(0) };
        Some(self.emit(self.snd.iss, ack, flags, window, options, SkBuff::new()))
    }

    /// Something lost, before anything new (RFC 6675, 4, NextSeg rule 1).
    fn retransmission(&mut self, now: Instant) -> Option<SkBuff> {
        let (seq, end) = self.rtx.next_lost()?;
        let mss = u32::from(self.mss);
        let room = self.cc.cwnd().saturating_sub(self.in_flight_estimate());
        // One segment always goes: the timer said so, or recovery just began.
        let room = if self.rtx.in_flight() == 0 || seq == self.snd.una { room.max(mss) } else { room };
        let most = (room / mss * mss).min(self.cfg.gso_max as u32 / mss * mss);
        let len = end.since(seq).min(most);
        if len == 0 {
            return None;
        }
        let data = self.out.end().since(seq).min(len);
        let payload = self.out.slice(seq, data as usize);
        let sent = payload.len() as u32;
        let with_fin = sent == data && self.fin_queued && (seq + len).after(self.fin_seq());
        let end = seq + sent + u32::from(with_fin);
        if end == seq {
            return None;
        }
        self.rtx.sent_again(seq, end, now);
        self.recovery.retransmits += 1;
        self.arm_retransmit(now);
        let mut flags = TcpFlags::ACK | TcpFlags::PSH;
        flags.set(TcpFlags::FIN, with_fin);
        Some(self.data_segment(now, seq, flags, payload))
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
            return None;
        }
        let len = if fin_only { 0 } else { self.allowed(now, unsent, record_end == end_of_data)? };
        let payload = self.out.slice(seq, len as usize);
        let sent = payload.len() as u32;
        let out_of_frags = sent < len;
        let last = sent == unsent && record_end == end_of_data;
        let with_fin = last && self.fin_queued;
        let end = seq + sent + u32::from(with_fin);
        let mut flags = TcpFlags::ACK;
        // Pushed: the end of a send call, and a packet that ran out of fragments (Z7), so that the
        // receiver's aggregation goes on with the next one.
        let pushed =
            sent == unsent || out_of_frags || self.push_at.after(seq) && self.push_at.before_eq(seq + sent);
        flags.set(TcpFlags::PSH, pushed && sent > 0);
        flags.set(TcpFlags::FIN, with_fin);
        if !sent.is_multiple_of(u32::from(self.mss)) {
            self.small_at = end;
        }
        self.rtx.push(seq, end, now);
        self.snd.nxt = end;
        self.owed.force = false;
        self.timers.clear(Timer::Persist);
        if !self.timers.is_set(Timer::Retransmit) {
            self.progress_at = now;
            self.arm_retransmit(now);
        }
        Some(self.data_segment(now, seq, flags, payload))
    }

    /// How much new data may leave now; `None` for nothing.
    /// `tail` says whether `unsent` is all there is, and not a record with others behind it.
    fn allowed(&mut self, now: Instant, unsent: u32, tail: bool) -> Option<u32> {
        let mss = u32::from(self.mss);
        self.restart_after_idle(now);
        let in_flight = self.in_flight_estimate();
        let limited = if self.recovery.point.is_none() { self.recovery.dup_acks.min(2) * mss } else { 0 };
        let limited = if self.sack { 0 } else { limited };
        let cwnd = (self.cc.cwnd() + limited).saturating_sub(in_flight);
        self.recovery.cwnd_limited = cwnd < unsent;
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
            self.blocked = small && !self.rtx.is_empty() && self.recovery.point.is_none();
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
        self.blocked = most < unsent && !self.rtx.is_empty();
        None
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
        let clocked = in_flight >= self.largest() && self.recovery.point.is_none();
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
        if self.rtx.is_empty() && now - self.last_sent > self.rto.timeout() {
            self.cc.on_idle(self.cfg.initial_window * u32::from(self.mss));
        }
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
        self.timers.set(Timer::Retransmit, now + self.rto.timeout());
    }

    /// A segment with payload: large ones are marked for segmentation.
    fn data_segment(&mut self, now: Instant, seq: SeqNum, flags: TcpFlags, mut payload: SkBuff) -> SkBuff {
        let len = payload.len();
        let mss = usize::from(self.mss);
        if len > mss {
            let segs = len.div_ceil(mss) as u16;
            payload.gso = Some(Gso { kind: GsoKind::Tcp4, size: self.mss, segs });
        }
        self.last_sent = now;
        self.segment(now, seq, flags, payload)
    }

    /// Puts the header of an established connection in front. Every segment acknowledges.
    fn segment(&mut self, now: Instant, seq: SeqNum, flags: TcpFlags, payload: SkBuff) -> SkBuff {
        let window = self.advertise();
        self.owed.ack = false;
        self.unacked_in = 0;
        self.rcv.acked = self.rcv.nxt;
        self.timers.clear(Timer::DelayedAck);
        let timestamps = self.timestamps(now);
        let sack = if self.sack && self.input.has_holes() {
            // Payload sizes were computed without SACK blocks: they go only where there is no payload.
            let most = if timestamps.is_some() { 3 } else { 4 };
            if payload.is_empty() { self.input.sack_blocks(most) } else { Default::default() }
        } else {
            Default::default()
        };
        let options = TcpOptions { timestamps, sack, ..TcpOptions::default() };
        let ack = self.rcv.nxt;
        self.emit(seq, ack, flags, window, options, payload)
    }

    fn emit(
        &self,
        seq: SeqNum,
        ack: SeqNum,
        flags: TcpFlags,
        window: u16,
        options: TcpOptions,
        mut skb: SkBuff,
    ) -> SkBuff {
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
