//! The queue in front of a device: first in, first out, bounded in bytes and packets.

use std::collections::VecDeque;

use skb::SkBuff;

/// Bounds of a [`Fifo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes queued.
    pub bytes: usize,
    /// Most packets queued (a GSO packet is one).
    pub packets: usize,
}

impl Default for Limits {
    /// 16 MiB and 16384 packets: never reached by senders that ask [`crate::Interface::has_room`], whose
    /// threshold lies far below; a backstop for those that do not.
    fn default() -> Self {
        Self { bytes: 16 << 20, packets: 16384 }
    }
}

/// A bounded first-in first-out queue that drops at the tail.
#[derive(Debug, Default)]
pub struct Fifo {
    queue: VecDeque<SkBuff>,
    bytes: usize,
    limits: Limits,
    refused: u64,
    requeued: u64,
}

impl Fifo {
    /// An empty queue with these bounds.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Appends a packet; it comes back if the queue is full. An empty queue takes any packet.
    pub fn push(&mut self, skb: SkBuff) -> Result<(), SkBuff> {
        let over = self.bytes + skb.len() > self.limits.bytes || self.queue.len() >= self.limits.packets;
        if over && !self.queue.is_empty() {
            self.refused += 1;
            return Err(skb);
        }
        self.bytes += skb.len();
        self.queue.push_back(skb);
        Ok(())
    }

    /// Puts a packet the device had no room for back to the front. It was counted once and is not refused.
    pub fn requeue(&mut self, skb: SkBuff) {
        self.requeued += 1;
        self.bytes += skb.len();
        self.queue.push_front(skb);
    }

    /// Takes the oldest packet.
    pub fn pop(&mut self) -> Option<SkBuff> {
        let skb = self.queue.pop_front()?;
        self.bytes -= skb.len();
        Some(skb)
    }

    /// Packets queued.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// True if nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes queued.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packets refused so far.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Packets put back so far.
    pub fn requeued(&self) -> u64 {
        self.requeued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(n: usize) -> SkBuff {
        SkBuff::from_slice(&vec![n as u8; n])
    }

    #[test]
    fn packets_leave_in_the_order_they_came() {
        let mut q = Fifo::new(Limits::default());
        for n in 1..5 {
            q.push(packet(n)).unwrap();
        }
        assert_eq!((q.len(), q.bytes()), (4, 10));
        let first = q.pop().unwrap();
        q.requeue(first);
        let lens: Vec<_> = std::iter::from_fn(|| q.pop()).map(|s| s.len()).collect();
        assert_eq!(lens, [1, 2, 3, 4]);
        assert_eq!((q.bytes(), q.requeued()), (0, 1));
    }

    #[test]
    fn a_full_queue_gives_the_packet_back() {
        let mut q = Fifo::new(Limits { bytes: 100, packets: 3 });
        q.push(packet(90)).unwrap();
        assert_eq!(q.push(packet(11)).unwrap_err().len(), 11);
        q.push(packet(5)).unwrap();
        q.push(packet(5)).unwrap();
        assert_eq!(q.push(packet(0)).unwrap_err().len(), 0, "too many packets");
        assert_eq!((q.bytes(), q.refused()), (100, 2));
    }

    #[test]
    fn an_empty_queue_takes_a_packet_of_any_size() {
        let mut q = Fifo::new(Limits { bytes: 10, packets: 1 });
        assert!(q.push(packet(1000)).is_ok());
    }
}
