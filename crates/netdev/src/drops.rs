//! Why a packet was dropped: one enumeration for the whole stack, and a table of counters sized from it.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// Why a packet was dropped. Every packet made is sent, delivered, or counted under one of these.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// All reasons, in the order of their discriminants.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)*];

            /// A short name for tables and traces.
            pub fn as_str(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// The interface's queue is at its limit.
    QdiscFull => "qdisc-full",
    /// The device refused the packet; [`crate::TxStats::last_errno`] says with what.
    DeviceError => "device-error",
    /// The device is down or gone (`ENETDOWN`, `ENODEV`, `ENXIO`).
    DeviceDown => "device-down",
    /// The device had no memory for the packet (`ENOBUFS`, `ENOMEM`).
    DeviceNoMemory => "device-no-memory",
    /// The device could not read the packet's memory (`EFAULT`): lent memory that was unmapped.
    DeviceFault => "device-fault",
    /// A packet marked as standing for several cannot be segmented.
    BadGso => "bad-gso",
    /// The position of a checksum to be finished lies outside the packet's headers.
    BadChecksumOffset => "bad-checksum-offset",
    /// No room in the head for a header.
    NoHeadroom => "no-headroom",
    /// Larger than the path or device takes, and not to be fragmented.
    TooBig => "too-big",
    /// No route to the destination.
    NoRoute => "no-route",
    /// The next hop does not answer.
    HostUnreachable => "host-unreachable",
    /// The queue of packets waiting for a next hop's address is full.
    NeighbourQueueFull => "neighbour-queue-full",
    /// No such interface, or it has no address to send from.
    NoInterface => "no-interface",
    /// An ethertype or protocol that nobody here speaks.
    NoHandler => "no-handler",
    /// No socket for the segment or datagram.
    NoSocket => "no-socket",
    /// A checksum is wrong.
    BadChecksum => "bad-checksum",
    /// Shorter than its headers say.
    TooShort => "too-short",
    /// A header that breaks its format's rules.
    Malformed => "malformed",
    /// An IP version other than the link's framing says.
    BadVersion => "bad-version",
    /// An address that must not appear there (RFC 1812, 5.3.7).
    Martian => "martian",
    /// Not addressed to this host.
    NotForUs => "not-for-us",
    /// Options or extension headers that are unknown or not accepted.
    BadOptions => "bad-options",
    /// The hop limit ran out.
    HopLimit => "hop-limit",
    /// Fragments that overlap (RFC 5722) or contradict each other.
    BadFragment => "bad-fragment",
    /// A datagram was not complete in time.
    ReassemblyTimeout => "reassembly-timeout",
    /// No room to keep more fragments.
    ReassemblyFull => "reassembly-full",
    /// A reply held back by its rate limit.
    RateLimited => "rate-limited",
    /// A listener's queue is full.
    ListenOverflow => "listen-overflow",
    /// The backlog of a socket in use is full.
    BacklogFull => "backlog-full",
    /// A socket's receive buffer is full.
    ReceiveBufferFull => "receive-buffer-full",
    /// A filter said no.
    Filtered => "filtered",
    /// Fault injection dropped it.
    Injected => "injected",
}

impl core::fmt::Display for DropReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for DropReason {}

impl From<&std::io::Error> for DropReason {
    fn from(e: &std::io::Error) -> Self {
        // Linux's numbers, the same on every architecture this runs on (asm-generic/errno.h).
        match e.raw_os_error() {
            Some(6 | 19 | 100) => DropReason::DeviceDown,
            Some(12 | 105) => DropReason::DeviceNoMemory,
            Some(14) => DropReason::DeviceFault,
            Some(90) => DropReason::TooBig,
            _ => DropReason::DeviceError,
        }
    }
}

/// One counter per [`DropReason`].
#[derive(Debug, Default)]
pub struct DropCounters([AtomicU64; DropReason::ALL.len()]);

impl DropCounters {
    /// Counts one dropped packet.
    pub fn count(&self, reason: DropReason) {
        if let Some(c) = self.0.get(reason as usize) {
            c.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were dropped for `reason`.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0.get(reason as usize).map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// How many were dropped in all.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|c| c.load(Ordering::Relaxed)).sum()
    }

    /// The reasons that occurred, with their counts.
    pub fn snapshot(&self) -> Vec<(DropReason, u64)> {
        DropReason::ALL.iter().map(|r| (*r, self.get(*r))).filter(|(_, n)| *n > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter_and_name() {
        let c = DropCounters::default();
        for (n, r) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*r as usize, n);
            c.count(*r);
            assert_eq!(c.get(*r), 1);
        }
        assert_eq!(c.total(), DropReason::ALL.len() as u64);
        let names: std::collections::HashSet<_> = DropReason::ALL.iter().map(|r| r.as_str()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
    }

    #[test]
    fn errors_of_devices_become_reasons() {
        let of = |n| DropReason::from(&std::io::Error::from_raw_os_error(n));
        assert_eq!(of(105), DropReason::DeviceNoMemory);
        assert_eq!(of(14), DropReason::DeviceFault);
        assert_eq!(of(100), DropReason::DeviceDown);
        assert_eq!(of(90), DropReason::TooBig);
        assert_eq!(of(5), DropReason::DeviceError);
    }
}
