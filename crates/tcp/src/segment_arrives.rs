//! SEGMENT ARRIVES (RFC 9293, 3.10.7): eight steps in the RFC's order, one call each.

use core::ops::ControlFlow;

use skb::SkBuff;
use time::{Duration, Instant};
use wire::SeqNum;
use wire::tcp::{TcpFlags, TcpHeader};

use crate::outcome::{Outcome, Released, TcpError};
use crate::output::clock;
use crate::rate::Busy;
use crate::recovery::Ack;
use crate::rtx_queue::{Delivery, View};
use crate::state::{Event, State};
use crate::tcb::Tcb;
use crate::timers::Timer;
use crate::urgent::UrgentByte;

/// A segment, its header understood and taken off.
#[derive(Debug)]
pub struct SegmentIn {
    /// The header.
    pub header: TcpHeader,
    /// What follows it.
    pub payload: SkBuff,
    /// Payload bytes per segment if this stands for several; 0 if it does not.
    pub gso_size: u16,
    /// The network marked it: congestion experienced (RFC 3168).
    pub ce: bool,
}

impl SegmentIn {
    /// Sequence numbers taken: payload, SYN and FIN (SEG.LEN).
    pub(crate) fn len(&self) -> u32 {
        let control = self.header.flags.contains(TcpFlags::SYN) as u32
            + self.header.flags.contains(TcpFlags::FIN) as u32;
        self.payload.len() as u32 + control
    }

    fn is(&self, flag: TcpFlags) -> bool {
        self.header.flags.contains(flag)
    }
}

/// What the steps share.
struct Arrival<'a> {
    now: Instant,
    seg: SegmentIn,
    released: &'a mut Released,
    outcome: Outcome,
}

/// `Break`: the segment needs no further step.
type Step = ControlFlow<()>;

/// TS.Recent is not trusted after this long (RFC 7323, 5.5).
const PAWS_LIFETIME: Duration = Duration::from_secs(24 * 24 * 3600);
/// How long the handshake's end waits for the first data, if it is to: Linux's longest delay.
const ACK_WAIT: Duration = Duration::from_millis(200);
/// Challenge acknowledgments per second and connection (RFC 5961, 7).
const CHALLENGES: u8 = 10;

impl Tcb {
    /// A segment of this connection has arrived. Fragments that it acknowledges go to `released`.
    pub fn segment_arrives(&mut self, now: Instant, seg: SegmentIn, released: &mut Released) -> Outcome {
        self.look_again();
        self.more = false;
        self.count_arrival(now, &seg);
        let mut a = Arrival { now, seg, released, outcome: Outcome::empty() };
        let _ = match self.state {
            State::Closed | State::Listen => ControlFlow::Break(()),
            State::SynSent => self.arrives_in_syn_sent(&mut a),
            _ => self.arrives(&mut a),
        };
        a.outcome
    }

    fn count_arrival(&mut self, now: Instant, seg: &SegmentIn) {
        let len = seg.payload.len();
        let segs = if seg.gso_size > 0 { len.div_ceil(usize::from(seg.gso_size)) as u32 } else { 1 };
        self.counts.segs_in = self.counts.segs_in.wrapping_add(segs);
        if len > 0 {
            self.counts.data_segs_in = self.counts.data_segs_in.wrapping_add(segs);
            self.last_data = now;
        }
    }

    //= rfc9293#section-3.10.7.4
    //# 3.10.7.4. Other States
    fn arrives(&mut self, a: &mut Arrival<'_>) -> Step {
        self.check_sequence(a)?;
        self.check_rst(a)?;
        self.check_security();
        self.check_syn(a)?;
        self.check_ack(a)?;
        self.check_urg(a);
        self.process_text(a)?;
        self.check_fin(a)
    }

    /// First: is it in the window, and no old duplicate? What lies outside is cut off.
    fn check_sequence(&mut self, a: &mut Arrival<'_>) -> Step {
        if self.state == State::SynReceived && a.seg.is(TcpFlags::SYN) && a.seg.header.seq == self.rcv.irs {
            self.same_syn_again(a)?;
        }
        if self.state == State::TimeWait && self.may_be_reused(&a.seg) {
            a.outcome |= Outcome::REUSE | Outcome::CLOSED;
            self.end(None, a.released);
            return ControlFlow::Break(());
        }
        let seq = a.seg.header.seq;
        let end = seq + a.seg.len();
        if self.is_old_duplicate(a) || !self.is_acceptable(seq, end) {
            if !a.seg.is(TcpFlags::RST) {
                //= rfc9293#section-3.10.7.4
                //# If an incoming segment is not acceptable, an acknowledgment should be sent in reply
                self.owe_ack_for_unacceptable(a, end);
            }
            return ControlFlow::Break(());
        }
        self.last_heard = a.now;
        self.keepalive_probes = 0;
        if let (Some(ts), Some(theirs)) = (&mut self.ts, a.seg.header.options.timestamps) {
            //= rfc7323#section-4.3
            //# If SEG.TSval >= TS.Recent and SEG.SEQ <= Last.ACK.sent, then SEG.TSval is copied to TS.Recent
            if seq.before_eq(self.rcv.acked) && theirs.val.wrapping_sub(ts.recent) as i32 >= 0 {
                (ts.recent, ts.recent_at) = (theirs.val, a.now);
            }
        }
        if seq.before(self.rcv.nxt) && !a.seg.payload.is_empty() {
            self.note_twice(seq, self.rcv.nxt.min(end));
        }
        if self.trim(&mut a.seg) {
            // A probe of a closed window, or a peer that does not keep to it: it must learn where we are.
            self.owed.ack = true;
        }
        ControlFlow::Continue(())
    }

    /// The SYN that we have answered: the answer was lost, or both sides called at once and this is the
    /// other's SYN-ACK. Strictly it lies before the window.
    fn same_syn_again(&mut self, a: &mut Arrival<'_>) -> Step {
        if a.seg.is(TcpFlags::ACK) {
            a.seg.header.flags.remove(TcpFlags::SYN);
            a.seg.header.seq += 1;
            self.owed.ack = true;
            return ControlFlow::Continue(());
        }
        if let Some(h) = &mut self.handshake {
            h.send = true;
        }
        ControlFlow::Break(())
    }

    /// PAWS (RFC 7323, 5).
    fn is_old_duplicate(&self, a: &Arrival<'_>) -> bool {
        let (Some(ts), Some(theirs)) = (self.ts, a.seg.header.options.timestamps) else { return false };
        let older = (theirs.val.wrapping_sub(ts.recent) as i32) < 0;
        older && a.now - ts.recent_at < PAWS_LIFETIME && !a.seg.is(TcpFlags::RST)
    }

    /// The four cases of RFC 9293, 3.4.
    fn is_acceptable(&self, seq: SeqNum, end: SeqNum) -> bool {
        let (nxt, edge) = (self.rcv.nxt, self.rcv.edge);
        match (end == seq, edge == nxt) {
            (true, true) => seq == nxt,
            // A pure acknowledgment at the window's very edge is what a prober sends.
            (true, false) => seq.after_eq(nxt) && seq.before_eq(edge),
            // Nothing fits, but acknowledgments, resets and urgent pointers of it still count.
            (false, true) => seq == nxt,
            (false, false) => seq.before(edge) && end.after(nxt),
        }
    }

    /// A new connection may take over TIME-WAIT if it is surely newer (RFC 9293, 3.10.7.4; RFC 6191).
    fn may_be_reused(&self, seg: &SegmentIn) -> bool {
        let newer = match (self.ts, seg.header.options.timestamps) {
            (Some(ts), Some(theirs)) => theirs.val.wrapping_sub(ts.recent) as i32 > 0,
            _ => seg.header.seq.after(self.rcv.nxt),
        };
        seg.is(TcpFlags::SYN) && !seg.header.flags.intersects(TcpFlags::ACK | TcpFlags::RST) && newer
    }

    fn owe_ack_for_unacceptable(&mut self, a: &mut Arrival<'_>, end: SeqNum) {
        let has_data = !a.seg.payload.is_empty() || a.seg.is(TcpFlags::FIN);
        if has_data && end.before_eq(self.rcv.nxt) {
            // A retransmission of what we have: our acknowledgment was lost.
            self.owed.ack = true;
            self.note_twice(a.seg.header.seq, end);
            if self.state == State::TimeWait {
                self.timers.set(Timer::Linger, a.now + self.cfg.time_wait);
            }
        } else {
            self.challenge(a.now);
        }
    }

    /// `[start, end)` came twice: the peer is told, since it may have sent it for nothing (RFC 2883).
    fn note_twice(&mut self, start: SeqNum, end: SeqNum) {
        if self.sack && self.cfg.dsack && self.state.is_synchronized() {
            self.dsack = Some((start, end));
        }
    }

    /// Cuts off what lies outside of the window; whether it ran over the right edge. SYN before the window
    /// goes with its sequence number.
    fn trim(&self, seg: &mut SegmentIn) -> bool {
        let old = self.rcv.nxt.since(seg.header.seq);
        if old > 0 {
            let syn = u32::from(seg.is(TcpFlags::SYN));
            seg.header.flags.remove(TcpFlags::SYN);
            seg.payload.advance((old - syn.min(old)) as usize);
            seg.header.seq = self.rcv.nxt;
            match seg.header.urgent.checked_sub(old.min(0xffff) as u16) {
                Some(ahead) if ahead > 0 => seg.header.urgent = ahead,
                _ => seg.header.flags.remove(TcpFlags::URG),
            }
        }
        let room = self.rcv.edge.since(seg.header.seq) as usize;
        if seg.payload.len() > room {
            seg.payload.trim(room);
            seg.header.flags.remove(TcpFlags::FIN);
            return true;
        }
        false
    }

    /// Second: RST counts only at exactly `rcv.nxt` (RFC 5961, 3.2).
    fn check_rst(&mut self, a: &mut Arrival<'_>) -> Step {
        if !a.seg.is(TcpFlags::RST) {
            return ControlFlow::Continue(());
        }
        if a.seg.header.seq != self.rcv.nxt {
            self.challenge(a.now);
            return ControlFlow::Break(());
        }
        let error = match self.state {
            State::SynReceived if self.is_fast_open() => Some(TcpError::Reset),
            State::SynReceived if self.handshake.as_ref().is_some_and(|h| h.passive) => None,
            State::SynReceived => Some(TcpError::Refused),
            State::TimeWait | State::LastAck | State::Closing => None,
            _ => Some(TcpError::Reset),
        };
        if error.is_some() {
            a.outcome |= Outcome::ERROR;
        }
        a.outcome |= Outcome::CLOSED;
        self.end(error, a.released);
        ControlFlow::Break(())
    }

    /// Third: security compartments are not implemented (RFC 9293, A.1 makes them optional).
    fn check_security(&self) {}

    /// Fourth: a SYN in the window is an attack or a ghost (RFC 5961, 4.2).
    fn check_syn(&mut self, a: &mut Arrival<'_>) -> Step {
        if !a.seg.is(TcpFlags::SYN) {
            return ControlFlow::Continue(());
        }
        self.challenge(a.now);
        ControlFlow::Break(())
    }

    /// Fifth: the acknowledgment.
    fn check_ack(&mut self, a: &mut Arrival<'_>) -> Step {
        if !a.seg.is(TcpFlags::ACK) {
            return ControlFlow::Break(());
        }
        let ack = a.seg.header.ack;
        if self.state == State::SynReceived {
            if !(ack.after(self.snd.una) && ack.before_eq(self.snd.nxt)) {
                self.owed.reset = Some(ack);
                return ControlFlow::Break(());
            }
            if self.waits_for_data(a) {
                return ControlFlow::Break(());
            }
            self.snd.una = self.snd.iss + 1;
            let early = self.is_fast_open();
            self.snd.wnd = u32::from(a.seg.header.window) << self.snd.shift;
            self.snd.max_wnd = self.snd.wnd;
            (self.snd.wl1, self.snd.wl2) = (a.seg.header.seq, ack);
            self.establish(a.now);
            if early {
                // The program has it already.
                self.set_xmit_timer(a.now);
                a.outcome |= Outcome::WRITABLE;
            } else {
                a.outcome |= Outcome::CONNECTED | Outcome::WRITABLE;
            }
        }
        //= rfc5961#section-5.2
        //# The ACK value is considered acceptable only if it is in the range of ((SND.UNA - MAX.SND.WND) <=
        //# SEG.ACK <= SND.NXT).
        if ack.after(self.snd.nxt) || ack.before(self.snd.una - self.snd.max_wnd) {
            self.challenge(a.now);
            return ControlFlow::Break(());
        }
        self.acknowledge(a)?;
        self.after_fin_acked(a)
    }

    /// Whether the bare end of a handshake is to be ignored, because nobody wants the connection before its
    /// first data (`TCP_DEFER_ACCEPT`).
    fn waits_for_data(&mut self, a: &Arrival<'_>) -> bool {
        let waits = a.seg.len() == 0 && self.recovery.timeouts < self.cfg.defer_accept;
        match &mut self.handshake {
            Some(h) if h.passive && waits => {
                h.acked = true;
                h.rtt.get_or_insert(a.now - h.sent_at);
                true
            }
            _ => false,
        }
    }

    /// Takes acknowledged bytes off the queue, and learns from what was and was not acknowledged.
    fn acknowledge(&mut self, a: &mut Arrival<'_>) -> Step {
        let ack = a.seg.header.ack;
        let before = self.snd.una;
        let view = self.view(a.now);
        let mut delivery = Delivery::default();
        let lost_before = self.rtx.lost();
        let high = self.rtx.high();
        let dsack = self.read_sack_blocks(a, &view, &mut delivery);
        let window_changed = self.update_send_window(a);
        let advanced = ack.after(before);
        let duplicate = !advanced && self.is_duplicate_ack(a, window_changed);
        let not_dup = window_changed || !a.seg.payload.is_empty();
        if advanced {
            self.snd.una = ack;
            self.out.ack(ack, a.released);
            self.snd_up = self.snd_up.filter(|up| up.after(ack));
            self.counts.bytes_acked += u64::from(ack.since(before));
            self.rtx.ack(ack, &view, high, &mut delivery);
            a.outcome |= Outcome::WRITABLE;
        }
        self.probes_out = 0;
        let echo = a.seg.header.options.timestamps.filter(|t| self.ts.is_some() && t.ecr != 0).map(|t| t.ecr);
        self.measure(a.now, &delivery, echo, advanced);
        let ece = self.ecn && a.seg.is(TcpFlags::ECE);
        if advanced || delivery.sacked || duplicate || dsack.is_some() || ece {
            let ack = Ack {
                now: a.now,
                before,
                advanced,
                duplicate,
                not_dup,
                dsack,
                echo,
                ece,
                delivery,
                lost_before,
            };
            self.on_ack(&ack);
        }
        if self.rtx.is_empty() {
            self.counts.spend(a.now, Busy::Idle);
        } else if advanced || window_changed {
            self.counts.spend(a.now, Busy::Sending);
        }
        ControlFlow::Continue(())
    }

    /// A round-trip time: from a segment sent once, or from the echoed timestamp.
    fn measure(&mut self, now: Instant, delivery: &Delivery, echo: Option<u32>, advanced: bool) {
        let once = if delivery.again { None } else { delivery.sample };
        let rtt = match (once.or(delivery.sack_sample), self.ts, echo) {
            (Some(sent_at), ..) => now - sent_at,
            (None, Some(ts), Some(echo)) if advanced => {
                let ms = clock(now, ts.offset).wrapping_sub(echo);
                if ms >= 1 << 20 {
                    return;
                }
                Duration::from_millis(u64::from(ms.max(1)))
            }
            _ => {
                if advanced {
                    self.rto.reset_backoff();
                }
                return;
            }
        };
        self.recovery.note_rtt(rtt, now);
        self.rto.sample(rtt);
    }

    //= rfc5681#section-2
    //# An acknowledgment is considered a "duplicate" in the following algorithms when (a) the receiver of
    //# the ACK has outstanding data, (b) the incoming acknowledgment carries no data, (c) the SYN and FIN
    //# bits are both off, (d) the acknowledgment number is equal to the greatest acknowledgment received on
    //# the given connection and (e) the advertised window in the incoming acknowledgment equals the
    //# advertised window in the last incoming acknowledgment.
    fn is_duplicate_ack(&self, a: &Arrival<'_>, window_changed: bool) -> bool {
        !self.rtx.is_empty() && a.seg.len() == 0 && a.seg.header.ack == self.snd.una && !window_changed
    }

    /// Marks what the peer says it has. Blocks outside of what is in flight are ignored, but for the first if
    /// it reports a duplicate (RFC 2883, 4): that is returned.
    fn read_sack_blocks(
        &mut self,
        a: &Arrival<'_>,
        view: &View,
        delivery: &mut Delivery,
    ) -> Option<(SeqNum, SeqNum)> {
        if !self.sack {
            return None;
        }
        let blocks = &a.seg.header.options.sack;
        let ack = a.seg.header.ack;
        let first = blocks.first().copied().filter(|(start, end)| start.before(*end));
        let dsack = first.filter(|(start, end)| {
            let within = blocks.get(1).is_some_and(|(s, e)| s.before_eq(*start) && end.before_eq(*e));
            let sent =
                end.before_eq(self.snd.nxt) && start.after_eq(self.snd.una - self.snd.max_wnd.max(1 << 16));
            sent && (start.before(ack) || within)
        });
        let high = self.rtx.high();
        let floor = self.snd.una.max(ack.min(self.snd.nxt));
        for (start, end) in blocks.iter().skip(usize::from(dsack.is_some())) {
            if start.before(*end) && start.after_eq(floor) && end.before_eq(self.snd.nxt) {
                self.rtx.sack(*start, *end, view, high, delivery);
            }
        }
        dsack
    }

    //= rfc9293#section-3.10.7.4
    //# If (SND.WL1 < SEG.SEQ or (SND.WL1 = SEG.SEQ and SND.WL2 =< SEG.ACK)), set SND.WND <- SEG.WND
    fn update_send_window(&mut self, a: &Arrival<'_>) -> bool {
        let h = &a.seg.header;
        let newer = self.snd.wl1.before(h.seq) || (self.snd.wl1 == h.seq && self.snd.wl2.before_eq(h.ack));
        if !newer {
            return false;
        }
        let wnd = u32::from(h.window) << self.snd.shift;
        let changed = wnd != self.snd.wnd;
        self.snd.wnd = wnd;
        self.snd.max_wnd = self.snd.max_wnd.max(wnd);
        (self.snd.wl1, self.snd.wl2) = (h.seq, h.ack);
        if wnd > 0 && changed {
            self.timers.clear(Timer::Persist);
        }
        changed
    }

    /// States that wait for the acknowledgment of our FIN.
    fn after_fin_acked(&mut self, a: &mut Arrival<'_>) -> Step {
        if !self.fin_acked() {
            return ControlFlow::Continue(());
        }
        let was = self.state;
        self.state = was.on(Event::FinAcked);
        match (was, self.state) {
            (State::FinWait1, State::FinWait2) if self.orphan => {
                self.abandon_fin_wait_2(a.now, a.released);
                if self.state == State::Closed {
                    a.outcome |= Outcome::CLOSED;
                    return ControlFlow::Break(());
                }
            }
            (State::Closing, State::TimeWait) => self.begin_time_wait(a),
            (State::LastAck, State::Closed) => {
                self.end(None, a.released);
                a.outcome |= Outcome::CLOSED;
                return ControlFlow::Break(());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    /// Sixth: the urgent pointer, which points one past the urgent byte (RFC 6093, 2.2), and the byte.
    fn check_urg(&mut self, a: &mut Arrival<'_>) {
        if !self.state.can_receive() {
            return;
        }
        let seq = a.seg.header.seq;
        if a.seg.is(TcpFlags::URG) && self.announce_urgent(seq + u32::from(a.seg.header.urgent.max(1)) - 1) {
            a.outcome |= Outcome::URGENT;
        }
        let Some(urgent) = self.urg.as_mut().filter(|u| u.byte == UrgentByte::NotYet) else { return };
        let mut byte = [0];
        if urgent.seq.within(seq, seq + a.seg.payload.len() as u32)
            && a.seg.payload.copy_bits(urgent.seq.since(seq) as usize, &mut byte)
        {
            urgent.byte = UrgentByte::Here(byte[0]);
            a.outcome |= Outcome::READABLE;
        }
    }

    /// Seventh: the data.
    fn process_text(&mut self, a: &mut Arrival<'_>) -> Step {
        let len = a.seg.payload.len() as u32;
        if a.seg.is(TcpFlags::FIN) && self.state.can_receive() {
            self.rcv.fin = Some(a.seg.header.seq + len);
            self.owed.ack = true;
        }
        if len == 0 {
            return ControlFlow::Continue(());
        }
        if !self.state.can_receive() {
            return ControlFlow::Continue(());
        }
        if self.orphan {
            //= rfc9293#section-3.6.1
            //# if new data is received after CLOSE is called, its TCP implementation SHOULD send a RST
            self.abort(a.released);
            self.error = None;
            a.outcome |= Outcome::CLOSED;
            return ControlFlow::Break(());
        }
        let segment = if a.seg.gso_size > 0 { u32::from(a.seg.gso_size) } else { len };
        self.rcv.mss = self.rcv.mss.max(segment.min(u32::from(self.path_mss)));
        self.note_congestion(&a.seg);
        let payload = std::mem::take(&mut a.seg.payload);
        let seq = a.seg.header.seq;
        if seq == self.rcv.nxt {
            self.receive_in_order(a, seq, payload);
        } else {
            self.counts.rcv_ooopack = self.counts.rcv_ooopack.wrapping_add(1);
            if self.input.make_room(seq, payload.len(), 2 * self.rcvbuf) {
                let end = seq + len;
                if !self.input.insert_early(seq, payload) {
                    self.note_twice(seq, end);
                }
            }
            //= rfc5681#section-4.2
            //# A TCP receiver SHOULD send an immediate duplicate ACK when an out-of-order segment arrives.
            self.owed.ack = true;
            self.owed.duplicates = self.owed.duplicates.saturating_add(u8::from(!self.sack));
        }
        ControlFlow::Continue(())
    }

    /// A mark is echoed until the peer says that it has reduced its window (RFC 3168, 6.1.3).
    fn note_congestion(&mut self, seg: &SegmentIn) {
        if !self.ecn {
            return;
        }
        if seg.is(TcpFlags::CWR) {
            self.ecn_echo = false;
        }
        if seg.ce {
            (self.ecn_echo, self.ecn_seen) = (true, true);
            self.owed.ack = true;
        }
    }

    fn receive_in_order(&mut self, a: &mut Arrival<'_>, seq: SeqNum, payload: SkBuff) {
        let had_holes = self.input.has_holes();
        let mut nxt = seq + payload.len() as u32;
        self.input.push(payload);
        nxt = self.input.fill(nxt);
        self.unacked_in += nxt.since(seq);
        self.counts.bytes_received += u64::from(nxt.since(seq));
        self.rcv.nxt = nxt;
        self.rcv.edge = self.rcv.edge.max(nxt);
        a.outcome |= Outcome::READABLE;
        let quick = self.quick_acks > 0 && !self.pingpong;
        self.quick_acks = self.quick_acks.saturating_sub(1);
        //= rfc9293#section-3.8.6.3
        //# a TCP implementation SHOULD generate an acknowledgment for at least every second full-sized
        //# segment or 2*RMSS bytes of new data
        if had_holes || quick || self.unacked_in >= 2 * self.rcv.mss {
            self.owed.ack = true;
        } else if !self.timers.is_set(Timer::DelayedAck) {
            self.timers.set(Timer::DelayedAck, a.now + self.cfg.delayed_ack);
        }
    }

    /// Eighth: the FIN, once everything before it is here.
    fn check_fin(&mut self, a: &mut Arrival<'_>) -> Step {
        if self.rcv.fin != Some(self.rcv.nxt) || !self.state.can_receive() {
            return ControlFlow::Continue(());
        }
        self.rcv.nxt += 1;
        self.rcv.edge = self.rcv.edge.max(self.rcv.nxt);
        self.owed.ack = true;
        self.state = self.state.on(Event::RecvFin);
        a.outcome |= Outcome::PEER_FIN | Outcome::READABLE;
        if self.state == State::TimeWait {
            self.begin_time_wait(a);
        }
        ControlFlow::Continue(())
    }

    fn begin_time_wait(&mut self, a: &mut Arrival<'_>) {
        self.timers.clear_all();
        self.timers.set(Timer::Linger, a.now + self.cfg.time_wait);
        a.outcome |= Outcome::TIME_WAIT;
    }

    /// Answers a suspicious segment with what we expect, seldom enough to be no amplifier (RFC 5961, 7).
    fn challenge(&mut self, now: Instant) {
        // Counted by whole seconds, as Linux does.
        let second = (now.as_millis() / 1000) as u32;
        let (since, count) = self.challenges;
        if since != second {
            self.challenges = (second, 1);
        } else if count < CHALLENGES {
            self.challenges.1 += 1;
        } else {
            return;
        }
        self.owed.ack = true;
    }

    //= rfc9293#section-3.10.7.3
    //# 3.10.7.3. SYN-SENT STATE
    fn arrives_in_syn_sent(&mut self, a: &mut Arrival<'_>) -> Step {
        let h = &a.seg.header;
        let acks = a.seg.is(TcpFlags::ACK);
        let (first, data) = (self.snd.iss + 1, self.handshake.as_ref().map_or(0, |h| h.syn_data));
        let sent = self.snd.nxt.after_eq(first);
        let good_ack = acks && sent && h.ack.after_eq(first) && h.ack.before_eq(first + data);
        if acks && !good_ack {
            if !a.seg.is(TcpFlags::RST) {
                self.owed.reset = Some(h.ack);
            }
            return ControlFlow::Break(());
        }
        if a.seg.is(TcpFlags::RST) {
            if good_ack {
                self.end(Some(TcpError::Refused), a.released);
                a.outcome |= Outcome::ERROR | Outcome::CLOSED;
            }
            return ControlFlow::Break(());
        }
        if !a.seg.is(TcpFlags::SYN) {
            return ControlFlow::Break(());
        }
        let syn = a.seg.header.clone();
        self.learn_from_syn(&syn, a.now);
        // What our SYN advertised.
        self.rcv.edge = self.rcv.nxt + self.rcvbuf.min(0xffff) as u32;
        if good_ack {
            self.snd.una = syn.ack;
            self.out.ack(syn.ack, a.released);
            self.ecn &= syn.flags.contains(TcpFlags::ECE) && !syn.flags.contains(TcpFlags::CWR);
            self.syn_was_answered(&syn);
            self.establish(a.now);
            if self.cfg.defer_accept > 0 || self.pingpong {
                // The program is about to send, and that acknowledges too.
                self.timers.set(Timer::DelayedAck, a.now + ACK_WAIT);
            } else {
                self.owed.ack = true;
            }
            a.outcome |= Outcome::CONNECTED | Outcome::WRITABLE;
        } else {
            // Simultaneous open: both sides have called.
            self.ecn = false;
            self.state = self.state.on(Event::RecvSyn);
            if let Some(h) = &mut self.handshake {
                h.send = true;
            }
        }
        ControlFlow::Continue(())
    }
}
