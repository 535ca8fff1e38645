//! Two stacks polled by hand on a clock set by hand, and the wire between them, which is the test.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses a part of it")]

pub mod borrowed;
pub mod duo;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use stack::skb::{Csum, Frag, SkBuff};
use uncopied::mem::{MemConfig, MemDevice, MemPort};
use uncopied::{
    Builder, Clock, Completion, Config, Features, Instant, ManualClock, Stack, TcpListener, TcpStream, mem,
};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

/// The two ends' addresses.
pub const A: [u8; 4] = [10, 0, 0, 1];
pub const B: [u8; 4] = [10, 0, 0, 2];

/// Two stacks, `a` and `b`, and the devices behind them.
pub struct Pair {
    pub clock: Arc<ManualClock>,
    pub a: Stack,
    pub b: Stack,
    pub at_a: MemPort,
    pub at_b: MemPort,
    /// Packets of `a` that have arrived but are still in the device's ring.
    pub ring: Vec<SkBuff>,
    /// Whether packets of `a` stay in the ring.
    pub hold: bool,
}

/// A stack on a memory device at `address`.
pub fn stack_at(
    address: [u8; 4],
    features: Features,
    clock: &Arc<ManualClock>,
    configure: impl FnOnce(&mut Config),
) -> (Stack, MemPort) {
    let (device, port): (MemDevice, MemPort) = mem::pair(MemConfig { features, ..MemConfig::default() });
    let clock: Arc<dyn Clock> = clock.clone();
    let builder: Builder = Stack::builder().device(device, &[(address.into(), 24)]).clock(clock);
    let stack = builder
        .configure(|c| {
            c.seed = [7; 16];
            c.memlock = u64::MAX;
        })
        .configure(configure)
        .build()
        .unwrap();
    (stack, port)
}

impl Pair {
    /// Both with every offload and default limits.
    pub fn new() -> Self {
        Self::with(Features::all(), |_| {})
    }

    /// `a`'s device has `features`, and its limits are changed by `configure`.
    pub fn with(features: Features, configure: impl FnOnce(&mut Config)) -> Self {
        let clock = Arc::new(ManualClock::new(Instant::from_secs(1000)));
        let (a, at_a) = stack_at(A, features, &clock, configure);
        let (b, at_b) = stack_at(B, Features::all(), &clock, |_| {});
        Self { clock, a, b, at_a, at_b, ring: Vec::new(), hold: false }
    }

    /// Runs `a` until it has nothing to do. Its packets stay in its device.
    pub fn poll_a(&self) {
        self.a.poll_all(self.clock.now());
    }

    pub fn poll_b(&self) {
        self.b.poll_all(self.clock.now());
    }

    /// Moves packets and runs both stacks until nothing moves, at one moment.
    pub fn pump(&mut self) {
        loop {
            self.poll_a();
            self.poll_b();
            let mut moved = 0;
            while let Some(skb) = self.at_a.pop_tx() {
                self.at_b.push_rx(arriving(&skb));
                moved += 1;
                if self.hold {
                    self.ring.push(skb);
                }
            }
            while let Some(skb) = self.at_b.pop_tx() {
                self.at_a.push_rx(arriving(&skb));
                moved += 1;
            }
            if moved == 0 {
                return;
            }
        }
    }

    /// Lets time pass in steps, with packets moving at each.
    pub fn run(&mut self, time: Duration) {
        let step = Duration::from_millis(20);
        let mut left = time;
        while !left.is_zero() {
            let now = left.min(step);
            self.clock.advance(now);
            left -= now;
            self.pump();
        }
    }

    /// A listener of `b` and a connection from `a` to it: (a's end, b's end, listener).
    pub fn connect(&mut self) -> (TcpStream, TcpStream, TcpListener) {
        let listener = TcpListener::bind(&self.b, SocketAddr::from((B, 80))).unwrap();
        let mut tx = TcpStream::begin_connect(&self.a, listener.local_addr()).unwrap();
        tx.set_nonblocking(true);
        self.pump();
        assert!(tx.take_error().is_none());
        let (mut rx, _) = listener.try_accept().unwrap();
        rx.set_nonblocking(true);
        (tx, rx, listener)
    }
}

/// The packet as the other end's device delivers it: nothing in it is shared.
pub fn arriving(skb: &SkBuff) -> SkBuff {
    let mut new = SkBuff::from_frag(Frag::from_bytes(skb.to_vec().into()));
    new.gso = skb.gso;
    new.csum = if matches!(skb.csum, Csum::Partial { .. }) { Csum::Unnecessary } else { Csum::None };
    new
}

/// Everything that can be received now.
pub fn drain(rx: &TcpStream) -> Vec<u8> {
    let mut out = Vec::new();
    let mut buf = vec![0; 256 * 1024];
    loop {
        match rx.recv(&mut buf) {
            Ok(0) | Err(_) => return out,
            Ok(n) => out.extend_from_slice(&buf[..n]),
        }
    }
}

/// All completions that wait.
pub fn completions(tx: &TcpStream) -> Vec<Completion> {
    std::iter::from_fn(|| tx.completion()).collect()
}

/// The numbers of all completions that wait, in the order told.
pub fn completed_ids(tx: &TcpStream) -> Vec<u32> {
    completions(tx).iter().flat_map(|c| c.ids()).collect()
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ (n as u8)).collect()
}

/// Fields of a TCP segment in a bare IPv4 packet without IP options.
#[derive(Clone, Copy, Debug)]
pub struct Seg {
    pub sport: u16,
    pub dport: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    /// Bytes of payload.
    pub payload: usize,
}

/// Reads the headers of a packet.
pub fn seg(skb: &SkBuff) -> Seg {
    let mut h = [0; 40];
    assert!(skb.copy_bits(0, &mut h));
    let u16at = |n: usize| u16::from_be_bytes([h[n], h[n + 1]]);
    let u32at = |n: usize| u32::from_be_bytes([h[n], h[n + 1], h[n + 2], h[n + 3]]);
    Seg {
        sport: u16at(20),
        dport: u16at(22),
        seq: u32at(24),
        ack: u32at(28),
        flags: h[33],
        window: u16at(34),
        payload: skb.len() - 20 - usize::from(h[32] >> 4) * 4,
    }
}

/// A packet made by hand, without payload; what the device says of its checksum is that it is right.
pub fn forge(src: [u8; 4], dst: [u8; 4], s: Seg) -> SkBuff {
    let mut p = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    p.extend_from_slice(&src);
    p.extend_from_slice(&dst);
    let sum: u32 = p.chunks_exact(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    p.extend_from_slice(&s.sport.to_be_bytes());
    p.extend_from_slice(&s.dport.to_be_bytes());
    p.extend_from_slice(&s.seq.to_be_bytes());
    p.extend_from_slice(&s.ack.to_be_bytes());
    p.extend_from_slice(&[0x50, s.flags]);
    p.extend_from_slice(&s.window.to_be_bytes());
    p.extend_from_slice(&[0; 4]);
    let mut skb = SkBuff::from_slice(&p);
    skb.csum = Csum::Unnecessary;
    skb
}

/// The same packet with another acknowledgment number.
pub fn with_ack(skb: &SkBuff, ack: u32) -> SkBuff {
    let mut bytes = skb.to_vec();
    bytes[28..32].copy_from_slice(&ack.to_be_bytes());
    let mut new = SkBuff::from_slice(&bytes);
    new.csum = Csum::Unnecessary;
    new
}

/// A buffer that counts when it is given back.
pub struct Owned {
    bytes: Vec<u8>,
    back: Arc<std::sync::atomic::AtomicUsize>,
}

impl Owned {
    /// A buffer to lend, and the count of buffers given back through it.
    pub fn lend(bytes: Vec<u8>) -> (uncopied::Lent, Arc<std::sync::atomic::AtomicUsize>) {
        let back = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        (uncopied::Lent::from_owner(Owned { bytes, back: back.clone() }), back)
    }
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.back.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

/// An IPv4 packet around `payload`, with right checksums for ICMP.
pub fn ipv4(proto: u8, src: [u8; 4], dst: [u8; 4], payload: &[u8]) -> SkBuff {
    let sum = |bytes: &[u8]| {
        let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w.get(1).copied().unwrap_or(0)));
        let total: u32 = words.sum();
        let total = (total & 0xffff) + (total >> 16);
        !((total & 0xffff) + (total >> 16)) as u16
    };
    let mut p = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, proto, 0, 0];
    p.extend_from_slice(&src);
    p.extend_from_slice(&dst);
    p[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
    let header = sum(&p);
    p[10..12].copy_from_slice(&header.to_be_bytes());
    p.extend_from_slice(payload);
    if proto == 1 {
        let check = sum(payload);
        p[22..24].copy_from_slice(&check.to_be_bytes());
    }
    SkBuff::from_slice(&p)
}
