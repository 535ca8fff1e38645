//! `uncopied recv PORT FILE`

use std::fs::File;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use uncopied::TcpListener;

use crate::Error;
use crate::digest::Hasher;
use crate::tap_options::{TapOptions, print_stats};

/// Options of `recv`.
#[derive(Args)]
pub struct Options {
    /// The port to listen on.
    port: u16,
    /// Where the bytes go. It is written beside, as FILE.part, and renamed when the peer has sent all.
    file: PathBuf,
    #[command(flatten)]
    tap: TapOptions,
    /// Give up if the peer sends nothing for this many seconds.
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    /// Print the stack's counters at the end.
    #[arg(long)]
    stats: bool,
}

/// Receives one stream.
pub fn run(options: &Options) -> Result<(), Error> {
    let mut part = options.file.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let mut out = File::create(&part).map_err(|e| format!("{}: {e}", part.display()))?;
    let stack = options.tap.start()?;
    let any = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), options.port);
    let listener = TcpListener::bind(&stack, any)?;
    eprintln!(
        "listening on {}",
        options
            .tap
            .addr
            .iter()
            .map(|c| SocketAddr::new(c.addr, options.port).to_string())
            .collect::<Vec<_>>()
            .join(" and ")
    );
    let (mut stream, peer) = listener.accept()?;
    stream.set_read_timeout(Some(Duration::from_secs(options.timeout)));
    let started = Instant::now();
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut hasher = Hasher::default();
    let mut buf = vec![0; 1 << 20];
    let mut total = 0u64;
    loop {
        let n = stream
            .read(&mut buf)
            .map_err(|e| format!("{peer}: {e} after {total} bytes; what came is in {}", part.display()))?;
        if n == 0 {
            break;
        }
        hasher.update(&buf[..n]);
        out.write_all(&buf[..n]).map_err(|e| {
            format!("{}: {e}; the connection was reset, so that the peer knows", part.display())
        })?;
        total += n as u64;
        bar.set_message(format!("{total} bytes from {peer}"));
    }
    out.sync_all().map_err(|e| format!("{}: {e}", part.display()))?;
    std::fs::rename(&part, &options.file).map_err(|e| format!("{}: {e}", options.file.display()))?;
    bar.finish_and_clear();
    let took = started.elapsed();
    println!(
        "received {total} bytes from {peer} in {took:.2?}, {:.2} Gbit/s",
        crate::cputime::gbps(total, took)
    );
    println!("sha256 {}", hasher.finish());
    if options.stats {
        print_stats(&stack.stats());
    }
    Ok(())
}
