//! What acknowledgments tell of losses, and what is done about it: RACK-TLP (RFC 8985), proportional rate
//! reduction (RFC 6937), F-RTO (RFC 5682), D-SACK (RFC 2883), undoing of reductions that were not called for
//! (RFC 4015), and without SACK NewReno (RFC 6582). The states are Linux's (`tcp_ca_state`).

use std::num::NonZeroU32;

use time::{Duration, Instant};
use wire::SeqNum;

use crate::congestion::AckEvent;
use crate::output::clock;
use crate::rtx_queue::{Delivery, View};
use crate::tcb::Tcb;
use crate::timers::Timer;

/// Duplicates or packets in between that tell of a loss, until reordering was seen (RFC 5681: DupThresh).
const DUP_THRESH: u16 = 3;
/// Most reordering believed in, in packets (Linux: `tcp_max_reordering`).
const MAX_REORDERING: u32 = 300;
/// Recoveries for which a wider reordering window is kept (RFC 8985, 6.2 step 4).
const RACK_PERSIST: u8 = 16;
/// Least time for a timer of less than a retransmission timeout.
pub(crate) const TIMER_MIN: Duration = Duration::from_millis(2);
/// How long a least round-trip time counts.
const MIN_RTT_SECONDS: u32 = 300;

/// Linux's congestion states, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum CaState {
    /// Nothing unusual.
    #[default]
    Open,
    /// Duplicates came: something may be lost, or reordered.
    Disorder,
    /// The window is being reduced without a loss: congestion was signalled.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// RACK (RFC 8985, 5.2).
#[derive(Debug, Default)]
pub(crate) struct Rack {
    /// The packet sent last among those that arrived.
    at: Instant,
    end: SeqNum,
    /// Its round-trip time, in nanoseconds.
    rtt: u64,
    /// It is to be looked at.
    advanced: bool,
    dsack_seen: bool,
    /// Quarters of the least round trip that reordering may take.
    steps: u8,
    persist: u8,
    last_delivered: u32,
}

/// A probe of the tail that is out (RFC 8985, 7).
#[derive(Debug, Clone, Copy)]
struct Tlp {
    end: SeqNum,
    /// It repeated data.
    retrans: bool,
}

/// What to go back to if a reduction was wrong.
#[derive(Debug, Clone, Copy)]
struct Undo {
    /// `snd.una` when it began.
    marker: SeqNum,
    /// Retransmitted packets not reported as duplicates; `None` while none was sent.
    retrans: Option<u32>,
    cwnd: u32,
    ssthresh: u32,
}

/// Loss recovery.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) ca: CaState,
    /// Ends when this is acknowledged.
    pub(crate) high_seq: SeqNum,
    /// Duplicate acknowledgments, without SACK.
    pub(crate) dup_acks: u32,
    /// Timeouts in a row.
    pub(crate) timeouts: u8,
    /// Packets that may be late before they are taken for lost.
    pub(crate) reordering: u16,
    prior_cwnd: u32,
    prr_delivered: u32,
    pub(crate) prr_out: u32,
    undo: Option<Undo>,
    /// Our clock at the first retransmission.
    retrans_stamp: Option<u32>,
    /// Our timestamp that the last acknowledgment echoed.
    echo: Option<u32>,
    frto: bool,
    /// New data goes before lost data, to learn whether a timeout was spurious.
    pub(crate) new_first: bool,
    rack: Rack,
    tlp: Option<Tlp>,
    /// Least round trip in microseconds, and the second it was measured in.
    min_rtt: Option<(NonZeroU32, u32)>,
    /// The congestion window was all used, or how much of it since `usage_seq`.
    pub(crate) cwnd_limited: bool,
    max_out: u32,
    usage_seq: SeqNum,
}

impl Recovery {
    pub(crate) fn new(iss: SeqNum) -> Self {
        Self {
            ca: CaState::Open,
            high_seq: iss,
            dup_acks: 0,
            timeouts: 0,
            reordering: DUP_THRESH,
            prior_cwnd: 0,
            prr_delivered: 0,
            prr_out: 0,
            undo: None,
            retrans_stamp: None,
            echo: None,
            frto: false,
            new_first: false,
            rack: Rack { steps: 1, ..Rack::default() },
            tlp: None,
            min_rtt: None,
            cwnd_limited: false,
            max_out: 0,
            usage_seq: iss,
        }
    }

    /// The window is being reduced.
    pub(crate) fn reduces(&self) -> bool {
        matches!(self.ca, CaState::Cwr | CaState::Recovery)
    }

    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt.map(|m| Duration::from_micros(m.0.get().into()))
    }

    pub(crate) fn note_rtt(&mut self, rtt: Duration, now: Instant) {
        let rtt =
            NonZeroU32::new(u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN);
        let second = (now.as_millis() / 1000) as u32;
        let keeps =
            self.min_rtt.is_some_and(|(least, at)| least < rtt && second.wrapping_sub(at) < MIN_RTT_SECONDS);
        if !keeps {
            self.min_rtt = Some((rtt, second));
        }
    }
}

/// One acknowledgment, as loss recovery sees it.
#[derive(Debug)]
pub(crate) struct Ack {
    pub(crate) now: Instant,
    /// `snd.una` before.
    pub(crate) before: SeqNum,
    /// It acknowledged something new.
    pub(crate) advanced: bool,
    /// A duplicate in the sense of RFC 5681.
    pub(crate) duplicate: bool,
    /// It carried data, or changed the window.
    pub(crate) not_dup: bool,
    /// It reported a duplicate (RFC 2883); beginning and end.
    pub(crate) dsack: Option<(SeqNum, SeqNum)>,
    /// Our timestamp that it echoed.
    pub(crate) echo: Option<u32>,
    /// The peer saw a congestion mark.
    pub(crate) ece: bool,
    pub(crate) delivery: Delivery,
    /// Bytes taken for lost before, those sent again included.
    pub(crate) lost_before: u32,
}

impl Tcb {
    pub(crate) fn view(&self, now: Instant) -> View {
        let least = self.recovery.min_rtt().unwrap_or(Duration::MAX);
        View { mss: self.mss.into(), high_seq: self.recovery.high_seq, earliest: now - least }
    }

    /// Everything that loss recovery does on an acknowledgment (Linux: from `tcp_ack` on).
    pub(crate) fn on_ack(&mut self, ack: &Ack) {
        (self.recovery.new_first, self.recovery.echo) = (false, ack.echo);
        let delivered = self.count_delivered(ack);
        self.advance_rack(ack);
        self.note_reordering(ack);
        if let Some(dsack) = ack.dsack {
            self.note_dsack(dsack);
        }
        self.update_rack_window(ack);
        if ack.advanced {
            self.progress_at = ack.now;
            self.recovery.timeouts = 0;
        }
        self.probe_answered(ack);
        self.timers.clear(Timer::Reorder);
        self.alert(ack);
        self.control(ack, delivered);
        let guarded = self.timers.is_set(Timer::Retransmit) || self.timers.is_set(Timer::LossProbe);
        if !self.timers.is_set(Timer::Reorder) && (ack.advanced || !guarded) {
            self.set_xmit_timer(ack.now);
        }
    }

    /// Bytes that left the network by this acknowledgment.
    fn count_delivered(&mut self, ack: &Ack) -> u32 {
        let (mut bytes, mut packets) = (ack.delivery.bytes, ack.delivery.packets);
        let mss = u32::from(self.mss);
        if !self.sack {
            if ack.duplicate {
                self.recovery.dup_acks = self.recovery.dup_acks.saturating_add(1);
                (bytes, packets) = (mss, 1);
            } else if ack.advanced {
                // One packet filled the hole; duplicates told of the others before.
                let before = self.recovery.dup_acks;
                self.recovery.dup_acks = before.saturating_sub(packets.saturating_sub(1));
                packets = packets.saturating_sub(before).max(1);
                bytes = bytes.saturating_sub(before * mss).max(mss.min(bytes));
            }
            let most = self.rtx.total().div_ceil(mss).saturating_sub(1);
            self.recovery.dup_acks = self.recovery.dup_acks.min(most);
        }
        let least = self.recovery.min_rtt().unwrap_or_default();
        self.rate.on_delivery(ack.now, packets, ack.delivery.newest, least);
        bytes
    }

    /// RFC 8985, 6.2 step 2: which packet was sent last among those that arrived.
    fn advance_rack(&mut self, ack: &Ack) {
        let Some(newest) = ack.delivery.newest else { return };
        let rack = &mut self.recovery.rack;
        (rack.rtt, rack.advanced) = ((ack.now - newest.sent_at).as_nanos() as u64, true);
        if newest.sent_at > rack.at || (newest.sent_at == rack.at && newest.end.after(rack.end)) {
            (rack.at, rack.end) = (newest.sent_at, newest.end);
        }
    }

    /// RFC 8985, 6.2 step 3: something arrived later than what was sent after it.
    fn note_reordering(&mut self, ack: &Ack) {
        let (Some(late), true) = (ack.delivery.late, self.sack) else { return };
        let high = self.rtx.high().map_or(self.snd.una, |h| h.max(self.snd.una));
        let packets = high.since(late).div_ceil(u32::from(self.mss));
        self.recovery.reordering = self.recovery.reordering.max(packets.min(MAX_REORDERING) as u16);
        self.counts.reord_seen = self.counts.reord_seen.wrapping_add(1).max(1);
    }

    /// The peer got something twice (RFC 2883): a retransmission that was not needed.
    fn note_dsack(&mut self, (start, end): (SeqNum, SeqNum)) {
        let packets = end.since(start).div_ceil(u32::from(self.mss)).max(1);
        self.counts.dsack_dups = self.counts.dsack_dups.wrapping_add(packets);
        self.recovery.rack.dsack_seen = true;
        if let Some(Undo { marker, retrans: Some(left), .. }) = &mut self.recovery.undo
            && end.after(*marker)
        {
            *left = left.saturating_sub(packets);
        }
    }

    /// Adapts the reordering window (RFC 8985, 6.2 step 4).
    fn update_rack_window(&mut self, ack: &Ack) {
        let delivered = self.rate.now.delivered;
        let rack = &mut self.recovery.rack;
        let Some(newest) = ack.delivery.newest else { return };
        // One step per round trip.
        if (newest.rate.delivered.wrapping_sub(rack.last_delivered) as i32) < 0 {
            rack.dsack_seen = false;
        }
        if std::mem::take(&mut rack.dsack_seen) {
            rack.steps = rack.steps.saturating_add(1);
            (rack.last_delivered, rack.persist) = (delivered, RACK_PERSIST);
        } else if rack.persist == 0 {
            rack.steps = 1;
        }
    }

    /// How long a packet may be late (RFC 8985, 6.2 step 4).
    fn reordering_window(&self) -> Duration {
        let r = &self.recovery;
        if self.counts.reord_seen == 0 {
            let many = self.rtx.sacked_at_least(r.reordering.into(), self.mss.into());
            if r.ca >= CaState::Recovery || many {
                return Duration::ZERO;
            }
        }
        let quarter = r.min_rtt().unwrap_or_default() / 4;
        (quarter * u32::from(r.rack.steps)).min(self.rto.srtt().unwrap_or_default())
    }

    /// RFC 8985, 6.2 step 5. Whether something is lost that was not.
    fn rack_detect_loss(&mut self, now: Instant) -> bool {
        let rack = &self.recovery.rack;
        let newest = (rack.at, rack.end);
        let patience = Duration::from_nanos(rack.rtt) + self.reordering_window();
        let (lost, rexmit) = (self.rtx.lost(), self.rtx.rexmit());
        let wait = self.rtx.mark_lost_before(newest, now, patience);
        if let Some(wait) = wait {
            self.timers.clear(Timer::LossProbe);
            self.timers.clear(Timer::Retransmit);
            self.timers.set(Timer::Reorder, now + wait + TIMER_MIN);
        }
        self.rtx.lost() > lost || self.rtx.rexmit() < rexmit
    }

    /// Marks what must be lost (Linux: `tcp_identify_packet_loss`); whether a retransmission is among it.
    fn identify_loss(&mut self, ack: &Ack) -> bool {
        if self.rtx.is_empty() {
            return false;
        }
        let mss = u32::from(self.mss);
        let rexmit = self.rtx.rexmit();
        if self.sack {
            if std::mem::take(&mut self.recovery.rack.advanced) {
                self.rack_detect_loss(ack.now);
            }
        } else {
            let enough = self.recovery.ca < CaState::Recovery && self.recovery.dup_acks >= DUP_THRESH.into();
            let partial = self.recovery.ca == CaState::Recovery && ack.advanced;
            if (enough || partial) && !self.rtx.front_is_lost() {
                self.rtx.mark_front_lost(mss);
            }
        }
        self.rtx.rexmit() < rexmit
    }

    /// The timer for packets that may be late ran out.
    pub(crate) fn reorder_timeout(&mut self, now: Instant) {
        let in_flight = self.rtx.in_flight();
        if self.rack_detect_loss(now) {
            if !matches!(self.recovery.ca, CaState::Recovery | CaState::Loss) {
                self.enter_recovery(false);
            }
            let lost = in_flight.saturating_sub(self.rtx.in_flight());
            self.reduce_proportionally(1, lost, false);
        }
        if !self.timers.is_set(Timer::Reorder) {
            self.set_xmit_timer(now);
        }
    }

    /// What this acknowledgment means in the state we are in (Linux: `tcp_fastretrans_alert`).
    fn alert(&mut self, ack: &Ack) {
        if ack.ece
            && let Some(undo) = &mut self.recovery.undo
        {
            (undo.cwnd, undo.ssthresh) = (0, 0);
        }
        if self.sack && self.rtx.front_is_sacked() {
            // The peer has dropped what it said it had (RFC 2018, 8). The timer, soon, marks all as lost.
            let soon = (self.rto.srtt().unwrap_or_default() / 2).max(Duration::from_millis(10));
            self.clear_xmit_timers();
            self.timers.set(Timer::Retransmit, ack.now + soon);
            return;
        }
        if self.recovery.ca == CaState::Open {
            if !self.rtx.any_again() {
                self.recovery.retrans_stamp = None;
            }
        } else if self.snd.una.after_eq(self.recovery.high_seq) && self.end_state() {
            return;
        }
        match self.recovery.ca {
            CaState::Recovery => {
                if ack.advanced && self.undo_on_partial(ack) {
                    return;
                }
                self.undo_on_dsack();
                self.identify_loss(ack);
                if self.recovery.ca == CaState::Recovery {
                    return;
                }
            }
            CaState::Loss => {
                if self.in_loss(ack) {
                    return;
                }
                let lost_again = self.identify_loss(ack);
                if self.recovery.ca != CaState::Open && !lost_again {
                    return;
                }
            }
            _ => {
                if !self.sack && ack.advanced {
                    self.recovery.dup_acks = 0;
                }
                if self.recovery.ca <= CaState::Disorder {
                    self.undo_on_dsack();
                }
                self.identify_loss(ack);
            }
        }
        if self.rtx.has_lost() {
            self.enter_recovery(ack.ece);
        } else {
            self.try_to_open(ack.ece);
        }
    }

    /// Everything that was out when the state began is acknowledged. `true`: the state is held until
    /// something more is.
    fn end_state(&mut self) -> bool {
        match self.recovery.ca {
            CaState::Cwr if self.snd.una != self.recovery.high_seq => {
                self.end_reduction();
                self.recovery.ca = CaState::Open;
            }
            CaState::Recovery => {
                if !self.sack {
                    self.recovery.dup_acks = 0;
                }
                if self.end_recovery() {
                    return true;
                }
                self.end_reduction();
            }
            _ => {}
        }
        false
    }

    /// Back to normal, undone if it was not called for. Without SACK the state is held while the last data
    /// is just acknowledged: duplicates of it would look like another loss (RFC 6582, 4.1).
    fn end_recovery(&mut self) -> bool {
        if self.may_undo() {
            self.undo_reduction(false);
        }
        if self.snd.una == self.recovery.high_seq && !self.sack && !self.rtx.is_empty() {
            return true;
        }
        if self.recovery.ca == CaState::Recovery {
            let rack = &mut self.recovery.rack;
            rack.persist = rack.persist.saturating_sub(1);
        } else if self.recovery.ca == CaState::Loss {
            self.counts.total_rto_recoveries = self.counts.total_rto_recoveries.wrapping_add(1);
        }
        self.recovery.ca = CaState::Open;
        self.recovery.retrans_stamp = None;
        false
    }

    /// After a timeout (Linux: `tcp_process_loss`; RFC 5682). `true`: that is all.
    fn in_loss(&mut self, ack: &Ack) -> bool {
        let recovered = self.snd.una.after_eq(self.recovery.high_seq);
        if ack.advanced && self.undo_loss(false) {
            return self.recovery.ca == CaState::Loss;
        }
        if self.recovery.frto {
            // RFC 5682, 3.1, step 3.b: what was never sent again has arrived.
            if ack.delivery.original && self.undo_loss(true) {
                return false;
            }
            if self.snd.nxt.after(self.recovery.high_seq) {
                if ack.delivery.sacked || ack.duplicate {
                    self.recovery.frto = false;
                }
            } else if ack.advanced && !recovered {
                self.recovery.high_seq = self.snd.nxt;
                let window = (self.snd.una + self.snd.wnd).after(self.snd.nxt);
                if window && self.out.end().after(self.snd.nxt) {
                    self.recovery.new_first = true;
                    return true;
                }
                self.recovery.frto = false;
            }
        }
        if recovered {
            return self.end_recovery();
        }
        if !self.sack && ack.advanced {
            self.recovery.dup_acks = 0;
        }
        false
    }

    fn enter_recovery(&mut self, ece: bool) {
        let reduces = self.recovery.reduces();
        self.begin_undo(if ece || reduces { (0, 0) } else { (self.cc.cwnd(), self.current_ssthresh()) });
        if !reduces {
            self.begin_reduction();
        }
        self.recovery.ca = CaState::Recovery;
        self.recovery.high_seq = self.snd.nxt;
    }

    /// Congestion without loss: the window is reduced once per round trip (RFC 3168, 6.1.2).
    fn enter_cwr(&mut self) {
        if self.recovery.ca < CaState::Cwr {
            self.recovery.undo = None;
            self.begin_reduction();
            self.recovery.ca = CaState::Cwr;
        }
    }

    fn try_to_open(&mut self, ece: bool) {
        if ece {
            self.enter_cwr();
        }
        if self.recovery.ca == CaState::Cwr {
            return;
        }
        let early = self.rtx.sacked() > 0 || self.rtx.lost() > 0 || self.recovery.dup_acks > 0;
        let state = if early || self.rtx.any_again() { CaState::Disorder } else { CaState::Open };
        if self.recovery.ca != state {
            self.recovery.ca = state;
            self.recovery.high_seq = self.snd.nxt;
        }
    }

    /// The retransmission timer ran out (Linux: `tcp_enter_loss`).
    pub(crate) fn enter_loss(&mut self, now: Instant) {
        let mss = u32::from(self.mss);
        let new = self.recovery.ca < CaState::Recovery;
        let recent = if self.sack && self.counts.reord_seen > 0 { self.recovery.rack.rtt } else { 0 };
        self.rtx.mark_all_lost(now, Duration::from_nanos(recent));
        let again = self.recovery.ca == CaState::Loss && self.recovery.timeouts > 1;
        let reduced = !new && self.recovery.high_seq.after(self.snd.una);
        if !reduced || (self.recovery.ca == CaState::Loss && !again) {
            let (cwnd, ssthresh) = (self.cc.cwnd(), self.current_ssthresh());
            self.cc.reduce(mss);
            self.begin_undo((cwnd, ssthresh));
        }
        self.cc.set(self.rtx.in_flight() + mss, self.cc.ssthresh());
        self.ecn_cwr = self.ecn;
        let r = &mut self.recovery;
        r.dup_acks = 0;
        (r.ca, r.high_seq, r.tlp) = (CaState::Loss, self.snd.nxt, None);
        // A second timeout in a row may be spurious as well.
        r.frto = new || r.timeouts > 1;
        r.new_first = false;
    }

    fn current_ssthresh(&self) -> u32 {
        if self.recovery.reduces() {
            return self.cc.ssthresh();
        }
        self.cc.ssthresh().max(self.cc.cwnd() / 2 + self.cc.cwnd() / 4)
    }

    // ---- reduction of the window ----

    fn begin_reduction(&mut self) {
        let r = &mut self.recovery;
        (r.high_seq, r.tlp) = (self.snd.nxt, None);
        (r.prior_cwnd, r.prr_delivered, r.prr_out) = (self.cc.cwnd(), 0, 0);
        self.cc.reduce(self.mss.into());
        self.ecn_cwr = self.ecn;
    }

    /// Proportional rate reduction (RFC 6937, 3): as much may leave as keeps to the way from the old window to the new.
    fn reduce_proportionally(&mut self, delivered: u32, newly_lost: u32, advanced: bool) {
        let mss = u32::from(self.mss);
        let r = &mut self.recovery;
        if delivered == 0 || r.prior_cwnd == 0 {
            return;
        }
        r.prr_delivered = r.prr_delivered.saturating_add(delivered);
        let in_flight = self.in_flight_estimate();
        let ssthresh = self.cc.ssthresh();
        let r = &self.recovery;
        let send = if in_flight > ssthresh {
            let share = u64::from(ssthresh) * u64::from(r.prr_delivered);
            (share.div_ceil(u64::from(r.prior_cwnd)) as u32).saturating_sub(r.prr_out)
        } else {
            let catch_up = r.prr_delivered.saturating_sub(r.prr_out).max(delivered);
            let good = if advanced && newly_lost == 0 { mss } else { 0 };
            (catch_up + good).min(ssthresh - in_flight)
        };
        // The first retransmission always goes.
        let send = if r.prr_out == 0 { send.max(mss) } else { send };
        self.cc.set(in_flight + send, ssthresh);
    }

    fn end_reduction(&mut self) {
        let ssthresh = self.cc.ssthresh();
        if ssthresh < u32::MAX && (self.recovery.ca == CaState::Cwr || self.recovery.undo.is_some()) {
            self.cc.set(ssthresh, ssthresh);
        }
    }

    /// Shrinks or grows the window (Linux: `tcp_cong_control`).
    fn control(&mut self, ack: &Ack, delivered: u32) {
        let mss = u32::from(self.mss);
        if self.recovery.reduces() {
            let lost = self.rtx.lost().saturating_sub(ack.lost_before);
            self.reduce_proportionally(delivered, lost, ack.advanced);
            return;
        }
        let forward = ack.advanced || (ack.delivery.sacked && self.recovery.reordering > DUP_THRESH);
        let slow_start = self.cc.cwnd() < self.cc.ssthresh();
        let used = if slow_start {
            self.cc.cwnd() < self.recovery.max_out.saturating_mul(2)
        } else {
            self.recovery.cwnd_limited
        };
        if forward && used {
            let srtt = self.rto.srtt().unwrap_or_default();
            self.cc.on_ack(AckEvent { now: ack.now, acked: delivered, srtt, mss });
        }
    }

    /// Remembers how much of the window was used (Linux: `tcp_cwnd_validate`); `limited` if it was all.
    pub(crate) fn validate_cwnd(&mut self, limited: bool) {
        let out = self.rtx.total();
        let r = &mut self.recovery;
        if self.snd.una.after_eq(r.usage_seq) || limited || (!r.cwnd_limited && out > r.max_out) {
            (r.cwnd_limited, r.max_out, r.usage_seq) = (limited, out, self.snd.nxt);
        }
    }

    // ---- undoing ----

    fn begin_undo(&mut self, (cwnd, ssthresh): (u32, u32)) {
        let out = self.rtx.rexmit().div_ceil(u32::from(self.mss));
        let retrans = (out > 0).then_some(out);
        self.recovery.undo = Some(Undo { marker: self.snd.una, retrans, cwnd, ssthresh });
    }

    /// Something was sent again; undoing counts it, and remembers when it began.
    pub(crate) fn note_retransmission(&mut self, now: Instant, packets: u32) {
        let stamp = self.ts.map(|t| clock(now, t.offset));
        self.recovery.retrans_stamp = self.recovery.retrans_stamp.or(stamp);
        if let Some(undo) = &mut self.recovery.undo {
            undo.retrans = Some(undo.retrans.unwrap_or(0) + packets);
        }
    }

    /// Whether the reduction was wrong: every retransmission came as a duplicate, or what is acknowledged
    /// was the original (RFC 4015: the echoed timestamp is older than the first retransmission).
    fn may_undo(&self) -> bool {
        let Some(undo) = self.recovery.undo else { return false };
        undo.retrans == Some(0) || self.was_delayed()
    }

    fn was_delayed(&self) -> bool {
        match (self.recovery.retrans_stamp, self.recovery.echo) {
            (Some(stamp), Some(echo)) => (echo.wrapping_sub(stamp) as i32) < 0,
            _ => false,
        }
    }

    fn undo_reduction(&mut self, unmark: bool) {
        if unmark {
            self.rtx.unmark_lost();
        }
        if let Some(undo) = self.recovery.undo.take().filter(|u| u.cwnd > 0) {
            self.cc.set(self.cc.cwnd().max(undo.cwnd), self.cc.ssthresh().max(undo.ssthresh));
        }
        self.recovery.rack.advanced = true;
    }

    fn undo_on_dsack(&mut self) {
        if self.recovery.undo.is_some_and(|u| u.retrans == Some(0)) {
            self.undo_reduction(false);
            if self.recovery.ca == CaState::Recovery {
                self.recovery.ca = CaState::Open;
            }
        }
    }

    /// A part was acknowledged in recovery, and it was the original. `true`: nothing more to do now.
    fn undo_on_partial(&mut self, ack: &Ack) -> bool {
        if self.recovery.undo.is_none() || !self.was_delayed() {
            return false;
        }
        let packets = self.snd.una.since(ack.before).div_ceil(u32::from(self.mss));
        self.recovery.reordering = self.recovery.reordering.max(packets.min(MAX_REORDERING) as u16);
        if self.rtx.rexmit() > 0 {
            return true;
        }
        self.recovery.retrans_stamp = None;
        self.undo_reduction(true);
        self.recovery.ca = CaState::Disorder;
        self.try_to_open(false);
        false
    }

    /// A timeout was spurious: by F-RTO (`frto`), by timestamps or by D-SACK.
    fn undo_loss(&mut self, frto: bool) -> bool {
        if !frto && !self.may_undo() {
            return false;
        }
        self.undo_reduction(true);
        self.recovery.timeouts = 0;
        if frto || self.sack {
            self.counts.total_rto_recoveries = self.counts.total_rto_recoveries.wrapping_add(1);
            self.recovery.ca = CaState::Open;
        }
        true
    }

    // ---- tail loss probe ----

    /// Sets the one timer that guards what is in flight: a probe of the tail if it may be lost alone, else
    /// the retransmission timeout (RFC 8985, 7.2).
    pub(crate) fn set_xmit_timer(&mut self, now: Instant) {
        self.clear_xmit_timers();
        if self.rtx.is_empty() {
            return;
        }
        let rto = now + self.rto.timeout();
        match self.probe_timeout(now) {
            Some(pto) if pto < rto => self.timers.set(Timer::LossProbe, pto),
            _ => self.timers.set(Timer::Retransmit, rto),
        }
    }

    pub(crate) fn clear_xmit_timers(&mut self) {
        self.timers.clear(Timer::Retransmit);
        self.timers.clear(Timer::LossProbe);
        self.timers.clear(Timer::Reorder);
    }

    /// When to probe the tail (RFC 8985, 7.2).
    fn probe_timeout(&self, now: Instant) -> Option<Instant> {
        let open = self.recovery.ca == CaState::Open || self.recovery.ca == CaState::Cwr;
        if !self.sack || !open || self.recovery.timeouts > 0 || self.rto.is_backed_off() {
            return None;
        }
        let srtt = self.rto.srtt()?;
        // A single packet's acknowledgment may be delayed.
        let slack = if self.rtx.total() <= u32::from(self.mss) { self.cfg.rto_min } else { TIMER_MIN };
        Some(now + srtt * 2 + slack)
    }

    /// Time to probe: new data if there is some, else the last segment again.
    pub(crate) fn probe_tail(&mut self, now: Instant) {
        if self.recovery.tlp.is_some() || self.rtx.is_empty() {
            self.rearm_rto(now);
            return;
        }
        self.owed.tail_probe = true;
    }

    /// The retransmission timer, counted from when the oldest packet was sent.
    pub(crate) fn rearm_rto(&mut self, now: Instant) {
        self.clear_xmit_timers();
        if let Some(sent_at) = self.rtx.front_sent_at() {
            let at = (sent_at + self.rto.timeout()).max(now + TIMER_MIN);
            self.timers.set(Timer::Retransmit, at);
        }
    }

    /// A probe left.
    pub(crate) fn probe_sent(&mut self, now: Instant, retrans: bool) {
        self.recovery.tlp = Some(Tlp { end: self.snd.nxt, retrans });
        self.clear_xmit_timers();
        self.arm_retransmit(now);
    }

    /// RFC 8985, 7.4: did the probe repair a loss that nobody would have noticed?
    fn probe_answered(&mut self, ack: &Ack) {
        let Some(tlp) = self.recovery.tlp else { return };
        if self.snd.una.before(tlp.end) {
            return;
        }
        let duplicate = !ack.advanced && !ack.not_dup && !ack.delivery.sacked;
        let reported = ack.dsack.is_some_and(|(_, end)| end == tlp.end);
        if !tlp.retrans || reported || (duplicate && self.snd.una == tlp.end) {
            self.recovery.tlp = None;
        } else if self.snd.una.after(tlp.end) {
            self.begin_reduction();
            self.recovery.ca = CaState::Cwr;
            self.end_reduction();
            self.try_keep_open();
        }
    }

    fn try_keep_open(&mut self) {
        self.recovery.ca = CaState::Open;
        self.try_to_open(false);
    }
}
