//! What is measured, and the paper's figures beside it.

use std::fmt;

use serde::Serialize;

use super::DeviceKind;
use super::source::Temperature;
use crate::cputime::{Spent, gbps, per_gb};

/// The two ways to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mode {
    /// `send`: the stack copies.
    Copy,
    /// `send_lent`: the stack points at the buffer.
    Lend,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Copy => "copy",
            Mode::Lend => "lend",
        })
    }
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// CPU seconds of the sending thread per GB.
    pub process: f64,
    /// CPU seconds of all threads of the process per GB.
    pub system: f64,
    /// Throughput.
    pub gbps: f64,
    /// Completed calls per notification read; 0 when nothing was lent.
    pub merged: f64,
    /// Packets handed to the device.
    pub packets: u64,
}

impl Sample {
    /// From what a run of `bytes` took.
    pub fn new(spent: Spent, bytes: u64, completions: u64, notifications: u64, packets: u64) -> Self {
        Self {
            process: per_gb(spent.thread, bytes),
            system: per_gb(spent.process, bytes),
            gbps: gbps(bytes, spent.wall),
            merged: if notifications == 0 { 0.0 } else { completions as f64 / notifications as f64 },
            packets,
        }
    }
}

/// All runs of one size.
#[derive(Debug, Serialize)]
pub struct Cell {
    /// Bytes per call.
    pub size: usize,
    /// Where the source lies.
    pub temperature: Temperature,
    /// Copying runs.
    pub copy: Vec<Sample>,
    /// Lending runs.
    pub lend: Vec<Sample>,
}

impl Cell {
    pub fn new(size: usize, temperature: Temperature) -> Self {
        Self { size, temperature, copy: Vec::new(), lend: Vec::new() }
    }

    pub fn add(&mut self, mode: Mode, sample: Sample) {
        match mode {
            Mode::Copy => self.copy.push(sample),
            Mode::Lend => self.lend.push(sample),
        }
    }

    /// Median over the runs of one way.
    pub fn median(&self, mode: Mode, figure: impl Fn(&Sample) -> f64) -> f64 {
        let runs = match mode {
            Mode::Copy => &self.copy,
            Mode::Lend => &self.lend,
        };
        median(runs.iter().map(figure).collect())
    }

    /// Median of lending over median of copying.
    pub fn ratio(&self, figure: impl Fn(&Sample) -> f64 + Copy) -> f64 {
        self.median(Mode::Lend, figure) / self.median(Mode::Copy, figure)
    }
}

/// The middle value; the mean of the two middle ones for an even count.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match (n, n % 2) {
        (0, _) => f64::NAN,
        (_, 1) => values[n / 2],
        _ => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// The bare loop on the TAP.
#[derive(Debug, Default, Serialize)]
pub struct Limit {
    /// Throughput of each run in Gbit/s.
    pub gbps: Vec<f64>,
    /// CPU seconds of its thread per GB.
    pub process: Vec<f64>,
    /// CPU seconds of all threads per GB, the kernel socket's reader among them.
    pub system: Vec<f64>,
}

/// Everything a run of the command found.
#[derive(Debug, Serialize)]
pub struct Results {
    /// The device's name.
    pub device: String,
    /// Sizes by temperature.
    pub cells: Vec<Cell>,
    /// The bare loop, if asked for.
    pub limit: Option<Limit>,
    /// Smallest size, in bytes, at which lending costs the sender less than copying.
    pub crossover: Option<usize>,
}

impl Results {
    pub fn new(device: DeviceKind) -> Self {
        Self { device: format!("{device:?}").to_lowercase(), cells: Vec::new(), limit: None, crossover: None }
    }
}

/// Ratios of zero-copy over copy, in percent, from "sendmsg copy avoidance with MSG_ZEROCOPY" (netperf,
/// 10 Gbit/s, Linux 4.10): size, process cycles, system cycles.
const PAPER: [(usize, u32, u32); 5] =
    [(4 << 10, 41, 79), (16 << 10, 18, 67), (64 << 10, 11, 64), (256 << 10, 10, 63), (1 << 20, 8, 61)];

/// The paper's ratios for `size`, process and system, in percent.
pub fn paper(size: usize) -> Option<(u32, u32)> {
    PAPER.iter().find(|(s, ..)| *s == size).map(|(_, process, system)| (*process, *system))
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(vec![]).is_nan());
    }
}
