//! `uncopied bench`: lending against copying, in CPU seconds per GB.

mod crossover;
mod figures;
mod plot;
mod source;
mod table;
mod target;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use crate::Error;
use figures::{Cell, Limit, Mode, Results, Sample};
use source::{Source, Temperature};
use target::Target;

/// What is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DeviceKind {
    /// An in-process link: a software NIC on a thread of its own copies packets to a second stack.
    Link,
    /// A TAP in a private network namespace, to a socket of this machine's kernel.
    Tap,
    /// A device that acknowledges at once and touches no payload: the cost of the stack alone.
    Reflector,
}

/// Options of `bench`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Bytes per send call, with suffix K or M; 64 at least.
    #[arg(long, value_delimiter = ',', default_value = "4K,16K,64K,256K,1M", value_parser = parse_size)]
    sizes: Vec<usize>,
    /// Runs per figure; the median is shown.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Bytes per run, with suffix K, M or G.
    #[arg(long, default_value = "1G", value_parser = parse_size)]
    bytes: usize,
    /// Where the packets go.
    #[arg(long, value_enum, default_value_t = DeviceKind::Link)]
    device: DeviceKind,
    /// With `--device tap`: also measure a bare loop that writes prebuilt 64 KB frames to the TAP, the
    /// ceiling for any stack.
    #[arg(long)]
    limit: bool,
    /// With `--device tap`: let the kernel receive through NAPI and GRO (`IFF_NAPI`).
    #[arg(long)]
    napi: bool,
    /// Leave out the search for the smallest size at which lending is cheaper.
    #[arg(long)]
    no_crossover: bool,
    /// Write all figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Draw the process CPU of both ways as SVG.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// Bytes from `64`, `4K`, `1M` or `2G`; at least 64.
pub fn parse_size(s: &str) -> Result<usize, String> {
    let (digits, shift) = match s.trim().to_ascii_uppercase() {
        s if s.ends_with('K') => (s.trim_end_matches('K').to_owned(), 10),
        s if s.ends_with('M') => (s.trim_end_matches('M').to_owned(), 20),
        s if s.ends_with('G') => (s.trim_end_matches('G').to_owned(), 30),
        s => (s, 0),
    };
    let n: usize = digits.parse().map_err(|_| format!("{s}: write a number of bytes, e.g. 64, 4K or 1M"))?;
    let bytes = n.checked_shl(shift).filter(|b| *b >> shift == n).ok_or(format!("{s}: too large"))?;
    if bytes < 64 {
        return Err(format!("{s}: at least 64 bytes"));
    }
    Ok(bytes)
}

/// Measures and prints.
pub fn run(options: &Options) -> Result<(), Error> {
    if options.limit && options.device != DeviceKind::Tap {
        return Err("--limit is the ceiling of a TAP: add --device tap".into());
    }
    if options.napi && options.device != DeviceKind::Tap {
        return Err("--napi is a mode of the TAP: add --device tap".into());
    }
    let mut target = Target::new(options.device, options.napi)?;
    let temperatures = [Temperature::Warm, Temperature::Cold];
    let bar = bar(temperatures.len() * options.sizes.len() * 2 * options.runs as usize);
    let mut results = Results::new(options.device);
    results.limit = options.limit.then(Limit::default);
    for temperature in temperatures {
        for size in &options.sizes {
            let source = Source::new(*size, temperature)?;
            let mut cell = Cell::new(*size, temperature);
            for _ in 0..options.runs {
                // Interleaved, so that both ways see the same noise.
                for mode in [Mode::Copy, Mode::Lend] {
                    bar.set_message(format!("{temperature} {} {mode}", table::size(*size)));
                    cell.add(mode, measure(&mut target, &source, mode, options.bytes as u64)?);
                    bar.inc(1);
                }
                if let Some(limit) = &mut results.limit {
                    target.add_bare_run(limit, options.bytes as u64)?;
                }
            }
            results.cells.push(cell);
        }
    }
    bar.finish_and_clear();
    if !options.no_crossover {
        results.crossover = crossover::find(&mut target)?;
    }
    table::print(&results, options);
    if let Some(path) = &options.json {
        let file = std::fs::File::create(path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::to_writer_pretty(file, &results).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if let Some(path) = &options.svg {
        plot::draw(&results, path)?;
    }
    Ok(())
}

/// One run over a connection of its own. Small sizes send less, so that a run stays near a second.
fn measure(target: &mut Target, source: &Source, mode: Mode, bytes: u64) -> Result<Sample, Error> {
    let most_calls = 400_000;
    let bytes = bytes.min(most_calls * source.size() as u64).max(source.size() as u64);
    target.transfer(source, mode, bytes)
}

fn bar(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    let style = ProgressStyle::with_template("[{bar:32}] {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_are_read_with_their_suffix() {
        assert_eq!(parse_size("4K"), Ok(4096));
        assert_eq!(parse_size("1m"), Ok(1 << 20));
        assert_eq!(parse_size("64"), Ok(64));
        for bad in ["", "K", "63", "-1", "99999999999999999999G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
