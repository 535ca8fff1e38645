//! The switch: it takes packets from devices, loses, delays, repeats and damages them, and delivers copies.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use dev::MemPort;
use rand::Rng;
use rand::rngs::SmallRng;
use stack::skb::{Csum, Frag, SkBuff};
use stack::time::{Duration, Instant};

/// What the network does to packets. Probabilities are per packet.
#[derive(Clone, Debug)]
pub struct Faults {
    /// Lost.
    pub loss: f64,
    /// Delivered twice.
    pub duplicate: f64,
    /// Held back so that later ones overtake it.
    pub reorder: f64,
    /// One bit turned over.
    pub corrupt: f64,
    /// From leaving to arriving.
    pub delay: Duration,
    /// Nobody hears anybody from the first to the second instant.
    pub partition: Option<(Instant, Instant)>,
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Taken from devices.
    pub taken: u64,
    /// Copies made by duplication.
    pub duplicated: u64,
    /// Given to devices.
    pub delivered: u64,
    /// Lost by chance or partition.
    pub lost: u64,
    /// For a station that does not exist.
    pub unknown: u64,
    /// On their way.
    pub pending: u64,
}

struct Flight {
    at: Instant,
    /// Ties are broken by the order of leaving.
    order: u64,
    to: usize,
    /// The sender's packet itself, which holds its memory until it has been read.
    skb: SkBuff,
    corrupt: bool,
}

impl PartialEq for Flight {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Flight {}
impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Flight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

pub(crate) struct Net {
    pub(crate) faults: Faults,
    pub(crate) counts: Counts,
    flights: BinaryHeap<Reverse<Flight>>,
    order: u64,
}

/// The station address of host `n`.
pub(crate) fn mac(n: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, n as u8]
}

impl Net {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, counts: Counts::default(), flights: BinaryHeap::new(), order: 0 }
    }

    /// When the next packet arrives.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.flights.peek().map(|f| f.0.at)
    }

    /// Takes what host `from` has sent. Returns how many packets.
    pub(crate) fn take(&mut self, from: usize, ports: &[MemPort], now: Instant, rng: &mut SmallRng) -> usize {
        let mut n = 0;
        while let Some(skb) = ports[from].pop_tx() {
            n += 1;
            let mut dst = [0; 6];
            skb.copy_bits(0, &mut dst);
            let group = dst[0] & 1 != 0;
            for to in (0..ports.len()).filter(|to| *to != from && (group || dst == mac(*to))) {
                self.launch(to, skb.clone(), now, rng);
            }
            if !group && !(0..ports.len()).any(|to| dst == mac(to)) {
                self.counts.taken += 1;
                self.counts.unknown += 1;
            }
        }
        n
    }

    fn launch(&mut self, to: usize, skb: SkBuff, now: Instant, rng: &mut SmallRng) {
        self.counts.taken += 1;
        let cut = self.faults.partition.is_some_and(|(from, until)| (from..until).contains(&now));
        if cut || rng.random_bool(self.faults.loss) {
            self.counts.lost += 1;
            return;
        }
        if rng.random_bool(self.faults.duplicate) {
            self.counts.duplicated += 1;
            self.send_off(to, skb.clone(), now, rng);
        }
        self.send_off(to, skb, now, rng);
    }

    fn send_off(&mut self, to: usize, skb: SkBuff, now: Instant, rng: &mut SmallRng) {
        let mut at = now + self.faults.delay;
        if rng.random_bool(self.faults.reorder) {
            at += self.faults.delay.mul_f64(rng.random_range(0.1..4.0));
        }
        // A large packet stands for many: damaging one of them would lose one, not all.
        let corrupt = skb.gso.is_none() && rng.random_bool(self.faults.corrupt);
        self.order += 1;
        self.counts.pending += 1;
        self.flights.push(Reverse(Flight { at, order: self.order, to, skb, corrupt }));
    }

    /// Delivers what has arrived by `now`. Packets are read only now: this is the DMA.
    pub(crate) fn deliver(&mut self, ports: &[MemPort], now: Instant, rng: &mut SmallRng) -> usize {
        let mut n = 0;
        while self.flights.peek().is_some_and(|f| f.0.at <= now) {
            let Some(Reverse(flight)) = self.flights.pop() else { break };
            let copy = if flight.corrupt { damaged(&flight.skb, rng) } else { received(&flight.skb) };
            ports[flight.to].push_rx(copy);
            self.counts.delivered += 1;
            self.counts.pending -= 1;
            n += 1;
        }
        n
    }
}

/// What a card with checksum offload makes of a packet.
fn received(skb: &SkBuff) -> SkBuff {
    let mut copy = SkBuff::from_frag(Frag::copied_from(&skb.to_vec()));
    copy.gso = skb.gso;
    copy.csum = match skb.csum {
        Csum::None => Csum::None,
        Csum::Partial { .. } | Csum::Unnecessary => Csum::Unnecessary,
    };
    copy
}

/// The packet with its checksum finished and one bit turned over.
fn damaged(skb: &SkBuff, rng: &mut SmallRng) -> SkBuff {
    let mut bytes = skb.to_vec();
    if let Csum::Partial { start, offset } = skb.csum {
        let (start, at) = (usize::from(start), usize::from(start + offset));
        let sum = skb.checksum(start, skb.len() - start);
        if let Some(field) = bytes.get_mut(at..at + 2) {
            field.copy_from_slice(&(!sum).to_be_bytes());
        }
    }
    // Beyond the link header, which has no checksum here.
    let at = rng.random_range(14.min(bytes.len() - 1)..bytes.len());
    bytes[at] ^= 1 << rng.random_range(0..8);
    SkBuff::from_frag(Frag::copied_from(&bytes))
}
