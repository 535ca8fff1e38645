//! The bytes to be sent: always the same buffer, or a ring larger than the last-level cache.

use std::fmt;

use serde::Serialize;
use uncopied::Lent;

use crate::Error;

/// Where the source's bytes are when they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Temperature {
    /// One buffer, in cache, as netperf's.
    Warm,
    /// A ring of buffers of twice the last-level cache: every call reads from memory.
    Cold,
}

impl fmt::Display for Temperature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Temperature::Warm => "warm",
            Temperature::Cold => "cold",
        })
    }
}

/// Buffers of one size.
pub struct Source {
    buffers: Vec<Lent>,
    size: usize,
}

impl Source {
    /// Fills the buffers.
    pub fn new(size: usize, temperature: Temperature) -> Result<Self, Error> {
        let count = match temperature {
            Temperature::Warm => 1,
            Temperature::Cold => (2 * last_level_cache()).div_ceil(size).max(2),
        };
        // An allocation each, as a program's buffers are: pieces of one would share a reference count, which
        // sender and net thread would then take from each other at every call.
        let buffer = |n: usize| Lent::from((0..size).map(|i| ((n + i) % 251) as u8).collect::<Vec<_>>());
        Ok(Self { buffers: (0..count).map(buffer).collect(), size })
    }

    /// Bytes per call.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The buffer of call `n`.
    pub fn buffer(&self, n: u64) -> &Lent {
        &self.buffers[(n % self.buffers.len() as u64) as usize]
    }
}

/// Bytes of the largest cache that CPU 0 has; 32 MiB where the system does not say.
fn last_level_cache() -> usize {
    let sizes = (0..8).filter_map(|i| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{i}/size");
        let text = std::fs::read_to_string(path).ok()?;
        let text = text.trim();
        let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let shift = match unit {
            "K" => 10,
            "M" => 20,
            _ => 0,
        };
        Some(digits.parse::<usize>().ok()? << shift)
    });
    sizes.max().unwrap_or(32 << 20)
}
