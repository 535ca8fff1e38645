//! The figures as a table.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

use super::Options;
use super::figures::{Cell, Mode, Results, median, paper};

/// Prints everything.
pub fn print(results: &Results, options: &Options) {
    println!(
        "Device: {}. CPU seconds per GB, median of {} runs, copy and lend interleaved.",
        results.device, options.runs
    );
    println!("process: the sending thread; system: all threads. paper: Linux, netperf at 10 Gbit/s.\n");
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header([
        "source",
        "size",
        "process copy",
        "lend",
        "ratio",
        "paper",
        "system copy",
        "lend",
        "ratio",
        "paper",
        "Gbit/s copy",
        "lend",
        "calls/notif.",
    ]);
    for cell in &results.cells {
        table.add_row(row(cell));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    if let Some(limit) = &results.limit {
        println!(
            "bare loop on a TAP beside it: {:.1} Gbit/s, CPU s/GB: {:.4} its thread, {:.4} all threads",
            median(limit.gbps.clone()),
            median(limit.process.clone()),
            median(limit.system.clone())
        );
    }
    match results.crossover {
        Some(bytes) => println!("crossover: lending is cheaper for the sender from {} per call", size(bytes)),
        None if options.no_crossover => {}
        None => println!("crossover: none up to 16K: copying is cheaper for the sender"),
    }
}

fn row(cell: &Cell) -> Vec<String> {
    let seconds = |v: f64| format!("{v:.4}");
    let percent = |v: f64| format!("{:.0} %", v * 100.0);
    let known = |n: Option<u32>| n.map_or("-".to_owned(), |n| format!("{n} %"));
    vec![
        cell.temperature.to_string(),
        size(cell.size),
        seconds(cell.median(Mode::Copy, |s| s.process)),
        seconds(cell.median(Mode::Lend, |s| s.process)),
        percent(cell.ratio(|s| s.process)),
        known(paper(cell.size).map(|p| p.0)),
        seconds(cell.median(Mode::Copy, |s| s.system)),
        seconds(cell.median(Mode::Lend, |s| s.system)),
        percent(cell.ratio(|s| s.system)),
        known(paper(cell.size).map(|p| p.1)),
        format!("{:.1}", cell.median(Mode::Copy, |s| s.gbps)),
        format!("{:.1}", cell.median(Mode::Lend, |s| s.gbps)),
        format!("{:.1}", cell.median(Mode::Lend, |s| s.merged)),
    ]
}

/// A size as one writes it.
pub fn size(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}
