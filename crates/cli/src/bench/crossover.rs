//! The smallest size at which lending costs the sender less than copying, on this machine and device.

use super::figures::{Mode, median};
use super::source::{Source, Temperature};
use super::target::Target;
use crate::Error;

/// Sizes tried, in bytes.
const SIZES: [usize; 11] = [64, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16_384];
/// Calls per run: enough that a run outlasts the noise of its beginning.
const CALLS: u64 = 60_000;
const RUNS: usize = 3;

/// Walks the sizes upwards; `None` if lending was never cheaper.
pub fn find(target: &mut Target) -> Result<Option<usize>, Error> {
    // A single win may be luck: the next larger size must agree.
    let mut candidate = None;
    for size in SIZES {
        let source = Source::new(size, Temperature::Cold)?;
        let (mut copy, mut lend) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            copy.push(target.transfer(&source, Mode::Copy, CALLS * size as u64)?.process);
            lend.push(target.transfer(&source, Mode::Lend, CALLS * size as u64)?.process);
        }
        match (median(lend) < median(copy), candidate) {
            (true, Some(found)) => return Ok(Some(found)),
            (true, None) => candidate = Some(size),
            (false, _) => candidate = None,
        }
    }
    Ok(candidate)
}
