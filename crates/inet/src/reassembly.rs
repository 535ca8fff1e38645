//! Fragments become datagrams (RFC 791, 815; RFC 8200, 4.5).
//!
//! Fragments are copied when they arrive, so that a small one cannot hold a large receive page. Everything
//! kept is charged against one limit; when it is reached, the oldest datagram goes. A datagram whose
//! fragments overlap or contradict each other is forgotten whole, in IPv4 too (as in Linux since 4.18):
//! honest senders produce none (RFC 5722, RFC 8200, 4.5).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use netdev::DropReason;
use skb::{Frag, SkBuff};
use time::{Duration, Instant};
use wire::ipv6::{self, Chain};

use crate::Config;
use crate::verdict::Delivered;

/// Longest datagram, without the IPv4 or fixed IPv6 header.
const MAX_PAYLOAD: usize = 65_535;
/// Fragments of one datagram. Paths of 552 bytes, the smallest we believe in, need 124.
const MAX_PIECES: usize = 192;
/// What a piece costs beyond its bytes.
const OVERHEAD: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    src: IpAddr,
    dst: IpAddr,
    /// IPv4 only: IPv6 identifies by addresses alone.
    proto: u8,
    ident: u32,
}

/// Where a fragment belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) ident: u32,
    /// In bytes.
    pub(crate) offset: u16,
    pub(crate) more: bool,
    /// What the datagram begins with, if this is its first fragment.
    pub(crate) proto: u8,
}

/// What a fragment led to.
#[derive(Debug)]
#[must_use]
pub(crate) enum Inserted {
    /// Others are missing.
    Kept,
    /// The datagram, with the first fragment's header fields.
    Complete(Box<Delivered>),
    /// It was dropped, and perhaps its datagram too.
    Refused(DropReason),
}

#[derive(Debug)]
struct Datagram {
    /// Sorted by offset, without overlap.
    pieces: Vec<(usize, Vec<u8>)>,
    /// The beginning of the first fragment, which an ICMP error quotes.
    first: Option<Delivered>,
    /// Its length, once the last fragment is here.
    total: Option<usize>,
    received: usize,
    charged: usize,
    /// Some fragment met congestion (RFC 3168, 5.3).
    congestion: bool,
    deadline: Instant,
}

/// All datagrams that are not complete.
#[derive(Debug)]
pub(crate) struct Reassembly {
    datagrams: BTreeMap<Key, Datagram>,
    /// In order of age, since all wait equally long.
    deadlines: BTreeSet<(Instant, Key)>,
    charged: usize,
    limit: usize,
    timeout: Duration,
    /// Datagrams given up for want of room, to be counted.
    pub(crate) evicted: u64,
}

impl Reassembly {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            datagrams: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            charged: 0,
            limit: config.reassembly_bytes,
            timeout: config.reassembly_timeout,
            evicted: 0,
        }
    }

    /// Adds a fragment; `d.skb` is its part of the datagram.
    pub(crate) fn insert(&mut self, now: Instant, d: Delivered, place: Place) -> Inserted {
        let (start, len) = (usize::from(place.offset), d.skb.len());
        // RFC 8200, 4.5; and a fragment of nothing would never complete anything.
        if (place.more && len % 8 != 0) || len == 0 || start + len > MAX_PAYLOAD {
            return Inserted::Refused(DropReason::BadFragment);
        }
        let key = Key {
            src: d.src,
            dst: d.dst,
            proto: if d.src.is_ipv4() { d.proto } else { 0 },
            ident: place.ident,
        };
        let charge = len + OVERHEAD;
        self.make_room(charge, key);
        if self.charged + charge > self.limit {
            return Inserted::Refused(DropReason::ReassemblyFull);
        }
        let deadline = now + self.timeout;
        let datagram = self.datagrams.entry(key).or_insert_with(|| {
            self.deadlines.insert((deadline, key));
            Datagram::new(deadline)
        });
        match datagram.insert(d, place) {
            Ok(true) => {}
            // A copy of what is here already: not an overlap, and not needed.
            Ok(false) => return Inserted::Kept,
            Err(reason) => {
                self.remove(key);
                return Inserted::Refused(reason);
            }
        }
        datagram.charged += charge;
        self.charged += charge;
        if datagram.total != Some(datagram.received) {
            return Inserted::Kept;
        }
        match self.remove(key).and_then(Datagram::assemble) {
            Some(whole) => Inserted::Complete(Box::new(whole)),
            None => Inserted::Refused(DropReason::BadFragment),
        }
    }

    /// Forgets the oldest datagrams until `charge` more bytes fit, but not the one they are for.
    fn make_room(&mut self, charge: usize, not: Key) {
        while self.charged + charge > self.limit {
            let Some(oldest) = self.deadlines.iter().map(|(_, k)| *k).find(|k| *k != not) else { return };
            self.remove(oldest);
            self.evicted += 1;
        }
    }

    fn remove(&mut self, key: Key) -> Option<Datagram> {
        let datagram = self.datagrams.remove(&key)?;
        self.deadlines.remove(&(datagram.deadline, key));
        self.charged -= datagram.charged;
        Some(datagram)
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Forgets the datagrams that were waited for long enough; what there is of their first fragments.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Option<Delivered>> {
        let mut overdue = Vec::new();
        while let Some((_, key)) = self.deadlines.first().copied().filter(|(at, _)| *at <= now) {
            overdue.extend(self.remove(key).map(|d| d.first));
        }
        overdue
    }
}

impl Datagram {
    fn new(deadline: Instant) -> Self {
        Self {
            pieces: Vec::new(),
            first: None,
            total: None,
            received: 0,
            charged: 0,
            congestion: false,
            deadline,
        }
    }

    /// Adds a piece; false if it is a copy of one that is here.
    fn insert(&mut self, d: Delivered, place: Place) -> Result<bool, DropReason> {
        let bytes = d.skb.to_vec();
        let (start, end) = (usize::from(place.offset), usize::from(place.offset) + bytes.len());
        let at = self.pieces.partition_point(|(o, _)| *o < start);
        if self.pieces.get(at).is_some_and(|(o, b)| *o == start && *b == bytes) {
            return Ok(false);
        }
        //= rfc8200#section-4.5
        //# If any of the fragments being reassembled overlap with any other fragments being
        //# reassembled for the same packet, reassembly of that packet must be abandoned
        let overlaps_next = self.pieces.get(at).is_some_and(|(o, _)| *o < end);
        let before = at.checked_sub(1).and_then(|i| self.pieces.get(i));
        let overlaps_before = before.is_some_and(|(o, b)| o + b.len() > start);
        let last = self.pieces.last().map_or(0, |(o, b)| o + b.len());
        let beyond = match (self.total, place.more) {
            (Some(total), true) => end > total,
            (Some(total), false) => end != total,
            (None, false) => last > end,
            (None, true) => false,
        };
        if overlaps_next || overlaps_before || beyond || self.pieces.len() >= MAX_PIECES {
            return Err(DropReason::BadFragment);
        }
        if start == 0 {
            // The first fragment has all headers up to the transport's (RFC 7112).
            if !d.src.is_ipv4() && !matches!(ipv6::walk(place.proto, &bytes), Ok(Chain::Upper { .. })) {
                return Err(DropReason::BadFragment);
            }
        }
        self.total = self.total.or((!place.more).then_some(end));
        self.received += bytes.len();
        self.congestion |= d.tos & ECN == ECN;
        if start == 0 {
            let quote = bytes.get(..QUOTE).unwrap_or(&bytes);
            let skb = SkBuff::from_slice(quote);
            self.first = Some(Delivered { skb, proto: place.proto, ..d });
        }
        self.pieces.insert(at, (start, bytes));
        Ok(true)
    }

    fn assemble(self) -> Option<Delivered> {
        let mut d = self.first?;
        let mut bytes = Vec::with_capacity(self.received);
        for (_, piece) in self.pieces {
            bytes.extend(piece);
        }
        d.skb = SkBuff::from_frag(Frag::from_bytes(bytes.into()));
        d.tos |= if self.congestion { ECN } else { 0 };
        Some(d)
    }
}

/// The ECN field, which is all ones where congestion was met.
const ECN: u8 = 3;
/// Bytes of a first fragment that an ICMP error quotes.
const QUOTE: usize = 64;
