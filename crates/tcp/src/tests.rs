//! Connections against each other, over a channel that does what networks do.

use skb::{Frag, SkBuff};
use time::{Duration, Instant};
use wire::SeqNum;
use wire::tcp::{TcpFlags, TcpHeader};

use crate::*;

mod drill;
mod fast_open;
mod options;
mod recovery;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Byte `i` of the stream.
fn byte(i: usize) -> u8 {
    (i ^ (i >> 8) ^ (i >> 16)) as u8
}

fn parse(mut skb: SkBuff) -> SegmentIn {
    let len = usize::from(skb.may_pull(20).unwrap()[12] >> 4) * 4;
    let (header, len) = TcpHeader::parse(skb.may_pull(len).unwrap()).unwrap();
    assert!(skb.advance(len));
    let gso_size = skb.gso.map_or(0, |g| g.size);
    SegmentIn { header, payload: skb, gso_size, ce: false }
}

/// Cuts a large packet at its segment size, as a device does.
fn segment(seg: SegmentIn, size: usize) -> Vec<SegmentIn> {
    let len = seg.payload.len();
    if len <= size {
        return vec![seg];
    }
    (0..len)
        .step_by(size)
        .map(|at| {
            let mut header = seg.header.clone();
            header.seq += at as u32;
            if at + size < len {
                header.flags.remove(TcpFlags::FIN | TcpFlags::PSH);
            }
            SegmentIn { header, payload: seg.payload.slice(at, size.min(len - at)), gso_size: 0, ce: false }
        })
        .collect()
}

struct World {
    now: Instant,
    ends: [Tcb; 2],
    wire: Vec<(Instant, usize, SegmentIn)>,
    random: Random,
    /// Of a hundred segments, so many are lost, doubled, delayed.
    faults: (u64, u64, u64),
    delay: Duration,
    split: bool,
    seen: [Outcome; 2],
    log: Vec<(usize, TcpHeader, usize)>,
    released: Released,
}

impl World {
    fn new(client: Config, server: Config, seed: u64, faults: (u64, u64, u64)) -> World {
        let now = Instant::from_secs(100);
        let listen = Listen::new(server.clone(), [3; 16]);
        let a = Tcb::connect(client, 1000, 80, SeqNum(u32::MAX - 5000), 77, now);
        let mut w = World::over(now, a, seed, faults);
        let mut syn = parse(w.ends[0].next_segment(now).unwrap());
        let (l, r) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:1000".parse().unwrap());
        let mss = server.mss;
        match listen.segment_arrives(now, (l, r), &mut syn, mss, SeqNum(u32::MAX - 9), 99, (false, 0)) {
            ListenVerdict::Spawn(b) => w.ends[1] = *b,
            v => panic!("{v:?}"),
        }
        w
    }

    fn over(now: Instant, a: Tcb, seed: u64, faults: (u64, u64, u64)) -> World {
        let b = Tcb::connect(Config::default(), 80, 1000, SeqNum(5), 5, now);
        World {
            now,
            ends: [a, b],
            wire: Vec::new(),
            random: Random(seed),
            faults,
            delay: Duration::from_millis(5),
            split: true,
            seen: [Outcome::empty(); 2],
            log: Vec::new(),
            released: Released::default(),
        }
    }

    fn connected() -> World {
        let mut w = World::new(config(), config(), 1, (0, 0, 0));
        w.run_for(Duration::from_millis(100));
        assert_eq!(w.states(), [State::Established; 2]);
        w.log.clear();
        w
    }

    fn states(&self) -> [State; 2] {
        [self.ends[0].state(), self.ends[1].state()]
    }

    fn transmit(&mut self) {
        for from in 0..2 {
            let size = usize::from(self.ends[from].mss());
            let mut most = 100_000;
            while let Some(skb) = self.ends[from].next_segment(self.now) {
                most -= 1;
                assert!(most > 0, "an endless burst");
                assert!(skb.len() <= 65_535 && skb.frags().len() <= skb::MAX_SKB_FRAGS);
                let seg = parse(skb);
                let all = if self.split { segment(seg, size) } else { vec![seg] };
                for seg in all {
                    self.log.push((from, seg.header.clone(), seg.payload.len()));
                    self.send(from, seg);
                }
            }
        }
    }

    fn send(&mut self, from: usize, seg: SegmentIn) {
        let (lost, doubled, delayed) = self.faults;
        if self.random.below(100) < lost {
            return;
        }
        let mut at = self.now + self.delay;
        if self.random.below(100) < delayed {
            at += Duration::from_millis(self.random.below(30));
        }
        if self.random.below(100) < doubled {
            let copy = SegmentIn {
                header: seg.header.clone(),
                payload: seg.payload.private_copy(),
                gso_size: seg.gso_size,
                ce: seg.ce,
            };
            self.wire.push((at + Duration::from_millis(3), 1 - from, copy));
        }
        self.wire.push((at, 1 - from, seg));
    }

    /// The next thing happens; false if nothing ever will.
    fn step(&mut self) -> bool {
        self.transmit();
        let arrival = self.wire.iter().map(|w| w.0).min();
        let timers = self.ends.iter().filter_map(Tcb::next_timeout).min();
        let Some(next) = arrival.into_iter().chain(timers).min() else { return false };
        self.now = if next - self.now > Duration::ZERO { next } else { self.now };
        let mut n = 0;
        while n < self.wire.len() {
            if self.wire[n].0 <= self.now {
                let (_, to, seg) = self.wire.remove(n);
                let o = self.ends[to].segment_arrives(self.now, seg, &mut self.released);
                self.seen[to] |= o;
            } else {
                n += 1;
            }
        }
        for i in 0..2 {
            if self.ends[i].next_timeout().is_some_and(|t| t <= self.now) {
                let o = self.ends[i].on_timeout(self.now, &mut self.released);
                self.seen[i] |= o;
            }
        }
        self.released.clear();
        true
    }

    fn run_for(&mut self, d: Duration) {
        let end = self.now + d;
        loop {
            self.transmit();
            let next =
                self.wire.iter().map(|w| w.0).chain(self.ends.iter().filter_map(Tcb::next_timeout)).min();
            match next {
                Some(t) if t <= end => assert!(self.step()),
                _ => break,
            }
        }
        self.now = end;
    }

    fn read(&mut self, i: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.ends[i].take(self.now, usize::MAX, &mut out);
        out.iter().flat_map(bytes).collect()
    }

    /// Sends `total` bytes from 0 to 1 and, half as many, back; then both close.
    fn transfer(&mut self, total: usize) {
        let goal = [total, total / 2];
        let (mut sent, mut got) = ([0; 2], [0; 2]);
        for _ in 0..2_000_000 {
            for i in 0..2 {
                while self.ends[i].can_send() && sent[i] < goal[i] && self.ends[i].send_room() > 0 {
                    let n = (1 + self.random.below(9000) as usize).min(goal[i] - sent[i]);
                    let data: Vec<u8> = (sent[i]..sent[i] + n).map(byte).collect();
                    self.ends[i].append(Frag::copied_from(&data));
                    self.ends[i].push();
                    sent[i] += n;
                }
                if sent[i] == goal[i] {
                    self.ends[i].shutdown_send();
                }
                for b in self.read(1 - i) {
                    assert_eq!(b, byte(got[i]), "at {} of {i}", got[i]);
                    got[i] += 1;
                }
            }
            if !self.step() {
                break;
            }
        }
        assert_eq!(got, goal, "{:?} {:#?}", self.states(), self.ends[0].info(self.now));
        assert!(self.seen.iter().all(|o| o.contains(Outcome::PEER_FIN)), "{:?}", self.seen);
        assert_eq!(self.states(), [State::Closed; 2]);
        assert!(self.ends.iter_mut().all(|e| e.take_error().is_none()));
    }
}

fn bytes(f: &Frag) -> Vec<u8> {
    let mut v = vec![0; f.len()];
    assert!(f.copy_to(0, &mut v));
    v
}

fn config() -> Config {
    Config { mss: 1460, ..Config::default() }
}

fn write(t: &mut Tcb, n: usize) {
    t.append(Frag::copied_from(&(0..n).map(byte).collect::<Vec<_>>()));
    t.push();
}

#[test]
fn a_stream_arrives_whole_over_a_clean_path() {
    World::new(config(), config(), 1, (0, 0, 0)).transfer(3_000_000);
}

#[test]
fn a_stream_arrives_whole_whatever_the_network_does() {
    for seed in 0..40 {
        let faults = (seed % 12, seed % 5, seed % 30);
        let mut c = config();
        c.sack = seed % 3 != 0;
        c.timestamps = seed % 4 != 0;
        c.window_scaling = seed % 5 != 0;
        c.rcvbuf = if seed % 7 == 0 { 8000 } else { 131_072 };
        c.rcvbuf_max = if seed % 7 == 0 { 8000 } else { 1 << 20 };
        c.nodelay = seed % 2 == 0;
        c.congestion = if seed % 2 == 0 { CongestionKind::Cubic } else { CongestionKind::NewReno };
        c.retries = 60;
        c.syn_retries = 60;
        World::new(c.clone(), Config { mss: 1000, ..c }, seed, faults).transfer(300_000);
    }
}

#[test]
fn large_packets_are_taken_whole_and_acknowledged_at_once() {
    let mut w = World::new(config(), config(), 1, (2, 1, 3));
    w.split = false;
    w.transfer(5_000_000);
    assert!(w.log.iter().any(|l| l.2 > 60_000));
}

#[test]
fn both_sides_may_call_at_once() {
    let now = Instant::from_secs(100);
    let a = Tcb::connect(config(), 1000, 80, SeqNum(u32::MAX), 77, now);
    let mut w = World::over(now, a, 1, (0, 0, 0));
    w.run_for(Duration::from_millis(900));
    assert_eq!(w.states(), [State::Established; 2]);
    w.transfer(10_000);
}

#[test]
fn both_sides_may_close_at_once() {
    let mut w = World::connected();
    w.ends.iter_mut().for_each(Tcb::shutdown_send);
    w.run_for(Duration::from_millis(100));
    assert_eq!(w.states(), [State::TimeWait; 2]);
    w.run_for(Duration::from_secs(61));
    assert_eq!(w.states(), [State::Closed; 2]);
}

#[test]
fn one_direction_stays_open_after_the_other_is_closed() {
    let mut w = World::connected();
    w.ends[0].shutdown_send();
    w.run_for(Duration::from_millis(100));
    assert_eq!(w.states(), [State::FinWait2, State::CloseWait]);
    write(&mut w.ends[1], 5000);
    w.run_for(Duration::from_millis(100));
    assert_eq!(w.read(0).len(), 5000);
    w.ends[1].shutdown_send();
    w.run_for(Duration::from_millis(100));
    assert_eq!(w.states(), [State::TimeWait, State::Closed]);
}

#[test]
fn a_fin_ahead_of_a_hole_does_not_end_the_stream() {
    let mut w = World::connected();
    write(&mut w.ends[0], 1448);
    let lost = parse(w.ends[0].next_segment(w.now).unwrap());
    w.ends[0].shutdown_send();
    let fin = parse(w.ends[0].next_segment(w.now).unwrap());
    assert!(fin.header.flags.contains(TcpFlags::FIN) && fin.payload.is_empty());
    let o = w.ends[1].segment_arrives(w.now, fin, &mut w.released);
    assert!(!o.contains(Outcome::PEER_FIN) && !w.ends[1].peer_closed());
    let o = w.ends[1].segment_arrives(w.now, lost, &mut w.released);
    assert!(o.contains(Outcome::PEER_FIN | Outcome::READABLE));
    assert_eq!(w.read(1).len(), 1448);
}

#[test]
fn one_loss_is_repaired_without_a_timeout() {
    for sack in [true, false] {
        let c = Config { sack, ..config() };
        let mut w = World::new(c.clone(), c, 1, (0, 0, 0));
        w.run_for(Duration::from_millis(50));
        write(&mut w.ends[0], 14_480);
        w.transmit();
        w.wire.remove(2);
        w.run_for(Duration::from_millis(60));
        assert_eq!(w.read(1).len(), 14_480, "sack {sack}");
        assert_eq!(w.ends[0].info(w.now).total_retrans, 1);
    }
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let mut c = config();
    (c.rcvbuf, c.rcvbuf_max) = (20_000, 20_000);
    let mut w = World::new(config(), c, 1, (0, 0, 0));
    w.run_for(Duration::from_millis(50));
    write(&mut w.ends[0], 60_000);
    w.run_for(Duration::from_secs(30));
    assert_eq!(w.ends[0].info(w.now).snd_wnd, 0);
    assert_eq!(w.states(), [State::Established; 2]);
    // The window update is lost; a probe finds out.
    w.faults.0 = 100;
    let mut got = w.read(1);
    w.transmit();
    w.faults.0 = 0;
    for _ in 0..100 {
        w.run_for(Duration::from_secs(1));
        got.extend(w.read(1));
    }
    assert_eq!(got, (0..60_000).map(byte).collect::<Vec<_>>());
}

#[test]
fn a_byte_sent_into_a_closed_window_is_answered() {
    let mut c = config();
    (c.rcvbuf, c.rcvbuf_max) = (20_000, 20_000);
    let mut w = World::new(config(), c, 1, (0, 0, 0));
    w.run_for(Duration::from_millis(50));
    write(&mut w.ends[0], 60_000);
    w.run_for(Duration::from_secs(2));
    assert_eq!(w.ends[1].info(w.now).rcv_wnd, 0);
    let mut probe = w.log.iter().rfind(|l| l.0 == 0).unwrap().1.clone();
    probe.seq = w.ends[0].snd.nxt;
    let seg = SegmentIn { header: probe, payload: SkBuff::from_slice(&[0]), gso_size: 0, ce: false };
    let _ = w.ends[1].segment_arrives(w.now, seg, &mut w.released);
    assert_eq!(parse(w.ends[1].next_segment(w.now).unwrap()).header.window, 0);
}

#[test]
fn resets_count_only_at_the_exact_place_and_challenges_are_rare() {
    let mut w = World::connected();
    let nxt = w.ends[1].rcv.nxt;
    let rst = |seq| SegmentIn {
        header: TcpHeader { src_port: 1000, dst_port: 80, seq, flags: TcpFlags::RST, ..TcpHeader::default() },
        payload: SkBuff::new(),
        gso_size: 0,
        ce: false,
    };
    let mut answers = 0;
    for i in 1..100 {
        let o = w.ends[1].segment_arrives(w.now, rst(nxt + i), &mut w.released);
        assert!(o.is_empty());
        answers += usize::from(w.ends[1].next_segment(w.now).is_some());
    }
    assert_eq!((answers, w.ends[1].state()), (10, State::Established));
    let o = w.ends[1].segment_arrives(w.now, rst(nxt), &mut w.released);
    assert!(o.contains(Outcome::ERROR | Outcome::CLOSED));
    assert_eq!(w.ends[1].take_error(), Some(TcpError::Reset));
}

#[test]
fn an_acknowledgment_of_what_was_never_sent_changes_nothing() {
    let mut w = World::connected();
    for (seq, ack) in [(w.ends[1].rcv.nxt, 1000), (w.ends[1].rcv.nxt - 5000, 1000)] {
        let header =
            TcpHeader { seq, ack: w.ends[1].snd.nxt + ack, flags: TcpFlags::ACK, ..TcpHeader::default() };
        let una = w.ends[1].snd.una;
        let seg = SegmentIn { header, payload: SkBuff::from_slice(b"x"), gso_size: 0, ce: false };
        let _ = w.ends[1].segment_arrives(w.now, seg, &mut w.released);
        assert_eq!((w.ends[1].snd.una, w.ends[1].readable()), (una, 0));
    }
}

#[test]
fn closing_with_unread_data_resets() {
    let mut w = World::connected();
    write(&mut w.ends[0], 100);
    w.run_for(Duration::from_millis(50));
    let now = w.now;
    w.ends[1].close(now, &mut w.released);
    w.run_for(Duration::from_millis(50));
    assert_eq!(w.ends[0].take_error(), Some(TcpError::Reset));
}

#[test]
fn nagle_holds_back_a_second_small_segment_and_cork_the_first() {
    let mut w = World::connected();
    write(&mut w.ends[0], 10);
    assert!(w.ends[0].next_segment(w.now).is_some());
    write(&mut w.ends[0], 10);
    assert!(w.ends[0].next_segment(w.now).is_none(), "the first is not acknowledged");
    let mut w = World::connected();
    let now = w.now;
    w.ends[0].configure(now, |c| c.cork = true);
    write(&mut w.ends[0], 10);
    assert!(w.ends[0].next_segment(w.now).is_none());
    w.ends[0].configure(now, |c| c.cork = false);
    assert!(w.ends[0].next_segment(w.now).is_some());
}

#[test]
fn a_stream_of_small_sends_is_gathered_on_a_short_path_unless_nodelay() {
    for nodelay in [false, true] {
        let mut w = World::connected();
        let now = w.now;
        let tcb = &mut w.ends[0];
        tcb.configure(now, |c| c.nodelay = nodelay);
        // A short path with a large packet in flight, and room for more.
        (0..50).for_each(|_| tcb.rto.sample(Duration::from_micros(100)));
        tcb.cc = crate::congestion::new(CongestionKind::NewReno, 10_000_000);
        (tcb.snd.wnd, tcb.snd.max_wnd) = (10_000_000, 10_000_000);
        write(tcb, 200_000);
        while tcb.next_segment(now).is_some() {}
        let mut packets = 0;
        for _ in 0..20 {
            write(tcb, 4000);
            packets +=
                usize::from(tcb.wants_to_send()) * std::iter::from_fn(|| tcb.next_segment(now)).count();
        }
        // 80,000 bytes: at most one packet that is not full, and then a full one.
        assert_eq!(packets <= 2, !nodelay, "{packets} packets");
        // What is left does not wait for a full packet: the next acknowledgment lets it go.
        tcb.look_again();
        while tcb.next_segment(now).is_some() {}
        assert!(tcb.unsent() < usize::from(tcb.mss()));
    }
}

#[test]
fn a_shut_receiving_side_never_delivers_past_a_gap() {
    let mut w = World::connected();
    write(&mut w.ends[0], 300);
    let whole = parse(w.ends[0].next_segment(w.now).unwrap());
    let mut parts = segment(whole, 150);
    let (late, early) = (parts.remove(0), parts.remove(0));
    let mut released = Released::default();
    let _ = w.ends[1].segment_arrives(w.now, early, &mut released);
    w.ends[1].shutdown_recv();
    let _ = w.ends[1].segment_arrives(w.now, late, &mut released);
    let mut got = Vec::new();
    assert_eq!(w.ends[1].take(w.now, usize::MAX, &mut got), 300);
    assert!(got.iter().flat_map(bytes).eq((0..300).map(byte)));
}

#[test]
fn a_packet_out_of_fragments_is_pushed() {
    let mut w = World::connected();
    for _ in 0..40 {
        w.ends[0].append(Frag::copied_from(&[7; 100]));
    }
    w.ends[0].push();
    let first = parse(w.ends[0].next_segment(w.now).unwrap());
    assert_eq!(first.payload.len(), 1700);
    assert!(first.header.flags.contains(TcpFlags::PSH));
}

#[test]
fn a_silent_peer_is_given_up_and_its_data_released() {
    let mut w = World::connected();
    w.ends[0].configure(w.now, |c| c.user_timeout = Some(Duration::from_secs(10)));
    write(&mut w.ends[0], 10_000);
    w.faults.0 = 100;
    w.run_for(Duration::from_secs(60));
    assert_eq!(w.ends[0].take_error(), Some(TcpError::TimedOut));
    assert_eq!((w.ends[0].state(), w.ends[0].queued()), (State::Closed, 0));
}

#[test]
fn keepalive_finds_a_dead_peer_and_spares_a_living_one() {
    let mut w = World::connected();
    let k =
        Keepalive { on: true, idle: Duration::from_secs(10), interval: Duration::from_secs(1), probes: 3 };
    w.ends[0].configure(w.now, |c| c.keepalive = k);
    w.run_for(Duration::from_secs(100));
    assert_eq!(w.states(), [State::Established; 2]);
    w.faults.0 = 100;
    w.run_for(Duration::from_secs(20));
    assert_eq!(w.ends[0].take_error(), Some(TcpError::TimedOut));
}

#[test]
fn nobody_answers_a_syn() {
    let a = Tcb::connect(config(), 1, 2, SeqNum(9), 0, Instant::ZERO);
    let mut w = World::over(Instant::ZERO, a, 1, (100, 0, 0));
    w.run_for(Duration::from_secs(300));
    assert_eq!(w.log.iter().filter(|l| l.0 == 0).count(), 7);
    assert_eq!(w.ends[0].take_error(), Some(TcpError::TimedOut));
}

#[test]
fn a_syn_that_comes_again_is_answered_again_however_often() {
    let now = Instant::from_secs(100);
    let mut a = Tcb::connect(config(), 1000, 80, SeqNum(1), 0, now);
    let mut b = World::new(config(), config(), 1, (0, 0, 0)).ends;
    let syn = parse(a.next_segment(now).unwrap()).header;
    for _ in 0..1000 {
        let header = TcpHeader { seq: b[1].rcv.irs, ..syn.clone() };
        let seg = SegmentIn { header, payload: SkBuff::new(), gso_size: 0, ce: false };
        let _ = b[1].segment_arrives(now, seg, &mut Released::default());
        let answer = parse(b[1].next_segment(now).unwrap());
        assert_eq!(answer.header.flags, TcpFlags::SYN | TcpFlags::ACK);
    }
    assert_eq!(b[1].state(), State::SynReceived);
}

#[test]
fn time_wait_gives_way_to_a_newer_connection() {
    let mut w = World::connected();
    w.ends[0].shutdown_send();
    w.run_for(Duration::from_millis(50));
    w.ends[1].shutdown_send();
    w.run_for(Duration::from_millis(50));
    assert_eq!(w.ends[0].state(), State::TimeWait);
    let mut header =
        TcpHeader { seq: w.ends[0].rcv.nxt + 1000, flags: TcpFlags::SYN, ..TcpHeader::default() };
    header.options.timestamps = Some(wire::tcp::Timestamps { val: w.ends[0].ts.unwrap().recent + 1, ecr: 0 });
    let seg = SegmentIn { header, payload: SkBuff::new(), gso_size: 0, ce: false };
    let o = w.ends[0].segment_arrives(w.now, seg, &mut w.released);
    assert!(o.contains(Outcome::REUSE));
}

#[test]
fn tiny_early_segments_cannot_take_more_memory_than_the_buffer() {
    let mut w = World::connected();
    let (nxt, ack) = (w.ends[1].rcv.nxt, w.ends[1].snd.nxt);
    for i in 0..60_000 {
        let mut header = TcpHeader { seq: nxt + 1 + i, ack, flags: TcpFlags::ACK, ..TcpHeader::default() };
        header.options.timestamps = Some(wire::tcp::Timestamps { val: w.ends[1].ts.unwrap().recent, ecr: 0 });
        let seg = SegmentIn { header, payload: SkBuff::from_slice(b"x"), gso_size: 0, ce: false };
        let _ = w.ends[1].segment_arrives(w.now, seg, &mut w.released);
    }
    assert!(w.ends[1].input.has_holes() && w.ends[1].input.held() <= 2 * 131_072);
}

#[test]
fn arbitrary_segments_never_panic() {
    let mut r = Random(5);
    for seed in 0..200 {
        let mut w =
            if seed % 2 == 0 { World::connected() } else { World::new(config(), config(), 1, (0, 0, 0)) };
        write(&mut w.ends[1], 20_000);
        w.transmit();
        for _ in 0..200 {
            let near = |r: &mut Random, s: SeqNum| match r.below(4) {
                0 => SeqNum(r.below(1 << 32) as u32),
                1 => s,
                _ => s + r.below(40_000) as u32 - 20_000,
            };
            let mut header = TcpHeader {
                seq: near(&mut r, w.ends[1].rcv.nxt),
                ack: near(&mut r, w.ends[1].snd.nxt),
                flags: TcpFlags::from_bits_retain(r.below(256) as u8 | 16) - TcpFlags::RST,
                window: r.below(65_536) as u16,
                urgent: r.below(65_536) as u16,
                ..TcpHeader::default()
            };
            let val = w.ends[1].ts.map_or(0, |t| t.recent);
            header.options.timestamps = Some(wire::tcp::Timestamps { val, ecr: r.below(1 << 32) as u32 });
            let una = w.ends[1].snd.una;
            header.options.sack.push((near(&mut r, una), near(&mut r, una)));
            let payload = SkBuff::from_slice(&vec![1; r.below(3000) as usize]);
            let seg = SegmentIn { header, payload, gso_size: 0, ce: false };
            let _ = w.ends[1].segment_arrives(w.now, seg, &mut w.released);
            w.now += Duration::from_millis(r.below(300));
            let _ = w.ends[1].on_timeout(w.now, &mut w.released);
            (0..100).take_while(|_| w.ends[1].next_segment(w.now).is_some()).count();
            let _ = w.read(1);
        }
    }
}

#[test]
fn an_idle_connection_is_small_and_has_no_timer() {
    let mut w = World::connected();
    write(&mut w.ends[0], 1_000_000);
    for _ in 0..100 {
        w.run_for(Duration::from_millis(50));
        let _ = w.read(1);
    }
    assert_eq!(w.ends[0].queued(), 0);
    assert!(w.ends.iter().all(|e| e.next_timeout().is_none()));
    assert!(size_of::<Tcb>() + size_of::<Config>() <= 1200, "{} {}", size_of::<Tcb>(), size_of::<Config>());
}

#[test]
fn a_cookie_makes_a_connection_that_works() {
    let now = Instant::from_secs(100);
    let listen = Listen::new(config(), [3; 16]);
    let (l, r) = ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:1000".parse().unwrap());
    let mut a = Tcb::connect(config(), 1000, 80, SeqNum(1), 0, now);
    let mut syn = parse(a.next_segment(now).unwrap());
    let v = listen.segment_arrives(now, (l, r), &mut syn, 1460, SeqNum(1), 99, (true, 0));
    let ListenVerdict::Reply(reply) = v else { panic!("{v:?}") };
    let o = a.segment_arrives(now, parse(reply), &mut Released::default());
    assert!(o.contains(Outcome::CONNECTED));
    let mut ack = parse(a.next_segment(now).unwrap());
    let v = listen.segment_arrives(now, (l, r), &mut ack, 1460, SeqNum(1), 99, (true, 0));
    let ListenVerdict::Established(mut b) = v else { panic!("{v:?}") };
    let o = b.segment_arrives(now, ack, &mut Released::default());
    assert!(o.contains(Outcome::CONNECTED));
    let mut w = World::over(now, a, 1, (3, 0, 0));
    w.ends[1] = *b;
    w.transfer(500_000);
}
