//! `uncopied send FILE HOST:PORT`

use std::fs::File;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use uncopied::{LendFailed, Shutdown, TcpStream};

use crate::digest::Hasher;
use crate::tap_options::{TapOptions, print_stats};
use crate::{Error, report};

/// Bytes lent per call.
const CALL: usize = 1 << 20;

/// Options of `send`.
#[derive(Args)]
pub struct Options {
    /// The file.
    file: PathBuf,
    /// The peer: any TCP server, e.g. `nc -l 9000 > FILE` or `uncopied recv`.
    peer: String,
    #[command(flatten)]
    tap: TapOptions,
    /// Copy instead of lending.
    #[arg(long)]
    copy: bool,
    /// Give up if the peer takes nothing for this many seconds.
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    /// Print the stack's counters at the end.
    #[arg(long)]
    stats: bool,
}

/// Sends the file.
pub fn run(options: &Options) -> Result<(), Error> {
    let peer = resolve(&options.peer)?;
    let file = File::open(&options.file).map_err(|e| format!("{}: {e}", options.file.display()))?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(format!("{}: not a regular file", options.file.display()).into());
    }
    let total = meta.len();
    let stack = options.tap.start()?;
    let timeout = Duration::from_secs(options.timeout);
    let mut stream =
        TcpStream::connect_timeout(&stack, peer, Some(timeout)).map_err(|e| format!("{peer}: {e}"))?;
    stream.set_write_timeout(Some(timeout));

    let started = Instant::now();
    let bar = report::bytes_bar(total, "sending");
    let mut hasher = Hasher::default();
    let mut sent = 0;
    while sent < total {
        let chunk = read_chunk(&file, &options.file, sent, total)?;
        hasher.update(&chunk);
        sent += chunk.len() as u64;
        if options.copy {
            stream.send_all(&chunk).map_err(|e| stopped(&bar, peer, &e))?;
        } else {
            lend(&stream, chunk).map_err(|e| stopped(&bar, peer, &e))?;
        }
        bar.set_position(sent);
    }
    finish(&stream, timeout).map_err(|e| stopped(&bar, peer, &e))?;
    wait_for_close(&stream);
    bar.finish_and_clear();
    let took = started.elapsed();
    println!("sent {total} bytes to {peer} in {took:.2?}, {:.2} Gbit/s", crate::cputime::gbps(total, took));
    println!("sha256 {}", hasher.finish());
    if options.stats {
        print_stats(&stack.stats());
    }
    Ok(())
}

fn stopped(bar: &indicatif::ProgressBar, peer: SocketAddr, e: &std::io::Error) -> Error {
    bar.abandon();
    format!("{peer}: {e}; the peer does not have the whole file").into()
}

/// The next piece of the file, read into memory of our own: the stack lends *that*, so a file that is
/// truncated or rewritten meanwhile is an error here and never a crash or a mixture on the wire.
fn read_chunk(file: &File, path: &Path, at: u64, total: u64) -> Result<Vec<u8>, Error> {
    let mut chunk = vec![0; CALL.min((total - at) as usize)];
    file.read_exact_at(&mut chunk, at).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            format!("{}: the file became shorter while it was being sent", path.display())
        }
        _ => format!("{}: {e}", path.display()),
    })?;
    Ok(chunk)
}

/// Lends one buffer, reading completions when a limit is reached.
pub fn lend(stream: &TcpStream, buffer: impl Into<uncopied::Lent>) -> std::io::Result<()> {
    let mut buffer = buffer.into();
    loop {
        while stream.completion().is_some() {}
        match stream.send_lent(buffer) {
            Ok(_) => return Ok(()),
            Err(LendFailed { error: uncopied::Error::MemLock | uncopied::Error::OptMem, buffer: back })
                if stream.outstanding() > 0 =>
            {
                buffer = back;
                stream.wait_completion(None)?;
            }
            // Larger than the limit itself: copying is the way out.
            Err(LendFailed { error: uncopied::Error::MemLock, buffer: back }) => {
                return stream.send_all(back.as_slice());
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Waits, for a while, until the peer has closed too: a program that exits before may cut off a peer that
/// is still reading.
fn wait_for_close(stream: &TcpStream) {
    let mut rest = [0; 4096];
    while stream.wait_ready(uncopied::Ready::IN | uncopied::Ready::HUP, Some(Duration::from_secs(3))) {
        if !matches!(stream.recv(&mut rest), Ok(1..)) {
            return;
        }
    }
}

/// Ends the stream and waits until the peer has acknowledged everything.
pub fn finish(stream: &TcpStream, timeout: Duration) -> std::io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    let mut last = (stream.queued().1, Instant::now());
    while stream.queued().1 > 0 {
        if let Some(e) = stream.take_error() {
            return Err(e.into());
        }
        let left = stream.queued().1;
        if left != last.0 {
            last = (left, Instant::now());
        } else if last.1.elapsed() > timeout {
            return Err(uncopied::Error::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    while stream.completion().is_some() {}
    Ok(())
}

fn resolve(peer: &str) -> Result<SocketAddr, Error> {
    let mut found = peer
        .to_socket_addrs()
        .map_err(|e| format!("{peer}: {e} (write HOST:PORT, an IPv6 address in brackets: [fd00::1]:9000)"))?;
    found.next().ok_or_else(|| format!("{peer}: no address").into())
}
