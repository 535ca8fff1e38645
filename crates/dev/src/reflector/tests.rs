use super::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const OPTIONS: [u8; 20] = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 77, 0, 0, 0, 0, 1, 3, 3, 7];
const STAMP: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 99, 0, 0, 0, 77];

struct Bench {
    tx: Box<dyn DeviceTx>,
    rx: Box<dyn DeviceRx>,
    us: IpAddr,
    them: IpAddr,
}

impl Bench {
    fn new(us: &str, them: &str) -> Self {
        Self::with(us, them, ReflectorConfig::default())
    }

    fn with(us: &str, them: &str, config: ReflectorConfig) -> Self {
        let (tx, rx) = Box::new(Reflector::new(config)).open();
        Self { tx, rx, us: us.parse().unwrap(), them: them.parse().unwrap() }
    }

    fn is_signalled(&self) -> bool {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let fd = self.rx.wait_fd().unwrap();
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&zero)) == Ok(1)
    }

    fn send(&mut self, flags: u8, seq: u32, ack: u32, options: &[u8], payload: usize) {
        let t = Tcp { src_port: 5, dst_port: 80, seq, ack, flags, window: 1000, header: 0 };
        let mut b = Build::new();
        b.ip(self.us, self.them, 20 + options.len()).tcp(&t, options);
        let mut skb = SkBuff::new();
        skb.put(b.bytes()).unwrap();
        skb.add_frag(skb::Frag::copied_from(&vec![0; payload])).unwrap();
        assert!(matches!(self.tx.start_xmit(skb), Xmit::Sent));
    }

    fn replies(&mut self) -> Vec<(Tcp, Options)> {
        self.tx.kick();
        let mut got = Vec::new();
        self.rx.poll_rx(100, &mut got);
        let parse = |skb: &SkBuff| {
            let b = skb.to_vec();
            let ip = Ip::parse(&b).unwrap();
            assert_eq!((ip.src, ip.dst), (self.them, self.us));
            (Tcp::parse(&ip, &b).unwrap(), Options::parse(&b[ip.header + 20..]))
        };
        got.iter().map(parse).collect()
    }
}

#[test]
fn a_handshake_agrees_to_what_was_asked() {
    for (us, them) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let mut b = Bench::new(us, them);
        b.send(SYN, u32::MAX, 0, &OPTIONS, 0);
        let r = b.replies();
        let (t, o) = r[0];
        assert_eq!((t.flags, t.ack, t.src_port, t.dst_port), (SYN | ACK, 0, 80, 5));
        assert_eq!((o.wscale, o.sack, o.timestamp), (Some(WSCALE), true, Some(77)));
        assert_eq!(o.mss, Some(if b.us.is_ipv4() { 1460 } else { 1440 }));
        b.send(ACK, 0, t.seq.wrapping_add(1), &STAMP, 0);
        assert!(b.replies().is_empty(), "nothing to acknowledge");
    }
}

#[test]
fn a_burst_is_acknowledged_once_and_a_long_one_before_its_end() {
    let mut b = Bench::new("10.0.0.1", "10.0.0.2");
    b.send(SYN, 999, 0, &OPTIONS, 0);
    b.replies();
    for i in 0..3 {
        b.send(ACK, 1000 + i * 60000, 1, &STAMP, 60000);
    }
    let r = b.replies();
    assert_eq!(r.len(), 1);
    assert_eq!((r[0].0.ack, r[0].0.flags, r[0].1.timestamp), (181_000, ACK, Some(99)));
    for i in 3..9 {
        b.send(ACK, 1000 + i * 60000, 1, &STAMP, 60000);
    }
    let acks: Vec<u32> = b.replies().iter().map(|(t, _)| t.ack).collect();
    assert_eq!(acks, [1000 + 8 * 60000, 1000 + 9 * 60000]);
}

#[test]
fn a_plain_peer_gets_plain_answers_and_a_fin_gets_a_fin() {
    let mut b = Bench::new("10.0.0.1", "10.0.0.2");
    b.send(SYN, 0, 0, &[], 0);
    let (t, o) = b.replies()[0];
    assert_eq!((o.wscale, o.sack, o.timestamp), (None, false, None));
    b.send(ACK | FIN, 1, t.seq + 1, &[], 10);
    let r = b.replies();
    assert_eq!(r.len(), 1);
    assert_eq!((r[0].0.flags, r[0].0.ack, r[0].0.seq), (FIN | ACK, 12, t.seq + 1));
    b.send(ACK | FIN, 1, t.seq + 1, &[], 10);
    assert_eq!(b.replies()[0].0.seq, t.seq + 1, "a repeated FIN gets the same answer");
    b.send(ACK, 12, t.seq + 2, &[], 0);
    b.send(ACK, 12, t.seq + 2, &[], 100);
    assert!(b.replies().is_empty(), "the flow is gone");
}

#[test]
fn it_wakes_only_for_something() {
    let mut b = Bench::new("10.0.0.1", "10.0.0.2");
    assert!(b.rx.arm());
    b.tx.kick();
    assert!(b.rx.arm());
    b.send(SYN, 0, 0, &[], 0);
    b.tx.kick();
    assert!(!b.rx.arm());
}

#[test]
fn garbage_is_swallowed() {
    let mut b = Bench::new("10.0.0.1", "10.0.0.2");
    for bytes in [&[][..], &[0x45], &[0x45; 20], &[0x60; 39], &[0x4f; 50], &[0xff; 100]] {
        assert!(matches!(b.tx.start_xmit(SkBuff::from_slice(bytes)), Xmit::Sent));
    }
    assert!(b.replies().is_empty());
}

/// Otherwise every answer to it is an old duplicate (RFC 7323, 5.3), for ever.
#[test]
fn a_segment_sent_again_brings_its_timestamp_and_an_older_one_does_not() {
    let mut b = Bench::new("10.0.0.1", "10.0.0.2");
    b.send(SYN, 999, 0, &OPTIONS, 0);
    b.replies();
    let stamp = |val: u8| {
        let mut o = STAMP;
        o[7] = val;
        o
    };
    let mut answered = |seq: u32, val: u8| {
        b.send(ACK, seq, 1, &stamp(val), 100);
        b.replies()[0].1.timestamp
    };
    assert_eq!(answered(1000, 99), Some(99));
    assert_eq!(answered(1100, 98), Some(99), "a clock does not go back");
    assert_eq!(answered(1000, 120), Some(120), "nothing new but the time");
}

#[test]
fn bursts_between_two_looks_share_an_acknowledgment() {
    let mut b = Bench::new("10.0.0.1", "10.0.0.2");
    b.send(SYN, 999, 0, &OPTIONS, 0);
    b.replies();
    for i in 0..3 {
        b.send(ACK, 1000 + i * 100, 1, &STAMP, 100);
        b.tx.kick();
    }
    let acks: Vec<u32> = b.replies().iter().map(|(t, _)| t.ack).collect();
    assert_eq!(acks, [1300]);
}

#[test]
fn acknowledgments_gather_while_the_receiver_rests_and_the_end_of_a_connection_does_not() {
    let delay = Duration::from_micros(20);
    let config = ReflectorConfig { ack_delay: delay, ..ReflectorConfig::default() };
    let mut b = Bench::with("10.0.0.1", "10.0.0.2", config);
    b.send(SYN, 999, 0, &OPTIONS, 0);
    assert_eq!(b.replies().len(), 1);
    assert!(b.rx.arm(), "nothing more");
    assert_eq!(b.rx.rest(), Some(delay), "but soon to come");
    b.send(ACK, 1000, 1, &STAMP, 100);
    b.tx.kick();
    assert!(!b.is_signalled(), "it gathers");
    assert_eq!(b.replies().len(), 1, "after the rest");
    b.send(ACK, 1100, 1, &STAMP, 100);
    assert!(b.replies().is_empty(), "one look per rest");
    assert!(b.rx.arm());
    b.send(ACK | FIN, 1200, 1, &STAMP, 100);
    b.tx.kick();
    assert!(b.is_signalled());
    assert_eq!(b.replies().len(), 1);
    assert!(b.rx.arm(), "a rest, as something came");
    assert!(b.rx.arm(), "and a sleep, as nothing did");
    assert_eq!(b.rx.rest(), None);
    b.send(ACK | FIN, 1200, 1, &STAMP, 100);
    b.tx.kick();
    assert!(b.is_signalled());
}
