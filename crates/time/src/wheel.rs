//! A hierarchical timer wheel: O(1) to set and to cancel, and a far timer moves at most once per
//! level before it fires. Ticks are 1.05 ms (2^20 ns); a timer never fires early, and at most one
//! tick late.

use crate::Instant;

const TICK_SHIFT: u32 = 20;
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// 64^6 ticks are over two years; later deadlines wait in the last level and are looked at again.
const LEVELS: usize = 6;

const NIL: u32 = u32::MAX;

/// Names a timer that has been set. Stale after it fired or was cancelled; using it then is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

struct Entry<K> {
    key: Option<K>,
    deadline: u64,
    generation: u32,
    prev: u32,
    next: u32,
    slot: u32,
}

/// Timers for keys of type `K`.
pub struct TimerWheel<K> {
    entries: Vec<Entry<K>>,
    free: u32,
    /// First entry of each slot, level by level.
    heads: Vec<u32>,
    /// Which slots of a level have entries.
    occupied: [u64; LEVELS],
    /// The tick up to which everything has fired.
    now: u64,
    len: usize,
}

impl<K> TimerWheel<K> {
    /// An empty wheel that starts at `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            entries: Vec::new(),
            free: NIL,
            heads: vec![NIL; LEVELS * SLOTS],
            occupied: [0; LEVELS],
            now: now.as_nanos() >> TICK_SHIFT,
            len: 0,
        }
    }

    /// How many timers are set.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when no timer is set.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets a timer that fires with `key` at `deadline`, or at the next [`expire`](Self::expire) if
    /// that is past.
    pub fn insert(&mut self, deadline: Instant, key: K) -> TimerId {
        // Rounded up, so that a timer never fires before its time.
        let tick = deadline.as_nanos().div_ceil(1 << TICK_SHIFT).max(self.now + 1);
        let index = self.take_entry();
        let e = &mut self.entries[index as usize];
        e.key = Some(key);
        e.deadline = tick;
        let id = TimerId { index, generation: e.generation };
        self.link(index);
        self.len += 1;
        id
    }

    /// Takes a timer back; its key, or `None` if it has fired or was cancelled before.
    pub fn cancel(&mut self, id: TimerId) -> Option<K> {
        let e = self.entries.get(id.index as usize)?;
        if e.generation != id.generation || e.key.is_none() {
            return None;
        }
        self.unlink(id.index);
        self.release(id.index)
    }

    /// When [`expire`](Self::expire) should run next: not later than the earliest timer, possibly
    /// earlier when that timer is far off.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.next_tick().map(|t| Instant::from_nanos(t << TICK_SHIFT))
    }

    /// Appends the keys of all timers whose deadline is not after `now` to `fired`.
    pub fn expire(&mut self, now: Instant, fired: &mut Vec<K>) {
        let target = now.as_nanos() >> TICK_SHIFT;
        while let Some(tick) = self.next_tick() {
            if tick > target {
                break;
            }
            self.now = tick;
            self.cascade(tick, fired);
        }
        self.now = self.now.max(target);
    }

    /// The next tick at which a slot comes up, over all levels.
    fn next_tick(&self) -> Option<u64> {
        (0..LEVELS).filter_map(|level| self.next_tick_of(level)).min()
    }

    fn next_tick_of(&self, level: usize) -> Option<u64> {
        let bits = self.occupied[level];
        if bits == 0 {
            return None;
        }
        let shift = LEVEL_BITS * level as u32;
        let here = self.now >> shift;
        // Slots strictly after the current one, then around.
        let start = (here as u32 + 1) % SLOTS as u32;
        let ahead = u64::from(bits.rotate_right(start).trailing_zeros()) + 1;
        Some((here + ahead) << shift)
    }

    /// Fires or moves down everything in the slots that `tick` has reached.
    fn cascade(&mut self, tick: u64, fired: &mut Vec<K>) {
        for level in (0..LEVELS).rev() {
            let shift = LEVEL_BITS * level as u32;
            if tick & ((1u64 << shift) - 1) != 0 {
                continue;
            }
            let slot = level * SLOTS + ((tick >> shift) as usize % SLOTS);
            let mut index = core::mem::replace(&mut self.heads[slot], NIL);
            self.occupied[level] &= !(1 << (slot % SLOTS));
            while index != NIL {
                let next = self.entries[index as usize].next;
                if self.entries[index as usize].deadline <= tick {
                    fired.extend(self.release(index));
                } else {
                    self.link(index);
                }
                index = next;
            }
        }
    }

    fn slot_for(&self, deadline: u64) -> usize {
        let delta = deadline - self.now;
        for level in 0..LEVELS {
            let shift = LEVEL_BITS * level as u32;
            if (delta >> shift) < SLOTS as u64 {
                return level * SLOTS + ((deadline >> shift) as usize % SLOTS);
            }
        }
        let shift = LEVEL_BITS * (LEVELS as u32 - 1);
        let last = (self.now >> shift) + SLOTS as u64 - 1;
        (LEVELS - 1) * SLOTS + (last as usize % SLOTS)
    }

    fn link(&mut self, index: u32) {
        // A deadline equal to `now` can only be met while cascading: it goes one tick ahead.
        let deadline = self.entries[index as usize].deadline.max(self.now + 1);
        let slot = self.slot_for(deadline);
        let head = self.heads[slot];
        let e = &mut self.entries[index as usize];
        e.slot = slot as u32;
        e.prev = NIL;
        e.next = head;
        if head != NIL {
            self.entries[head as usize].prev = index;
        }
        self.heads[slot] = index;
        self.occupied[slot / SLOTS] |= 1 << (slot % SLOTS);
    }

    fn unlink(&mut self, index: u32) {
        let (prev, next, slot) = {
            let e = &self.entries[index as usize];
            (e.prev, e.next, e.slot as usize)
        };
        if next != NIL {
            self.entries[next as usize].prev = prev;
        }
        if prev != NIL {
            self.entries[prev as usize].next = next;
        } else {
            self.heads[slot] = next;
            if next == NIL {
                self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
            }
        }
    }

    fn take_entry(&mut self) -> u32 {
        if self.free != NIL {
            let index = self.free;
            self.free = self.entries[index as usize].next;
            return index;
        }
        self.entries.push(Entry { key: None, deadline: 0, generation: 0, prev: NIL, next: NIL, slot: 0 });
        (self.entries.len() - 1) as u32
    }

    fn release(&mut self, index: u32) -> Option<K> {
        let free = self.free;
        let e = &mut self.entries[index as usize];
        e.generation = e.generation.wrapping_add(1);
        e.next = free;
        self.free = index;
        self.len -= 1;
        e.key.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn ms(n: u64) -> Instant {
        Instant::from_millis(n)
    }

    #[test]
    fn timers_fire_in_time_and_never_early_over_all_levels() {
        let mut w = TimerWheel::new(ms(5));
        let delays = [1u64, 5, 63, 67, 130, 1000, 4095, 4100, 70_000, 300_000, 20_000_000, 4_000_000_000];
        for d in delays {
            w.insert(ms(5 + d), d);
        }
        let mut fired = Vec::new();
        for d in delays {
            w.expire(ms(5 + d) - Duration::from_micros(1), &mut fired);
            assert!(!fired.contains(&d), "{d} fired early");
            w.expire(ms(5 + d) + Duration::from_millis(2), &mut fired);
            assert!(fired.contains(&d), "{d} did not fire");
        }
        assert!(w.is_empty() && w.next_deadline().is_none());
    }

    #[test]
    fn a_cancelled_timer_does_not_fire_and_its_id_goes_stale() {
        let mut w = TimerWheel::new(Instant::ZERO);
        let a = w.insert(ms(10), 'a');
        let b = w.insert(ms(10), 'b');
        assert_eq!(w.cancel(a), Some('a'));
        assert_eq!(w.cancel(a), None);
        let mut fired = Vec::new();
        w.expire(ms(12), &mut fired);
        assert_eq!(fired, ['b']);
        assert_eq!(w.cancel(b), None);
        w.insert(ms(20), 'c');
        assert_eq!(w.cancel(a), None, "the reused entry is not the old timer");
    }

    #[test]
    fn sleeping_until_next_deadline_reaches_every_timer() {
        let mut w = TimerWheel::new(Instant::ZERO);
        let mut seed = 7u64;
        let mut due: Vec<u64> = Vec::new();
        for _ in 0..500 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = seed >> 44;
            due.push(at);
            w.insert(ms(at), at);
        }
        due.sort_unstable();
        let mut fired = Vec::new();
        let mut steps = 0;
        while let Some(t) = w.next_deadline() {
            let before = fired.len();
            w.expire(t, &mut fired);
            for at in &fired[before..] {
                assert!(ms(*at) <= t && t <= ms(*at) + Duration::from_millis(3));
            }
            steps += 1;
            assert!(steps < 5000);
        }
        fired.sort_unstable();
        assert_eq!(fired, due);
    }
}
