//! The transmission control block: all that is known of one connection, and the program's side of it.

use std::sync::Arc;

use skb::Frag;
use time::{Duration, Instant};
use wire::SeqNum;
use wire::tcp::{Cookie, TcpHeader};

use crate::config::{Config, Ecn};
use crate::congestion::{self, CongestionControl};
use crate::outcome::{Outcome, Released, TcpError};
use crate::rate::{Counts, Rate};
use crate::receive_buffer::ReceiveBuffer;
use crate::recovery::Recovery;
use crate::rto::Rto;
use crate::rtx_queue::RtxQueue;
use crate::send_buffer::SendBuffer;
use crate::state::{Event, State};
use crate::timers::{Timer, Timers};
use crate::urgent::Urgent;

/// Bytes the timestamps option takes in every segment.
pub(crate) const TIMESTAMP_LEN: u16 = 12;
/// Segments acknowledged at once when a connection begins, so that the peer's slow start is not held up.
pub(crate) const QUICK_ACKS: u8 = 16;

/// Send sequence space (RFC 9293, 3.3.1).
#[derive(Debug)]
pub(crate) struct Snd {
    /// First byte not acknowledged.
    pub(crate) una: SeqNum,
    /// Next byte to send.
    pub(crate) nxt: SeqNum,
    /// Window, in bytes.
    pub(crate) wnd: u32,
    /// Largest window ever offered.
    pub(crate) max_wnd: u32,
    /// Segment sequence number at the last window update.
    pub(crate) wl1: SeqNum,
    /// Segment acknowledgment number at the last window update.
    pub(crate) wl2: SeqNum,
    /// Initial sequence number.
    pub(crate) iss: SeqNum,
    /// The peer's window scale.
    pub(crate) shift: u8,
}

impl Snd {
    fn new(iss: SeqNum) -> Self {
        let (wl1, wl2) = (SeqNum(0), SeqNum(0));
        Self { una: iss, nxt: iss, wnd: 0, max_wnd: 0, wl1, wl2, iss, shift: 0 }
    }
}

/// Receive sequence space (RFC 9293, 3.3.1).
#[derive(Debug)]
pub(crate) struct Rcv {
    /// Next byte expected.
    pub(crate) nxt: SeqNum,
    /// Right edge of the window as last advertised; it never moves left.
    pub(crate) edge: SeqNum,
    /// `nxt` as last acknowledged.
    pub(crate) acked: SeqNum,
    /// Initial receive sequence number.
    pub(crate) irs: SeqNum,
    /// Our window scale.
    pub(crate) shift: u8,
    /// Where the peer's FIN lies, once it came, early or not.
    pub(crate) fin: Option<SeqNum>,
    /// Largest segment seen: what "a full segment" means for delayed acknowledgments.
    pub(crate) mss: u32,
}

impl Rcv {
    fn new(cfg: &Config) -> Self {
        let zero = SeqNum(0);
        let shift = if cfg.window_scaling { cfg.window_shift() } else { 0 };
        let mss = u32::from(cfg.mss.min(536));
        Self { nxt: zero, edge: zero, acked: zero, irs: zero, shift, fin: None, mss }
    }

    /// Bytes the peer may send.
    pub(crate) fn wnd(&self) -> u32 {
        self.edge.since(self.nxt)
    }
}

/// Timestamps in use (RFC 7323).
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimestampState {
    /// Added to our clock.
    pub(crate) offset: u32,
    /// TS.Recent, and when it was taken.
    pub(crate) recent: u32,
    pub(crate) recent_at: Instant,
}

/// The handshake, while it lasts.
#[derive(Debug)]
pub(crate) struct Handshake {
    /// The SYN or SYN-ACK is to be sent (again).
    pub(crate) send: bool,
    pub(crate) attempts: u8,
    /// We were called (LISTEN), and go back to nothing on a reset.
    pub(crate) passive: bool,
    /// Its bare end came, and data is waited for (`TCP_DEFER_ACCEPT`).
    pub(crate) acked: bool,
    /// How long that took: the data comes when the program has it, which says nothing of the path.
    pub(crate) rtt: Option<Duration>,
    pub(crate) sent_at: Instant,
    /// Fast Open: data may go with or before the end of the handshake.
    pub(crate) data_allowed: bool,
    /// The Fast Open option to send.
    pub(crate) cookie: Option<Cookie>,
    /// Bytes of data that went with a SYN.
    pub(crate) syn_data: u32,
}

impl Handshake {
    fn new(now: Instant) -> Self {
        Self {
            send: true,
            attempts: 0,
            passive: false,
            acked: false,
            rtt: None,
            sent_at: now,
            data_allowed: false,
            cookie: None,
            syn_data: 0,
        }
    }
}

/// Segments that are owed.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// An acknowledgment now.
    pub(crate) ack: bool,
    /// So many of them without SACK: the peer counts duplicates, also when several early segments arrive
    /// before we may answer.
    pub(crate) duplicates: u8,
    /// A window or keepalive probe.
    pub(crate) probe: bool,
    /// A reset, with this sequence number.
    pub(crate) reset: Option<SeqNum>,
    /// The last segment again, or a new one, to learn whether the tail is lost.
    pub(crate) tail_probe: bool,
    /// Send a partial segment in spite of silly-window avoidance.
    pub(crate) force: bool,
}

/// Receive-buffer tuning: what the reader took in one round trip.
#[derive(Debug)]
pub(crate) struct Tuning {
    pub(crate) since: Instant,
    pub(crate) taken: u32,
    pub(crate) best: u32,
}

/// One connection in any state but LISTEN.
#[derive(Debug)]
pub struct Tcb {
    /// Shared with the socket, and with those that a listener spawns.
    pub(crate) cfg: Arc<Config>,
    pub(crate) state: State,
    pub(crate) ports: (u16, u16),
    pub(crate) snd: Snd,
    pub(crate) rcv: Rcv,
    pub(crate) handshake: Option<Box<Handshake>>,
    pub(crate) ts: Option<TimestampState>,
    pub(crate) sack: bool,
    /// What came twice, to be reported in the next acknowledgment (RFC 2883).
    pub(crate) dsack: Option<(SeqNum, SeqNum)>,
    /// Largest payload per segment that the path carries, options not subtracted.
    pub(crate) path_mss: u16,
    /// The peer's MSS option.
    pub(crate) peer_mss: u16,
    /// Payload of a full segment, options subtracted.
    pub(crate) mss: u16,
    pub(crate) out: SendBuffer,
    pub(crate) rtx: RtxQueue,
    pub(crate) cc: Box<dyn CongestionControl>,
    pub(crate) rto: Rto,
    pub(crate) recovery: Recovery,
    pub(crate) rate: Rate,
    pub(crate) counts: Counts,
    pub(crate) input: ReceiveBuffer,
    pub(crate) rcvbuf: usize,
    pub(crate) tuning: Tuning,
    pub(crate) timers: Timers,
    pub(crate) owed: Owed,
    /// In-order bytes since the last acknowledgment.
    pub(crate) unacked_in: u32,
    pub(crate) quick_acks: u8,
    /// Data flows both ways: acknowledgments wait for data to carry them.
    pub(crate) pingpong: bool,
    /// What the peer said is urgent, until it is read past.
    pub(crate) urg: Option<Urgent>,
    /// One past what the program said is urgent, until it is acknowledged (SND.UP).
    pub(crate) snd_up: Option<SeqNum>,
    pub(crate) keepalive_probes: u8,
    /// Window and keepalive probes since the peer last answered.
    pub(crate) probes_out: u8,
    pub(crate) last_heard: Instant,
    pub(crate) last_sent: Instant,
    pub(crate) last_data: Instant,
    /// When `snd.una` last moved, or data began to wait.
    pub(crate) progress_at: Instant,
    /// End of the last send call: its segment is pushed.
    pub(crate) push_at: SeqNum,
    /// Newest segment below the MSS that is out (Minshall's rule).
    pub(crate) small_at: SeqNum,
    pub(crate) more: bool,
    /// New data waits for the window, and only a segment or a timer can change that: a send call need not
    /// look again.
    pub(crate) blocked: bool,
    /// Small sends are being gathered until a large packet is full or an acknowledgment comes.
    pub(crate) gathering: bool,
    /// An acknowledgment came since the last packet that was not full.
    pub(crate) partial_allowed: bool,
    /// Data in the SYN was taken.
    pub(crate) syn_data: bool,
    /// A cookie for next time, until somebody takes it.
    pub(crate) learnt_cookie: Option<Box<Cookie>>,
    /// Marks of congestion were agreed on (RFC 3168); before, that they are asked for.
    pub(crate) ecn: bool,
    /// A mark came, and is echoed.
    pub(crate) ecn_echo: bool,
    pub(crate) ecn_seen: bool,
    /// The next new segment says that the window was reduced.
    pub(crate) ecn_cwr: bool,
    /// The last segment may be marked.
    pub(crate) ect: bool,
    pub(crate) fin_queued: bool,
    pub(crate) receive_shut: bool,
    /// The program is gone.
    pub(crate) orphan: bool,
    pub(crate) error: Option<TcpError>,
    pub(crate) soft: Option<TcpError>,
    /// Challenge acknowledgments this second (RFC 5961, 7).
    pub(crate) challenges: (u32, u8),
}

impl Tcb {
    pub(crate) fn new(
        cfg: Arc<Config>,
        ports: (u16, u16),
        state: State,
        iss: SeqNum,
        ts_offset: u32,
        now: Instant,
    ) -> Self {
        let initial = cfg.initial_window * u32::from(cfg.mss);
        let ts = cfg.timestamps.then_some(TimestampState { offset: ts_offset, recent: 0, recent_at: now });
        Self {
            state,
            ports,
            snd: Snd::new(iss),
            rcv: Rcv::new(&cfg),
            handshake: Some(Box::new(Handshake::new(now))),
            ts,
            sack: cfg.sack,
            dsack: None,
            peer_mss: 536,
            path_mss: cfg.mss,
            mss: cfg.mss,
            out: SendBuffer::new(iss + 1),
            rtx: RtxQueue::default(),
            cc: congestion::new(cfg.congestion, initial),
            rto: Rto::new(cfg.rto_min, cfg.rto_max),
            recovery: Recovery::new(iss),
            rate: Rate::default(),
            counts: Counts::default(),
            input: ReceiveBuffer::new(),
            rcvbuf: cfg.rcvbuf,
            tuning: Tuning { since: now, taken: 0, best: cfg.rcvbuf as u32 / 2 },
            timers: Timers::new(),
            owed: Owed::default(),
            unacked_in: 0,
            quick_acks: QUICK_ACKS,
            pingpong: false,
            urg: None,
            snd_up: None,
            keepalive_probes: 0,
            probes_out: 0,
            last_heard: now,
            last_sent: now,
            last_data: now,
            progress_at: now,
            push_at: iss,
            small_at: iss,
            more: false,
            blocked: false,
            gathering: false,
            partial_allowed: true,
            syn_data: false,
            learnt_cookie: None,
            ecn: cfg.ecn == Ecn::On,
            ecn_echo: false,
            ecn_seen: false,
            ecn_cwr: false,
            ect: false,
            fin_queued: false,
            receive_shut: false,
            orphan: false,
            error: None,
            soft: None,
            challenges: (0, 0),
            cfg,
        }
    }

    /// Begins to connect; the first [`next_segment`](Self::next_segment) is the SYN.
    pub fn connect(
        cfg: impl Into<Arc<Config>>,
        src: u16,
        dst: u16,
        iss: SeqNum,
        ts_offset: u32,
        now: Instant,
    ) -> Self {
        Self::new(cfg.into(), (src, dst), State::SynSent, iss, ts_offset, now)
    }

    /// Takes over what the peer's SYN says.
    pub(crate) fn learn_from_syn(&mut self, syn: &TcpHeader, now: Instant) {
        self.rcv.irs = syn.seq;
        self.rcv.nxt = syn.seq + 1;
        self.rcv.acked = self.rcv.nxt;
        self.rcv.edge = self.rcv.nxt;
        self.learn_options(&syn.options, now);
        // The window of a SYN is never scaled (RFC 7323, 2.2).
        self.snd.wnd = u32::from(syn.window);
        self.snd.max_wnd = self.snd.wnd;
        self.snd.wl1 = syn.seq;
        self.snd.wl2 = syn.ack;
    }

    pub(crate) fn learn_options(&mut self, options: &wire::tcp::TcpOptions, now: Instant) {
        self.peer_mss = options.mss.unwrap_or(536).max(64);
        match options.window_scale.filter(|_| self.cfg.window_scaling) {
            Some(shift) => self.snd.shift = shift,
            None => (self.snd.shift, self.rcv.shift) = (0, 0),
        }
        self.ts = match (self.ts, options.timestamps) {
            (Some(ours), Some(theirs)) => Some(TimestampState { recent: theirs.val, recent_at: now, ..ours }),
            _ => None,
        };
        self.sack &= options.sack_permitted;
        self.update_mss();
        self.cc = congestion::new(self.cfg.congestion, self.cfg.initial_window * u32::from(self.mss));
    }

    /// The MSS option to send: what the path carries, or the program's wish if that is less.
    pub(crate) fn advertised_mss(&self) -> u16 {
        match self.cfg.user_mss {
            0 => self.path_mss,
            wanted => wanted.min(self.path_mss),
        }
    }

    pub(crate) fn update_mss(&mut self) {
        let options = if self.ts.is_some() { TIMESTAMP_LEN } else { 0 };
        let most = u16::try_from(self.cfg.gso_max).unwrap_or(u16::MAX);
        self.mss = self.peer_mss.min(self.advertised_mss()).saturating_sub(options).min(most).max(32);
    }

    /// The handshake is over.
    pub(crate) fn establish(&mut self, now: Instant) {
        if let Some(h) = self.handshake.take().filter(|h| h.attempts == 1) {
            let rtt = h.rtt.unwrap_or(now - h.sent_at);
            self.rto.sample(rtt);
            self.recovery.note_rtt(rtt, now);
        }
        self.state = self.state.on(Event::Handshake);
        self.timers.clear(Timer::Retransmit);
        self.recovery.timeouts = 0;
        // The SYN, or the SYN-ACK.
        self.rate.now.delivered = 1;
        self.rate.now.delivered_at = now;
        self.progress_at = now;
        self.last_heard = now;
        self.tuning.since = now;
        self.arm_keepalive(now);
        if self.fin_queued {
            self.state = self.state.on(Event::SendFin);
        }
    }

    pub(crate) fn arm_keepalive(&mut self, now: Instant) {
        if self.cfg.keepalive.on && self.state.is_synchronized() {
            self.timers.set(Timer::Keepalive, now + self.cfg.keepalive.idle);
        } else {
            self.timers.clear(Timer::Keepalive);
        }
    }

    // ---- the program's side ----

    /// Bytes the send queue still takes; none while too much of it is unsent (`TCP_NOTSENT_LOWAT`).
    pub fn send_room(&self) -> usize {
        if self.state == State::SynSent {
            return self.syn_room();
        }
        let room = self.cfg.sndbuf.saturating_sub(self.out.len());
        match (self.cfg.notsent_lowat as usize).checked_sub(self.unsent()) {
            _ if self.cfg.notsent_lowat == u32::MAX => room,
            None | Some(0) => 0,
            // As Linux: the mark is looked at packet by packet.
            Some(below) => room.min(below.next_multiple_of(self.largest() as usize)),
        }
    }

    /// Appends a fragment to the send queue. The whole fragment is taken, also beyond the buffer's size.
    pub fn append(&mut self, frag: Frag) {
        self.out.append(frag);
    }

    /// Ends a send call: the last byte so far is pushed.
    pub fn push(&mut self) {
        self.push_at = self.out.end();
        self.more = false;
    }

    /// Ends a send call that said there is more to come (`MSG_MORE`): a last small segment waits for it,
    /// for the next acknowledgment, or for as long as under a cork.
    pub fn push_more(&mut self) {
        self.more = true;
    }

    /// Ends a record (`MSG_EOR`): what is appended later goes into other packets.
    pub fn end_record(&mut self) {
        self.out.end_record();
    }

    /// Bytes not yet sent.
    pub fn unsent(&self) -> usize {
        self.out.end().since(self.snd.nxt.max(self.snd.iss + 1)) as usize
    }

    /// Bytes sent or not that the peer has not acknowledged.
    pub fn queued(&self) -> usize {
        let fin = self.fin_queued && !self.fin_acked() && self.state != State::Closed;
        self.out.len() + usize::from(fin)
    }

    /// Bytes that can be read.
    pub fn readable(&self) -> usize {
        self.input.readable()
    }

    /// `POLLIN`: data, or the end of the stream. With `SO_RCVLOWAT` so much data, or as much as the peer may
    /// send at all. An urgent byte that will be skipped is no data.
    pub fn is_readable(&self) -> bool {
        let readable = self.readable() - self.at_mark(1).0;
        let full = self.rcv.wnd() <= self.rcv.mss || self.input.held() >= self.rcvbuf;
        let enough = readable > 0 && (readable >= self.cfg.rcvlowat || full);
        enough || self.peer_closed() || self.receive_shut
    }

    /// `POLLOUT`: at least a third of the send buffer is free, as in Linux, so that a writer is not woken
    /// for every acknowledgment. Also when sending would fail at once.
    pub fn is_writable(&self) -> bool {
        match self.state {
            State::SynSent => false,
            State::SynReceived if !self.is_fast_open() => false,
            _ if self.can_send() => {
                let low = self.unsent().saturating_mul(2) < self.cfg.notsent_lowat as usize;
                low && self.cfg.sndbuf.saturating_sub(self.out.len()) * 3 >= self.cfg.sndbuf
            }
            _ => true,
        }
    }

    /// Whether data may be queued.
    pub fn can_send(&self) -> bool {
        let early = self.is_fast_open() || (self.state == State::SynSent && self.syn_room() > 0);
        (self.state.can_send() || early) && !self.fin_queued
    }

    /// The peer's FIN has come.
    pub fn peer_closed(&self) -> bool {
        self.state.has_peer_fin()
    }

    /// Nothing can be sent or received any more.
    pub fn both_closed(&self) -> bool {
        self.peer_closed() && self.fin_queued || self.state == State::Closed
    }

    /// The program has shut the receiving side.
    pub fn receive_shut(&self) -> bool {
        self.receive_shut
    }

    /// Moves up to `max` readable bytes to `out`; how many. Opens the window accordingly. Stops at urgent
    /// data, and begins behind it.
    pub fn take(&mut self, now: Instant, max: usize, out: &mut Vec<Frag>) -> usize {
        let (skip, max) = self.at_mark(max);
        if skip > 0 {
            self.input.take(skip, &mut Vec::new());
        }
        let n = self.input.take(max, out);
        if n + skip > 0 {
            self.leave_mark();
            self.tune(now, n);
            self.update_window();
        }
        n
    }

    /// Bytes that [`take`](Self::take) would deliver as its first `pieces` pieces.
    pub fn readable_in(&self, pieces: usize) -> usize {
        let (skip, _) = self.at_mark(usize::MAX);
        self.input.in_front(pieces).saturating_sub(skip).max(skip)
    }

    /// Copies readable bytes, from the one at `offset` on, without taking them.
    pub fn peek(&self, offset: usize, out: &mut [u8]) -> usize {
        let (skip, max) = self.at_mark(offset.saturating_add(out.len()));
        let len = max.saturating_sub(offset).min(out.len());
        self.input.peek(skip + offset, &mut out[..len])
    }

    /// Sends the rest of the queue, then a FIN.
    pub fn shutdown_send(&mut self) {
        if self.fin_queued {
            return;
        }
        match self.state {
            State::SynSent | State::Established | State::CloseWait | State::SynReceived => {
                self.fin_queued = true;
                if self.state.can_send() {
                    self.state = self.state.on(Event::SendFin);
                }
            }
            _ => {}
        }
    }

    /// Reads give an end of stream once everything that has come is read. The peer is not told (as in Linux).
    pub fn shutdown_recv(&mut self) {
        self.receive_shut = true;
    }

    /// The program is gone: sends the rest and a FIN; if it left data unread, a reset.
    ///
    //= rfc2525#section-2.17
    //# a TCP that closes a connection with received data still unread SHOULD send a RST
    pub fn close(&mut self, now: Instant, released: &mut Released) {
        self.orphan = true;
        match self.state {
            State::SynSent => self.end(None, released),
            _ if self.input.readable() > 0 || self.cfg.linger == Some(Duration::ZERO) => self.abort(released),
            _ => {
                self.shutdown_send();
                if self.state == State::FinWait2 {
                    self.abandon_fin_wait_2(now, released);
                }
            }
        }
    }

    /// The program is gone and the peer has not closed: it gets some time to.
    pub(crate) fn abandon_fin_wait_2(&mut self, now: Instant, released: &mut Released) {
        if self.cfg.fin_timeout == Duration::ZERO {
            self.abort(released);
            self.error = None;
        } else {
            self.timers.set(Timer::Linger, now + self.cfg.fin_timeout);
        }
    }

    /// Resets the connection and drops everything.
    pub fn abort(&mut self, released: &mut Released) {
        //= rfc9293#section-3.10.5
        //# Send a reset segment: <SEQ=SND.NXT><CTL=RST>
        let tell =
            self.state.is_synchronized() && self.state != State::TimeWait || self.state == State::SynReceived;
        let seq = self.snd.nxt;
        self.end(Some(TcpError::Aborted), released);
        if tell {
            self.owed.reset = Some(seq);
        }
        self.input.clear();
        self.urg = None;
    }

    /// `connect(AF_UNSPEC)`: as [`abort`](Self::abort), without leaving an error.
    pub fn purge(&mut self, released: &mut Released) {
        self.abort(released);
        self.error = None;
    }

    /// Ends the connection here and now.
    pub(crate) fn end(&mut self, error: Option<TcpError>, released: &mut Released) {
        self.state = State::Closed;
        self.error = error.or(self.error);
        self.out.clear(released);
        self.rtx.clear();
        self.timers.clear_all();
        self.handshake = None;
        self.owed = Owed::default();
        self.fin_queued = true;
    }

    /// The pending error, once.
    pub fn take_error(&mut self) -> Option<TcpError> {
        self.error.take()
    }

    /// An error report from the network. While connecting it ends the attempt; later it is only kept as
    /// the reason to give if the peer stays silent (RFC 9293, 3.9.2.2).
    pub fn soft_error(&mut self, error: TcpError, released: &mut Released) -> Outcome {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.end(Some(error), released);
            return Outcome::ERROR | Outcome::CLOSED;
        }
        self.soft = Some(error);
        Outcome::empty()
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Payload bytes of a full segment.
    pub fn mss(&self) -> u16 {
        self.mss
    }

    /// The path carries segments of `payload` bytes, options included.
    pub fn set_path_mtu_payload(&mut self, payload: u16) {
        if self.path_mss != payload {
            let smaller = payload < self.path_mss;
            self.path_mss = payload;
            self.look_again();
            self.update_mss();
            if smaller && self.state.is_synchronized() {
                // What was sent was too big to arrive: send the front again, at the new size (RFC 1191, 6.4).
                self.rtx.mark_front_lost(u32::from(self.mss));
            }
        }
    }

    /// Whether `seq` is sent and not acknowledged: what an ICMP error must quote to be believed.
    pub fn in_flight(&self, seq: SeqNum) -> bool {
        seq.within(self.snd.una, self.snd.nxt)
    }

    /// Grows the receive buffer when the reader takes more than half of it in a round trip.
    fn tune(&mut self, now: Instant, taken: usize) {
        if self.rcvbuf >= self.cfg.rcvbuf_max {
            return;
        }
        self.tuning.taken = self.tuning.taken.saturating_add(taken as u32);
        let rtt = self.rto.srtt().unwrap_or(Duration::from_millis(1)).max(Duration::from_micros(50));
        if now - self.tuning.since < rtt {
            return;
        }
        if self.tuning.taken > self.tuning.best {
            self.tuning.best = self.tuning.taken;
            let wanted = 2 * self.tuning.taken as usize + 16 * self.rcv.mss as usize;
            self.rcvbuf = self.rcvbuf.max(wanted.min(self.cfg.rcvbuf_max));
        }
        (self.tuning.since, self.tuning.taken) = (now, 0);
    }

    /// Tells the peer of a window that has opened by enough to matter (silly-window avoidance, RFC 9293,
    /// 3.8.6.2.2).
    pub(crate) fn update_window(&mut self) {
        if !self.state.can_receive() {
            return;
        }
        let opened = self.wanted_edge().since(self.rcv.edge) as usize;
        let enough = (self.rcvbuf / 4).max(2 * self.rcv.mss as usize).min(self.rcvbuf / 2);
        if opened >= enough || (self.rcv.wnd() < self.rcv.mss && opened >= self.rcv.mss as usize) {
            self.owed.ack = true;
        }
    }

    /// Where the window would end if it were advertised now.
    pub(crate) fn wanted_edge(&self) -> SeqNum {
        let free = self.rcvbuf.saturating_sub(self.input.held()) as u32;
        let clamp = if self.cfg.window_clamp == 0 { u32::MAX } else { self.cfg.window_clamp };
        self.rcv.nxt + free.min(clamp).min(0xffff << self.rcv.shift)
    }

    pub(crate) fn fin_seq(&self) -> SeqNum {
        self.out.end()
    }

    pub(crate) fn fin_sent(&self) -> bool {
        self.fin_queued && self.snd.nxt.after(self.fin_seq())
    }

    pub(crate) fn fin_acked(&self) -> bool {
        self.fin_queued && self.snd.una.after(self.fin_seq())
    }
}
