//! `cargo run --release -p sim -- --seeds 1000`

use std::panic::catch_unwind;
use std::process::ExitCode;

use clap::Parser;
use sim::{Failure, Summary, World};
use stack::time::Instant;

/// Runs worlds of hosts, networks and faults in virtual time, and checks them.
#[derive(Parser)]
struct Options {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only this one; prints what it was.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (first, count) = options.seed.map_or((options.first, options.seeds), |seed| (seed, 1));
    let (mut packets, mut connections, mut failures) = (0, 0, 0);
    for seed in first..first + count {
        match one(seed) {
            Ok(summary) => {
                packets += summary.packets.taken;
                connections += summary.connections;
                if options.seed.is_some() {
                    println!("{summary:#?}");
                }
            }
            Err(f) => {
                failures += 1;
                println!("seed {} failed after {:.3} s: {}", f.seed, f.at.as_millis() as f64 / 1e3, f.what);
                println!("  again: cargo run --release -p sim -- --seed {}", f.seed);
            }
        }
    }
    println!(
        "{count} worlds, {connections} connections, {packets} packets: {} passed, {failures} failed",
        count - failures
    );
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One world; a panic is a failure like any other.
fn one(seed: u64) -> Result<Summary, Failure> {
    match catch_unwind(|| World::new(seed)?.run()) {
        Ok(result) => result,
        Err(panic) => {
            let what = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(Failure { seed, at: Instant::ZERO, what: format!("panic: {what}") })
        }
    }
}
