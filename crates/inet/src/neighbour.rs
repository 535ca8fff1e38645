//! Neighbours: who on the link has an address, and is it still there (RFC 4861, 7.3). IPv4 uses the same
//! states; only the questions are spelled differently (`arp.rs`, `ndisc.rs`).
//!
//! ```text
//!             packet to send                      answer
//!   (none) ──────────────────▶ INCOMPLETE ──────────────────────▶ REACHABLE ◀─┐ answer, or
//!      ▲                        │ 3 questions unanswered            │ 15–45 s  │ confirm()
//!      │◀───────────────────────┘                                   ▼          │
//!      │                                                          STALE ───────┤
//!      │ 3 questions unanswered         5 s            packet sent  │          │
//!      └──────────────────────── PROBE ◀──── DELAY ◀────────────────┘          │
//!                                  └───────────┴───────────────────────────────┘
//! ```
//! Packets are sent in all states but INCOMPLETE, where they wait, a bounded number of them. Linux's FAILED is
//! our absence. This table asks nobody itself: it says whom to ask, and `Inet` does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use skb::SkBuff;
use time::{Duration, Instant};
use wire::ethernet::Mac;

use crate::random::Random;
use crate::{Config, IfIndex};

/// RFC 4861, 10: MAX_MULTICAST_SOLICIT and MAX_UNICAST_SOLICIT.
const MAX_SOLICIT: u8 = 3;
/// RFC 4861, 10: RETRANS_TIMER.
const RETRANS_TIMER: Duration = Duration::from_secs(1);
/// RFC 4861, 10: DELAY_FIRST_PROBE_TIME.
const DELAY_FIRST_PROBE_TIME: Duration = Duration::from_secs(5);
/// RFC 4861, 10: REACHABLE_TIME, before it is varied.
const REACHABLE_TIME: Duration = Duration::from_secs(30);

/// An address on a link.
pub(crate) type Key = (IfIndex, IpAddr);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Being asked for; how often so far.
    Incomplete(u8),
    /// Known to be there until then.
    Reachable(Instant),
    /// It was there once.
    Stale,
    /// A packet was sent; perhaps the transport will confirm before we ask.
    Delay,
    /// Being asked by name; how often so far.
    Probe(u8),
}

/// A packet that waits, from its IP header on, and where it finally goes.
#[derive(Debug)]
struct Waiting {
    dst: IpAddr,
    skb: SkBuff,
}

#[derive(Debug)]
struct Neighbour {
    state: State,
    mac: Mac,
    timer: Option<Instant>,
    /// When it was last sent to or heard of; the longest unused goes first.
    used: Instant,
    queue: VecDeque<Waiting>,
    queued_bytes: usize,
}

/// What a packet for a neighbour meets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Its link-layer address, good until then.
    Known(Mac, Instant),
    /// It is being asked for. `first`: nobody has asked yet; ask now.
    Asked {
        /// Whether the caller is to ask.
        first: bool,
    },
    /// There is no room to remember another one.
    Full,
}

/// Somebody to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Solicit {
    pub(crate) key: Key,
    /// Ask this station alone; `None`: ask all.
    pub(crate) mac: Option<Mac>,
    /// Source of the packet that wants to go there, if known: preferred for the question.
    pub(crate) src: Option<IpAddr>,
}

/// What a message says about its sender's link-layer address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It asked for somebody and gave its own address.
    Solicitation,
    /// It told its address.
    Advertisement {
        /// In answer to a question.
        solicited: bool,
        /// In place of what was known.
        overrides: bool,
    },
}

/// What hearing from a neighbour leads to.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Learned {
    /// Packets that waited, from their IP header on.
    pub(crate) released: Vec<SkBuff>,
    /// A link-layer address that may be in use has changed.
    pub(crate) changed: bool,
}

/// What the passing of time leads to.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Expired {
    pub(crate) solicit: Vec<Solicit>,
    /// Final destinations of packets that were given up, each once.
    pub(crate) unreachable: Vec<IpAddr>,
    /// Packets given up.
    pub(crate) dropped: u64,
    /// A neighbour that may be in use is no more.
    pub(crate) forgotten: bool,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Neighbours {
    entries: BTreeMap<Key, Neighbour>,
    timers: BTreeSet<(Instant, Key)>,
    limit: usize,
    queue_packets: usize,
    queue_bytes: usize,
}

impl Neighbours {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            entries: BTreeMap::new(),
            timers: BTreeSet::new(),
            limit: config.neighbours.max(1),
            queue_packets: config.neighbour_queue_packets.max(1),
            queue_bytes: config.neighbour_queue_bytes,
        }
    }

    /// A packet is about to be sent to a neighbour.
    pub(crate) fn lookup(&mut self, now: Instant, key: Key) -> Lookup {
        let Some(n) = self.entries.get_mut(&key) else {
            if !self.insert(now, key, State::Incomplete(1), [0; 6]) {
                return Lookup::Full;
            }
            self.set_timer(key, Some(now + RETRANS_TIMER));
            return Lookup::Asked { first: true };
        };
        n.used = now;
        match n.state {
            State::Incomplete(_) => Lookup::Asked { first: false },
            State::Reachable(until) if now < until => Lookup::Known(n.mac, until),
            State::Reachable(_) | State::Stale => {
                n.state = State::Delay;
                let (mac, probe) = (n.mac, now + DELAY_FIRST_PROBE_TIME);
                self.set_timer(key, Some(probe));
                Lookup::Known(mac, probe)
            }
            State::Delay | State::Probe(_) => {
                let until = n.timer.unwrap_or(now).max(now + Duration::from_nanos(1));
                Lookup::Known(n.mac, until)
            }
        }
    }

    /// Keeps a packet until its neighbour answers. Returns how many older ones made room. A packet for a
    /// neighbour that is not being asked for comes back.
    pub(crate) fn enqueue(&mut self, key: Key, dst: IpAddr, skb: SkBuff) -> Result<u64, SkBuff> {
        let n = match self.entries.get_mut(&key) {
            Some(n) if matches!(n.state, State::Incomplete(_)) => n,
            _ => return Err(skb),
        };
        let mut dropped = 0;
        n.queued_bytes += skb.truesize();
        n.queue.push_back(Waiting { dst, skb });
        //= rfc4861#section-7.2.2
        //# When the queue overflows, the new arrival SHOULD replace the oldest entry.
        while n.queue.len() > 1 && (n.queue.len() > self.queue_packets || n.queued_bytes > self.queue_bytes) {
            if let Some(oldest) = n.queue.pop_front() {
                n.queued_bytes -= oldest.skb.truesize();
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    /// A message gave a neighbour's link-layer address. `create`: remember it even if nobody asked.
    pub(crate) fn heard(
        &mut self,
        now: Instant,
        key: Key,
        mac: Option<Mac>,
        how: Heard,
        create: bool,
        random: &mut Random,
    ) -> Learned {
        let Some(n) = self.entries.get_mut(&key) else {
            if let (Heard::Solicitation, Some(mac), true) = (how, mac, create) {
                self.insert(now, key, State::Stale, mac);
            }
            return Learned::default();
        };
        let reachable = State::Reachable(now + random.around(REACHABLE_TIME));
        if matches!(n.state, State::Incomplete(_)) {
            let Some(mac) = mac else { return Learned::default() };
            n.mac = mac;
            n.used = now;
            n.queued_bytes = 0;
            let released = std::mem::take(&mut n.queue).into_iter().map(|w| w.skb).collect();
            let solicited = matches!(how, Heard::Advertisement { solicited: true, .. });
            n.state = if solicited { reachable } else { State::Stale };
            self.set_timer(key, None);
            // Nobody can have cached what was not known.
            return Learned { released, changed: false };
        }
        let differs = mac.is_some_and(|mac| mac != n.mac);
        let before = n.state;
        let (take, state) = match how {
            // RFC 4861, 7.2.3.
            Heard::Solicitation if differs => (true, State::Stale),
            Heard::Solicitation => (false, before),
            // RFC 4861, 7.2.5: without the override flag another address is not taken, but doubted.
            Heard::Advertisement { overrides: false, .. } if differs => match before {
                State::Reachable(_) => (false, State::Stale),
                _ => (false, before),
            },
            Heard::Advertisement { solicited: true, .. } => (true, reachable),
            Heard::Advertisement { solicited: false, .. } if differs => (true, State::Stale),
            Heard::Advertisement { solicited: false, .. } => (false, before),
        };
        if let (true, Some(mac)) = (take, mac) {
            n.mac = mac;
        }
        n.state = state;
        if !matches!(state, State::Delay | State::Probe(_)) {
            self.set_timer(key, None);
        }
        Learned {
            released: Vec::new(),
            changed: (take && differs) || (state != before && state == State::Stale),
        }
    }

    /// Whether a question to this neighbour is open.
    pub(crate) fn is_asked(&self, key: Key) -> bool {
        let asked = |n: &Neighbour| matches!(n.state, State::Incomplete(_) | State::Probe(_));
        self.entries.get(&key).is_some_and(asked)
    }

    /// A transport heard from somebody through this neighbour (RFC 4861, 7.3.3).
    pub(crate) fn confirm(&mut self, now: Instant, key: Key, random: &mut Random) {
        let Some(n) = self.entries.get_mut(&key) else { return };
        if matches!(n.state, State::Incomplete(_)) {
            return;
        }
        n.state = State::Reachable(now + random.around(REACHABLE_TIME));
        n.used = now;
        self.set_timer(key, None);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Handles the timers that are due.
    pub(crate) fn expire(&mut self, now: Instant) -> Expired {
        let mut expired = Expired::default();
        while let Some((at, key)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, key));
            let Some(n) = self.entries.get_mut(&key) else { continue };
            n.timer = None;
            let (state, mac) = match n.state {
                State::Incomplete(asked) if asked < MAX_SOLICIT => (State::Incomplete(asked + 1), None),
                State::Delay => (State::Probe(1), Some(n.mac)),
                State::Probe(asked) if asked < MAX_SOLICIT => (State::Probe(asked + 1), Some(n.mac)),
                State::Incomplete(_) | State::Probe(_) => {
                    self.give_up(key, &mut expired);
                    continue;
                }
                // These have no timer.
                State::Reachable(_) | State::Stale => continue,
            };
            n.state = state;
            expired.solicit.push(Solicit { key, mac, src: None });
            self.set_timer(key, Some(now + RETRANS_TIMER));
        }
        expired
    }

    fn give_up(&mut self, key: Key, expired: &mut Expired) {
        let Some(n) = self.entries.remove(&key) else { return };
        expired.forgotten |= matches!(n.state, State::Probe(_));
        expired.dropped += n.queue.len() as u64;
        for waiting in n.queue {
            if !expired.unreachable.contains(&waiting.dst) {
                expired.unreachable.push(waiting.dst);
            }
        }
    }

    pub(crate) fn remove_interface(&mut self, index: IfIndex) {
        self.entries.retain(|(i, _), _| *i != index);
        self.timers.retain(|(_, (i, _))| *i != index);
    }

    fn set_timer(&mut self, key: Key, at: Option<Instant>) {
        let Some(n) = self.entries.get_mut(&key) else { return };
        if let Some(old) = n.timer.take() {
            self.timers.remove(&(old, key));
        }
        n.timer = at;
        self.timers.extend(at.map(|at| (at, key)));
    }

    /// Adds a neighbour; false if all others are in use.
    fn insert(&mut self, now: Instant, key: Key, state: State, mac: Mac) -> bool {
        if self.entries.len() >= self.limit && !self.evict() {
            return false;
        }
        let queue = VecDeque::new();
        self.entries.insert(key, Neighbour { state, mac, timer: None, used: now, queue, queued_bytes: 0 });
        true
    }

    /// Forgets the neighbour that has been of no use for longest, stale ones first; not one that is being asked. A
    /// cached `Dst` to it stays right.
    fn evict(&mut self) -> bool {
        let idle = |(_, n): &(&Key, &Neighbour)| matches!(n.state, State::Stale | State::Reachable(_));
        let worth = |n: &Neighbour| (matches!(n.state, State::Reachable(_)), n.used);
        let oldest = self.entries.iter().filter(idle).min_by_key(|(_, n)| worth(n)).map(|(k, _)| *k);
        let Some(key) = oldest else { return false };
        self.set_timer(key, None);
        self.entries.remove(&key).is_some()
    }
}
