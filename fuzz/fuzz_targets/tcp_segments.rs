//! Arbitrary segments, calls and times against a live connection.
//!
//! Every byte a side sends is a function of its sequence number, whatever the segments overlap. So what the
//! connection delivers and what it sends can be checked byte by byte, however it got there.
#![no_main]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use skb::{Frag, SkBuff};
use tcp::{Config, Listen, ListenVerdict, Released, SegmentIn, State, Tcb};
use time::{Duration, Instant};
use wire::SeqNum;
use wire::tcp::{TcpFlags, TcpHeader, TcpOptions, Timestamps};

/// Our first sequence number, and the peer's: both wrap soon.
const ISS: SeqNum = SeqNum(u32::MAX - 1000);
const IRS: SeqNum = SeqNum(u32::MAX - 3000);

#[derive(Arbitrary, Debug)]
struct Script {
    /// We listened rather than connected.
    passive: bool,
    /// The handshake is done before the script begins.
    connected: bool,
    window_scale: Option<u8>,
    timestamps: bool,
    sack: bool,
    mss: Option<u16>,
    nodelay: bool,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// A segment, numbered from what the peer would send and acknowledge if it were honest.
    Segment(Segment),
    /// Any header at all.
    Anything {
        seq: u32,
        ack: u32,
        flags: u8,
        window: u16,
        len: u8,
    },
    Wait {
        millis: u16,
    },
    /// Until the next timer.
    Sleep,
    Append {
        len: u16,
        push: bool,
    },
    Take {
        max: u16,
    },
    ShutdownSend,
    ShutdownRecv,
    Close,
    Abort,
    Mtu {
        payload: u16,
    },
}

#[derive(Arbitrary, Debug)]
struct Segment {
    seq: i16,
    ack: i16,
    flags: Option<u8>,
    window: u16,
    len: u16,
    /// How far our clock's echo is off, if timestamps are on.
    echo: i8,
    sack: [Option<(u16, u16)>; 3],
}

/// The byte at a sequence number.
fn byte(seq: SeqNum) -> u8 {
    (seq.0 ^ (seq.0 >> 8) ^ (seq.0 >> 16)) as u8
}

/// The header as the connection would get it from a wire: with options in their bounds.
fn on_wire(header: &TcpHeader) -> TcpHeader {
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes);
    TcpHeader::parse(&bytes).expect("a header we have written").0
}

/// Memory of ours that counts itself.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

struct World {
    now: Instant,
    tcb: Tcb,
    released: Released,
    /// Next sequence number an honest peer sends.
    peer_next: SeqNum,
    /// End of what we have seen of the connection's bytes.
    seen: SeqNum,
    /// Our newest timestamp that the peer saw.
    ts: Option<u32>,
    /// The peer's clock.
    peer_ts: u32,
    /// Where the next byte appended, and the next one read, lies in its stream.
    appended: SeqNum,
    read: SeqNum,
    alive: Arc<AtomicUsize>,
}

impl World {
    fn options(&self, script: &Script, syn: bool, echo: i8) -> TcpOptions {
        let mut options = TcpOptions::default();
        if syn {
            options.mss = script.mss;
            options.window_scale = script.window_scale;
            options.sack_permitted = script.sack;
        }
        if script.timestamps {
            let ecr = self.ts.map_or(0, |ts| ts.wrapping_add_signed(echo.into()));
            options.timestamps = Some(Timestamps { val: self.peer_ts, ecr });
        }
        options
    }

    /// Gives the connection a segment whose bytes are what its numbers say.
    fn arrive(&mut self, header: TcpHeader, len: usize) {
        let mut first = header.seq;
        if header.flags.contains(TcpFlags::SYN) {
            first += 1;
        }
        let payload: Vec<u8> = (0..len).map(|n| byte(first + n as u32)).collect();
        // As a device delivers it: in a page.
        let payload = SkBuff::from_frag(Frag::from_bytes(payload.into()));
        let segment = SegmentIn { header: on_wire(&header), payload, gso_size: 0, ce: false };
        let (opens, start) = (self.tcb.state() == State::SynSent, segment.header.seq + 1);
        let syn = segment.header.flags.contains(TcpFlags::SYN);
        let _ = self.tcb.segment_arrives(self.now, segment, &mut self.released);
        if opens && syn && self.tcb.state() != State::SynSent {
            // The peer has chosen where its stream begins.
            self.read = start;
        }
    }

    /// Takes what the connection has to send, and looks at it.
    fn transmit(&mut self) {
        for n in 0.. {
            assert!(n < 100_000, "an endless burst");
            let Some(mut segment) = self.tcb.next_segment(self.now) else {
                break;
            };
            assert!(segment.frags().len() <= skb::MAX_SKB_FRAGS);
            let bytes = segment.to_vec();
            let (header, len) = TcpHeader::parse(&bytes).expect("a header of ours");
            assert!(segment.may_pull(len).is_some() && segment.advance(len));
            let reset = header.flags.contains(TcpFlags::RST);
            let syn = header.flags.contains(TcpFlags::SYN);
            // A keepalive or a window probe lies before the stream's end, a reset may lie anywhere.
            if !reset && !segment.is_empty() && header.seq.after(ISS) {
                for (n, b) in bytes[len..].iter().enumerate() {
                    assert_eq!(*b, byte(header.seq + n as u32), "byte {n} of {header:?}");
                }
                let end = header.seq + segment.len() as u32;
                assert!(end.before_eq(self.appended), "sent what was not appended");
            }
            let fin = header.flags.contains(TcpFlags::FIN);
            let end = header.seq + (segment.len() as u32 + u32::from(syn) + u32::from(fin));
            if !reset && end.after(self.seen) {
                self.seen = end;
            }
            self.ts = header.options.timestamps.map(|t| t.val).or(self.ts);
        }
    }

    fn take(&mut self, max: usize) {
        let mut frags = Vec::new();
        let n = self.tcb.take(self.now, max, &mut frags);
        assert!(n <= max && n == frags.iter().map(Frag::len).sum::<usize>());
        for frag in frags {
            let mut bytes = vec![0; frag.len()];
            assert!(frag.copy_to(0, &mut bytes));
            for b in bytes {
                assert_eq!(b, byte(self.read), "delivered at {:?}", self.read);
                self.read += 1;
            }
        }
    }

    fn append(&mut self, len: usize, push: bool) {
        if len == 0 || len > self.tcb.send_room() || !self.tcb.can_send() {
            return;
        }
        let bytes = (0..len).map(|n| byte(self.appended + n as u32)).collect();
        self.appended += len as u32;
        self.alive.fetch_add(1, Ordering::Relaxed);
        let owner = Counted(bytes, self.alive.clone());
        self.tcb.append(Frag::from_bytes(Bytes::from_owner(owner)));
        if push {
            self.tcb.push();
        }
    }

    /// Runs the timers that are due.
    fn timers(&mut self) {
        for n in 0.. {
            assert!(n < 100, "a timer that stays due");
            if self.tcb.next_timeout().is_none_or(|t| t > self.now) {
                break;
            }
            let _ = self.tcb.on_timeout(self.now, &mut self.released);
            self.transmit();
        }
    }

    fn segment(&mut self, script: &Script, s: &Segment) {
        let flags = s.flags.map_or(TcpFlags::ACK, TcpFlags::from_bits_retain);
        let syn = flags.contains(TcpFlags::SYN);
        let len = if syn { 0 } else { usize::from(s.len % 4000) };
        let mut options = self.options(script, syn, s.echo);
        if !syn && script.sack {
            let una = self.seen + s.ack as i32 as u32;
            for (start, len) in s.sack.iter().flatten() {
                let start = una + u32::from(*start);
                let _ = options.sack.try_push((start, start + u32::from(*len)));
            }
        }
        let seq = self.peer_next + s.seq as i32 as u32;
        let ack = self.seen + s.ack as i32 as u32;
        let header =
            TcpHeader { src_port: 1000, dst_port: 80, seq, ack, flags, window: s.window, urgent: 0, options };
        if s.seq == 0 {
            self.peer_next = seq + (len as u32 + u32::from(syn));
        }
        self.arrive(header, len);
    }

    fn step(&mut self, script: &Script, step: &Step) {
        match step {
            Step::Segment(s) => self.segment(script, s),
            Step::Anything { seq, ack, flags, window, len } => {
                let flags = TcpFlags::from_bits_retain(*flags);
                let (seq, ack) = (SeqNum(*seq), SeqNum(*ack));
                let header = TcpHeader {
                    src_port: 1000,
                    dst_port: 80,
                    seq,
                    ack,
                    flags,
                    window: *window,
                    ..TcpHeader::default()
                };
                self.arrive(header, usize::from(*len));
            }
            Step::Wait { millis } => self.now += Duration::from_millis((*millis).into()),
            Step::Sleep => self.now = self.tcb.next_timeout().map_or(self.now, |t| t.max(self.now)),
            Step::Append { len, push } => self.append(usize::from(*len), *push),
            Step::Take { max } => self.take(usize::from(*max)),
            Step::ShutdownSend => self.tcb.shutdown_send(),
            Step::ShutdownRecv => self.tcb.shutdown_recv(),
            Step::Close => self.tcb.close(self.now, &mut self.released),
            Step::Abort => self.tcb.abort(&mut self.released),
            Step::Mtu { payload } => self.tcb.set_path_mtu_payload(*payload),
        }
        self.peer_ts = self.peer_ts.wrapping_add(1);
        self.timers();
        self.transmit();
        // What was acknowledged goes after the lock would have been released.
        self.released.clear();
    }
}

impl World {
    fn new(config: Config) -> World {
        let now = Instant::from_secs(100);
        World {
            now,
            tcb: Tcb::connect(config, 80, 1000, ISS, 77, now),
            released: Released::default(),
            peer_next: IRS,
            seen: ISS,
            ts: None,
            peer_ts: 5,
            appended: ISS + 1,
            read: IRS + 1,
            alive: Arc::new(AtomicUsize::new(0)),
        }
    }

    /// The connection that the peer's SYN makes.
    fn listen(&mut self, config: Config, syn: &TcpHeader) {
        let listen = Listen::new(config, [3; 16]);
        let ends = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let ends = ((ends.0, 80).into(), (ends.1, 1000).into());
        let mut segment = SegmentIn { header: on_wire(syn), payload: SkBuff::new(), gso_size: 0, ce: false };
        match listen.segment_arrives(self.now, ends, &mut segment, 1460, ISS, 77, (false, 0)) {
            ListenVerdict::Spawn(tcb) => self.tcb = *tcb,
            other => panic!("a SYN to a listener: {other:?}"),
        }
        self.peer_next = IRS + 1;
    }
}

/// A connection in the state the script begins in.
fn begin(script: &Script) -> World {
    let config = Config {
        mss: 1460,
        nodelay: script.nodelay,
        sndbuf: 200_000,
        rcvbuf: 20_000,
        rcvbuf_max: 80_000,
        ..Config::default()
    };
    let mut w = World::new(config.clone());
    let options = w.options(script, true, 0);
    let flags = if script.passive { TcpFlags::SYN } else { TcpFlags::SYN | TcpFlags::ACK };
    let ports = TcpHeader { src_port: 1000, dst_port: 80, window: 60_000, ..TcpHeader::default() };
    let syn = TcpHeader { seq: IRS, flags, options, ..ports.clone() };
    if script.passive {
        w.listen(config, &syn);
    }
    w.transmit();
    if script.connected {
        if !script.passive {
            w.peer_next = IRS + 1;
            w.arrive(TcpHeader { ack: w.seen, ..syn }, 0);
        }
        let options = w.options(script, false, 0);
        let ack = TcpHeader { seq: w.peer_next, ack: w.seen, flags: TcpFlags::ACK, options, ..ports };
        w.arrive(ack, 0);
        assert_eq!(w.tcb.state(), State::Established);
    }
    w
}

fuzz_target!(|script: Script| {
    let mut w = begin(&script);
    for step in &script.steps {
        w.step(&script, step);
    }
    w.take(usize::MAX);
    let alive = w.alive.clone();
    drop(w);
    assert_eq!(alive.load(Ordering::Relaxed), 0, "memory is still referred to");
});
