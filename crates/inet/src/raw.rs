//! Copies for RAW sockets: they see packets beside, and before, whoever handles the protocol.

use crate::{Delivered, Inet};

/// Copies kept until somebody takes them: one packet makes one, and they are taken after each.
const MAX_COPIES: usize = 64;

/// Which protocols somebody wants copies of, and the copies.
#[derive(Debug)]
pub(crate) struct RawCopies {
    /// Readers per protocol, over IPv4 and IPv6.
    wanted: Box<[[u32; 256]; 2]>,
    copies: Vec<Delivered>,
}

impl Default for RawCopies {
    fn default() -> Self {
        Self { wanted: Box::new([[0; 256]; 2]), copies: Vec::new() }
    }
}

impl Inet {
    /// One reader more (or less) of all packets of `proto`, over IPv6 or IPv4.
    pub fn want_raw(&mut self, ipv6: bool, proto: u8, more: bool) {
        let [v4, v6] = &mut *self.raw.wanted;
        let table = if ipv6 { v6 } else { v4 };
        if let Some(n) = table.get_mut(usize::from(proto)) {
            *n = if more { *n + 1 } else { n.saturating_sub(1) };
        }
    }

    /// The copies that the packets since the last call have made, each from its transport header on.
    pub fn take_raw(&mut self) -> Vec<Delivered> {
        std::mem::take(&mut self.raw.copies)
    }

    /// Whether [`take_raw`](Self::take_raw) has something.
    pub fn has_raw(&self) -> bool {
        !self.raw.copies.is_empty()
    }

    pub(crate) fn copy_for_raw(&mut self, d: &Delivered) {
        let [v4, v6] = &*self.raw.wanted;
        let table = if d.src.is_ipv6() { v6 } else { v4 };
        let wanted = table.get(usize::from(d.proto)).is_some_and(|n| *n > 0);
        if wanted && self.raw.copies.len() < MAX_COPIES {
            self.raw.copies.push(d.duplicate());
        }
    }
}
