//! A bad wire around a good device: loss, repetition, reordering, delay, damage, a rate.
//!
//! # Theory of operation
//! [`Impair`] wraps any device and is one itself. Each direction has its [`Rules`] and its own random
//! numbers from one seed, and reads time only from the clock it was given: with a manual clock a run
//! repeats exactly. A packet gets a departure time when it enters (rate, then delay, then jitter and
//! reordering) and waits in a heap until then. Nothing has a thread: waiting packets move on whenever
//! the stack calls either half, and `wait_fd` becomes readable at the next departure (a timer is part of
//! it), so a stack that sleeps is woken for them.
//!
//! **It holds references.** A packet that waits here still refers to lent memory, as in a traffic shaper:
//! the call completes when it has left. A repeated packet is a clone and counts likewise.
//!
//! **Damage.** Lent memory is not written to: a damaged packet is a private copy. Its checksum is final
//! before the damage, so that the receiver can find it. A packet that stands for several cannot be sent
//! with a wrong checksum; it is lost instead, which is what the receiver would make of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use netdev::{Device, DeviceInfo, DeviceRx, DeviceTx, Xmit};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use skb::{Csum, SkBuff};
use time::{Clock, Duration, Instant};

/// What happens to the packets of one direction. The default changes nothing. Chances are 0.0 to 1.0, per
/// packet handed over (a TSO packet is one).
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Chance to be lost.
    pub loss: f64,
    /// Chance to be sent twice.
    pub duplicate: f64,
    /// Chance to be held back by `reorder_by`, so that later packets overtake.
    pub reorder: f64,
    /// See `reorder`. Default 1 ms.
    pub reorder_by: Duration,
    /// Chance that one bit is flipped.
    pub corrupt: f64,
    /// Added to every packet.
    pub delay: Duration,
    /// Up to this much more, evenly spread; packets may overtake each other.
    pub jitter: Duration,
    /// Bytes per second; 0 (default) is no limit.
    pub rate: u64,
    /// Packets that may wait; more are lost (a router's buffer). Default 1000.
    pub limit: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by: Duration::from_millis(1),
            corrupt: 0.0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: 0,
            limit: 1000,
        }
    }
}

/// Both directions and the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImpairConfig {
    /// What the stack sends.
    pub tx: Rules,
    /// What it receives.
    pub rx: Rules,
    /// Of all random decisions.
    pub seed: u64,
}

/// Counters of one direction.
#[derive(Debug, Default)]
pub struct ImpairStats {
    /// Packets that passed (repetitions included).
    pub passed: AtomicU64,
    /// Lost by chance, or damaged where damage must be loss.
    pub lost: AtomicU64,
    /// Lost because too many waited.
    pub overflowed: AtomicU64,
    /// Sent twice.
    pub duplicated: AtomicU64,
    /// Held back.
    pub reordered: AtomicU64,
    /// Damaged.
    pub corrupted: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A packet and when it leaves; equal times leave in order of arrival.
struct Waiting {
    at: Instant,
    number: u64,
    skb: SkBuff,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for Waiting {}
impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// One direction of the bad wire.
struct Line {
    rules: Rules,
    rng: SmallRng,
    heap: BinaryHeap<Reverse<Waiting>>,
    number: u64,
    /// When the last packet had left, at the given rate.
    free_at: Instant,
    stats: Arc<ImpairStats>,
}

impl Line {
    fn new(rules: Rules, seed: u64, stats: Arc<ImpairStats>) -> Self {
        let rng = SmallRng::seed_from_u64(seed);
        Self { rules, rng, heap: BinaryHeap::new(), number: 0, free_at: Instant::ZERO, stats }
    }

    fn chance(&mut self, p: f64) -> bool {
        p > 0.0 && self.rng.random_bool(p.min(1.0))
    }

    fn enter(&mut self, now: Instant, skb: SkBuff) {
        if self.chance(self.rules.loss) {
            return count(&self.stats.lost);
        }
        let twice = self.chance(self.rules.duplicate);
        let skb = if self.chance(self.rules.corrupt) {
            match self.damaged(&skb) {
                Some(bad) => bad,
                None => return count(&self.stats.lost),
            }
        } else {
            skb
        };
        if twice {
            count(&self.stats.duplicated);
            self.wait(now, skb.clone());
        }
        self.wait(now, skb);
    }

    fn wait(&mut self, now: Instant, skb: SkBuff) {
        if self.heap.len() >= self.rules.limit {
            return count(&self.stats.overflowed);
        }
        let r = self.rules;
        self.free_at = self.free_at.max(now);
        if r.rate > 0 {
            let ns = (skb.len() as u128 * 1_000_000_000 / u128::from(r.rate)).min(u128::from(u64::MAX));
            self.free_at += Duration::from_nanos(ns as u64);
        }
        let mut at = self.free_at + r.delay;
        if !r.jitter.is_zero() {
            at += r.jitter.mul_f64(self.rng.random());
        }
        if self.chance(r.reorder) {
            count(&self.stats.reordered);
            at += r.reorder_by;
        }
        self.number += 1;
        self.heap.push(Reverse(Waiting { at, number: self.number, skb }));
    }

    /// A private copy with one bit flipped behind its final checksum.
    fn damaged(&mut self, skb: &SkBuff) -> Option<SkBuff> {
        if skb.gso.is_some() || skb.is_empty() {
            return None;
        }
        let mut bytes = skb.to_vec();
        if let Csum::Partial { start, offset } = skb.csum {
            let sum = !skb.checksum(start.into(), skb.len().checked_sub(start.into())?);
            let at = usize::from(start) + usize::from(offset);
            // Zero would mean "none" in UDP; all ones is the same number.
            let sum = if sum == 0 { u16::MAX } else { sum };
            bytes.get_mut(at..at + 2)?.copy_from_slice(&sum.to_be_bytes());
        }
        let bit = self.rng.random_range(0..bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        count(&self.stats.corrupted);
        let mut bad = SkBuff::from_slice(&bytes);
        bad.mac_len = skb.mac_len;
        Some(bad)
    }

    fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|w| w.0.at)
    }

    fn pop_due(&mut self, now: Instant) -> Option<SkBuff> {
        self.next_due().filter(|at| *at <= now)?;
        count(&self.stats.passed);
        self.heap.pop().map(|w| w.0.skb)
    }
}

/// The transmitting side, which both halves move on.
struct Sender {
    line: Line,
    inner: Box<dyn DeviceTx>,
    /// What the inner device had no room for.
    stuck: Option<SkBuff>,
    unkicked: bool,
}

impl Sender {
    /// Sends what is due; stops when the inner device is full.
    fn advance(&mut self, now: Instant) {
        while let Some(skb) = self.stuck.take().or_else(|| self.line.pop_due(now)) {
            match self.inner.start_xmit(skb) {
                Xmit::Sent => self.unkicked = true,
                Xmit::Busy(skb) => {
                    self.stuck = Some(skb);
                    break;
                }
                // Lost, as on a wire: nobody is left to tell.
                Xmit::Failed(_) => count(&self.line.stats.lost),
            }
        }
        if std::mem::take(&mut self.unkicked) {
            self.inner.kick();
        }
    }
}

/// A device behind a bad wire.
pub struct Impair {
    inner: Box<dyn Device>,
    config: ImpairConfig,
    clock: Arc<dyn Clock>,
    stats: [Arc<ImpairStats>; 2],
}

impl Impair {
    /// Wraps `inner`; `clock` must be the stack's.
    pub fn new(inner: Box<dyn Device>, config: ImpairConfig, clock: Arc<dyn Clock>) -> Self {
        Self { inner, config, clock, stats: Default::default() }
    }

    /// Counters of what the stack sends and of what it receives; they outlive the device.
    pub fn stats(&self) -> [Arc<ImpairStats>; 2] {
        self.stats.clone()
    }
}

impl core::fmt::Debug for Impair {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Impair").field("inner", &self.inner.info()).field("config", &self.config).finish()
    }
}

impl Device for Impair {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn open(self: Box<Self>) -> (Box<dyn DeviceTx>, Box<dyn DeviceRx>) {
        let (tx, rx) = self.inner.open();
        let [sent, received] = self.stats;
        let seed = self.config.seed;
        let line = Line::new(self.config.tx, seed, sent);
        let sender = Arc::new(Mutex::new(Sender { line, inner: tx, stuck: None, unkicked: false }));
        let alarm = rx.wait_fd().and_then(|fd| Alarm::new(fd).ok());
        let half = ImpairRx {
            // Any other stream than the sender's.
            line: Line::new(self.config.rx, seed ^ 0x9e37_79b9_7f4a_7c15, received),
            inner: rx,
            sender: sender.clone(),
            clock: self.clock.clone(),
            alarm,
            scratch: Vec::new(),
        };
        (Box::new(ImpairTx { sender, clock: self.clock }), Box::new(half))
    }
}

struct ImpairTx {
    sender: Arc<Mutex<Sender>>,
    clock: Arc<dyn Clock>,
}

impl DeviceTx for ImpairTx {
    /// Never busy: what does not fit is lost, as in a router.
    fn start_xmit(&mut self, skb: SkBuff) -> Xmit {
        self.sender.lock().line.enter(self.clock.now(), skb);
        Xmit::Sent
    }

    fn kick(&mut self) {
        self.sender.lock().advance(self.clock.now());
    }

    fn reclaim_tx(&mut self) -> usize {
        let mut sender = self.sender.lock();
        let n = sender.inner.reclaim_tx();
        sender.advance(self.clock.now());
        n
    }
}

struct ImpairRx {
    line: Line,
    inner: Box<dyn DeviceRx>,
    sender: Arc<Mutex<Sender>>,
    clock: Arc<dyn Clock>,
    alarm: Option<Alarm>,
    scratch: Vec<SkBuff>,
}

impl DeviceRx for ImpairRx {
    fn poll_rx(&mut self, budget: usize, out: &mut Vec<SkBuff>) -> usize {
        let now = self.clock.now();
        self.sender.lock().advance(now);
        self.inner.poll_rx(budget, &mut self.scratch);
        for skb in self.scratch.drain(..) {
            self.line.enter(now, skb);
        }
        let before = out.len();
        out.extend(std::iter::from_fn(|| self.line.pop_due(now)).take(budget));
        out.len() - before
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.as_ref().map(|a| a.epoll.as_fd())
    }

    fn arm(&mut self) -> bool {
        let now = self.clock.now();
        let sent_next = {
            let mut sender = self.sender.lock();
            sender.advance(now);
            sender.line.next_due().filter(|_| sender.stuck.is_none())
        };
        let next = [sent_next, self.line.next_due()].into_iter().flatten().min();
        match (next, &self.alarm) {
            (Some(at), _) if at <= now => return false,
            (next, Some(alarm)) => alarm.set(next.map(|at| at - now)),
            (_, None) => {}
        }
        self.inner.arm()
    }

    fn rest(&self) -> Option<Duration> {
        self.inner.rest()
    }
}

/// The inner device's descriptor and a timer, as one descriptor.
struct Alarm {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Alarm {
    fn new(inner: BorrowedFd<'_>) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        epoll::add(&epoll, inner, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        Ok(Self { epoll, timer })
    }

    /// Sets the timer, or stops it. Either makes an alarm that rang silent again.
    fn set(&self, after: Option<Duration>) {
        // Zero would stop it; a nanosecond is as good as now.
        let after = after.map_or(Duration::ZERO, |d| d.max(Duration::from_nanos(1)));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let tv_sec = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec, tv_nsec: after.subsec_nanos().into() };
        // The arguments are valid by construction.
        let _ = timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: zero, it_value },
        );
    }
}

#[cfg(test)]
mod tests;
