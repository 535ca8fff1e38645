//! `uncopied demo`: a real file over TCP, lent and then copied, and what each took.

use std::path::PathBuf;

use clap::Args;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use uncopied::{Lent, Stats, TcpStream};

use crate::cputime::{Meter, Spent, gbps, per_gb};
use crate::peer::{Check, PATIENCE, Peer};
use crate::send::{finish, lend};
use crate::{Error, report};

/// Bytes per send call.
const CALL: usize = 1 << 20;

/// Options of `demo`.
#[derive(Args)]
pub struct Options {
    /// The file to send; it is read into memory first. Default: this program itself, repeated.
    file: Option<PathBuf>,
    /// Send at least this many bytes, repeating the file.
    #[arg(long, default_value = "1G", value_parser = crate::bench::parse_size)]
    bytes: usize,
    /// Use the in-process link in any case.
    #[arg(long)]
    link: bool,
}

/// One way of sending.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Lent,
    Copied,
}

/// What one way took.
struct Run {
    spent: Spent,
    bytes: u64,
    calls: u64,
    before: Stats,
    after: Stats,
}

/// Runs both ways and compares.
pub fn run(options: &Options) -> Result<(), Error> {
    // First of all: a user namespace can only be entered by a process without threads.
    let (peer, kernel) = choose_peer(options)?;
    let path = match &options.file {
        Some(path) => path.clone(),
        None => std::env::current_exe()?,
    };
    let file = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    if file.is_empty() {
        return Err(format!("{}: the file is empty", path.display()).into());
    }
    let repeats = options.bytes.div_ceil(file.len()).max(1);
    let total = (file.len() * repeats) as u64;
    println!("file: {} ({} bytes), {repeats} times = {total} bytes", path.display(), file.len());
    println!(
        "to:   {}, {}\n",
        peer.addr,
        if kernel {
            "an ordinary kernel socket behind a TAP in a private network"
        } else {
            "a second stack on the in-process link"
        }
    );
    let mut hasher = blake3::Hasher::new();
    (0..repeats).for_each(|_| {
        hasher.update(&file);
    });
    let expected = hasher.finalize().to_hex().to_string();
    let file = Lent::from(file).into_bytes();
    let lent = transfer(&peer, &file, repeats, Mode::Lent, &expected)?;
    let copied = transfer(&peer, &file, repeats, Mode::Copied, &expected)?;
    print(&lent, &copied, &expected);
    Ok(())
}

/// The kernel where the machine allows it; else the link, saying what is missing.
fn choose_peer(options: &Options) -> Result<(Peer, bool), Error> {
    if !options.link {
        match Peer::kernel(Check::Hash, false) {
            Ok(peer) => return Ok((peer, true)),
            Err(e) => eprintln!("no TAP on this machine: {e}\nrunning over the in-process link instead\n"),
        }
    }
    Ok((Peer::link(Check::Hash)?, false))
}

fn transfer(
    peer: &Peer,
    file: &bytes::Bytes,
    repeats: usize,
    mode: Mode,
    expected: &str,
) -> Result<Run, Error> {
    let total = (file.len() * repeats) as u64;
    let bar = report::bytes_bar(total, if mode == Mode::Lent { "lent" } else { "copied" });
    peer.expect()?;
    let stream = TcpStream::connect_timeout(&peer.stack, peer.addr, Some(PATIENCE))?;
    let before = peer.stack.stats();
    let meter = Meter::start();
    let (mut sent, mut calls) = (0u64, 0);
    for _ in 0..repeats {
        for start in (0..file.len()).step_by(CALL) {
            let piece = file.slice(start..file.len().min(start + CALL));
            sent += piece.len() as u64;
            calls += 1;
            match mode {
                Mode::Lent => lend(&stream, piece)?,
                Mode::Copied => stream.send_all(&piece)?,
            }
            if calls % 16 == 0 {
                bar.set_position(sent);
            }
        }
    }
    finish(&stream, PATIENCE)?;
    let spent = meter.stop();
    let after = peer.stack.stats();
    drop(stream);
    let got = peer.received()?;
    bar.finish_and_clear();
    match got {
        Some(got) if got.bytes != total => {
            Err(format!("{total} bytes were sent and {} received", got.bytes).into())
        }
        Some(got) if got.hash.as_deref() != Some(expected) => {
            Err("the received bytes differ from the file".into())
        }
        _ => Ok(Run { spent, bytes: total, calls, before, after }),
    }
}

fn print(lent: &Run, copied: &Run, hash: &str) {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["", "lent", "copied", "lent / copied"]);
    let mut row = |name: &str, figure: &dyn Fn(&Run) -> f64, digits: usize, ratio: bool| {
        let (a, b) = (figure(lent), figure(copied));
        let ratio = if ratio { format!("{:.0} %", a / b * 100.0) } else { String::new() };
        table.add_row([name.to_owned(), format!("{a:.digits$}"), format!("{b:.digits$}"), ratio]);
    };
    row("throughput, Gbit/s", &|r| gbps(r.bytes, r.spent.wall), 1, true);
    row("sending thread, CPU s/GB", &|r| per_gb(r.spent.thread, r.bytes), 4, true);
    row("whole process, CPU s/GB", &|r| per_gb(r.spent.process, r.bytes), 4, true);
    row("send calls", &|r| r.calls as f64, 0, false);
    row("packets to the device", &|r| (r.after.tx_packets - r.before.tx_packets) as f64, 0, false);
    row("completions", &|r| (r.after.completions - r.before.completions) as f64, 0, false);
    row("notifications read", &|r| (r.after.notifications - r.before.notifications) as f64, 0, false);
    row("bytes copied by the stack", &|r| (r.after.copied_bytes - r.before.copied_bytes) as f64, 0, false);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("{table}");
    println!("{}", report::copies(&lent.before, &lent.after));
    if let Some(line) = report::drops(&copied.after) {
        println!("{line}");
    }
    println!("received bytes verified, both times: blake3 {hash}");
}
