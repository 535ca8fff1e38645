//! `uncopied run`: a program that was never told about us, on our stack.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use clap::Args;
use posix::config::{Cidr, Config};
use signal_hook::iterator::{SignalsInfo, exfiltrator::WithOrigin};
use uncopied::netns::enter_private_net;
use uncopied::tap::TapConfig;

use crate::Error;
use crate::program;

/// Where the program's sockets go.
#[derive(Args)]
pub struct Options {
    /// A private network, the default without --tap: a namespace of its own (through a user namespace if not
    /// root) with a TAP in it, the kernel at 10.77.0.1 and fd77::1, the program at 10.77.0.2 and fd77::2.
    #[arg(long, conflicts_with_all = ["tap", "gw"])]
    private: bool,
    /// An existing TAP instead: `sudo ip tuntap add NAME mode tap user $USER`.
    #[arg(long)]
    tap: Option<String>,
    /// The stack's address on it with the prefix length; may be given twice, for IPv4 and IPv6.
    #[arg(long)]
    addr: Vec<Cidr>,
    /// The default gateway, for peers beyond the TAP.
    #[arg(long)]
    gw: Vec<IpAddr>,
    /// MTU of the TAP.
    #[arg(long)]
    mtu: Option<u32>,
    /// A network whose connections stay with the kernel; may be given several times. Loopback always does.
    #[arg(long)]
    bypass: Vec<Cidr>,
    /// A TOML file with the same keys: tap, addr, gw, mtu, bypass, stats, check_lent.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Report programs that change memory they have lent.
    #[arg(long)]
    check_lent: bool,
    /// A command (for `sh -c`) to run on the kernel's side meanwhile, e.g. the server for a client. The program
    /// starts when it listens on some TCP port; it is stopped when the program ends.
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    /// When it has ended, print what the stack did: connections, bytes lent and copied, and why, drops.
    #[arg(long)]
    stats: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

const TAP: &str = "uncopied0";
const KERNEL: [&str; 2] = ["10.77.0.1/24", "fd77::1/64"];
const OURS: [&str; 2] = ["10.77.0.2/24", "fd77::2/64"];

/// Exit statuses of shells and `env(1)`: found but not runnable, not found.
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

pub fn run(options: &Options) -> Result<ExitCode, Error> {
    let (name, arguments) = options.command.split_first().ok_or("no program given")?;
    let path = match program::find(name) {
        Ok(path) => path,
        Err(e) => return Ok(refused(&e.to_string(), NOT_FOUND)),
    };
    if let Err(e) = program::check(&path) {
        return Ok(refused(&e.to_string(), NOT_RUNNABLE));
    }
    let library = preload_library()?;
    let mut config = configuration(options)?;
    let stats =
        options.stats.then(|| std::env::temp_dir().join(format!("uncopied-stats-{}", std::process::id())));
    if let Some(path) = &stats {
        config.stats = Some(path.clone());
    }
    let peer = options.peer.as_deref().map(Peer::start).transpose()?;
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments).env("LD_PRELOAD", preload).envs(config.to_env());
    command.env_remove("UNCOPIED_CONFIG");
    let status = wait(command.spawn().map_err(|e| format!("{}: {e}", path.display()))?)?;
    drop(peer);
    if let Some(path) = stats {
        print_stats(&path);
    }
    Ok(ExitCode::from(match status.code() {
        Some(code) => code as u8,
        None => 128 + status.signal().unwrap_or(0) as u8,
    }))
}

fn refused(message: &str, status: u8) -> ExitCode {
    eprintln!("uncopied run: {message}");
    ExitCode::from(status)
}

/// The configuration for the program; makes the private network if there is to be one.
fn configuration(options: &Options) -> Result<Config, Error> {
    let mut config = match &options.config {
        Some(path) => Config::from_file(path)?,
        None => Config::default(),
    };
    if let Some(tap) = &options.tap {
        config.tap.clone_from(tap);
    }
    if !options.addr.is_empty() {
        config.addr.clone_from(&options.addr);
    }
    config.gw.extend(&options.gw);
    config.bypass.extend(&options.bypass);
    config.mtu = options.mtu.or(config.mtu);
    config.check_lent |= options.check_lent;
    if !config.tap.is_empty() && !options.private {
        if config.addr.is_empty() {
            return Err(format!("no address on `{}`: give --addr ADDRESS/PREFIX", config.tap).into());
        }
        return Ok(config);
    }
    if config.addr.is_empty() {
        config.addr = OURS.iter().map(|a| a.parse()).collect::<Result<_, _>>()?;
    }
    config.tap = TAP.into();
    let net = enter_private_net()?;
    let addresses: Vec<Cidr> = KERNEL.iter().map(|a| a.parse()).collect::<Result<_, _>>()?;
    let addresses: Vec<_> = addresses.iter().map(|c| (c.addr, c.prefix)).collect();
    let tap =
        net.tap(TapConfig { name: TAP.into(), mtu: config.mtu.take(), ..TapConfig::default() }, &addresses)?;
    // It outlives this descriptor, and the program may open it without privileges.
    tap.persist_for_owner()?;
    Ok(config)
}

/// The preload library, beside this program or where it is installed.
fn preload_library() -> Result<PathBuf, Error> {
    const NAME: &str = "libuncopied_preload.so";
    if let Some(path) = std::env::var_os("UNCOPIED_PRELOAD") {
        return Ok(path.into());
    }
    let program = std::env::current_exe()?;
    let directory = program.parent().ok_or("this program has no directory")?;
    let beside = directory.join(NAME);
    let installed = directory.join("../lib").join(NAME);
    // `cargo run` builds this program only; then the library is built when it is first needed.
    if let Some(cargo) = std::env::var_os("CARGO") {
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", "uncopied-preload"]);
        if directory.ends_with("release") {
            build.arg("--release");
        }
        if !build.status()?.success() {
            return Err("cannot build the preload library; see above".into());
        }
    }
    [beside, installed].into_iter().find(|p| p.is_file()).ok_or_else(|| {
        format!("{NAME} is neither in {0} nor in {0}/../lib: build it with `cargo build --release --package uncopied-preload`, or name it in UNCOPIED_PRELOAD", directory.display()).into()
    })
}

/// Passes on signals until the program ends.
fn wait(mut child: Child) -> Result<ExitStatus, Error> {
    use signal_hook::consts::{
        SIGALRM, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
    };
    let passed = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH, SIGALRM];
    let mut signals = SignalsInfo::<WithOrigin>::new(passed.iter().copied().chain([SIGCHLD]))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for origin in signals.wait() {
            // What the terminal sends, it sends to the program too.
            let from_terminal = origin.process.is_none();
            if origin.signal != SIGCHLD && !from_terminal {
                let pid = rustix::process::Pid::from_child(&child);
                if let Some(signal) = rustix::process::Signal::from_named_raw(origin.signal) {
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
        }
    }
}

/// The other side of a private network.
struct Peer(Child);

impl Peer {
    fn start(command: &str) -> Result<Self, Error> {
        let mut child = Command::new("sh").args(["-c", command]).process_group(0).spawn()?;
        let deadline = Instant::now() + Duration::from_secs(3);
        while !somebody_listens() && Instant::now() < deadline {
            if let Some(status) = child.try_wait()?
                && !status.success()
            {
                return Err(format!("the peer ended at once: {status}").into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self(child))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Its group: a shell's children too.
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Whether a TCP socket listens in this network namespace.
fn somebody_listens() -> bool {
    const LISTEN: &str = "0A";
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|path| {
        let table = std::fs::read_to_string(path).unwrap_or_default();
        table.lines().skip(1).any(|line| line.split_whitespace().nth(3) == Some(LISTEN))
    })
}

/// What the processes that ran a stack have left in the file.
fn print_stats(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    let reports: Vec<serde_json::Value> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    if reports.is_empty() {
        eprintln!("uncopied run: no socket of the stack was used, or its process was killed");
    }
    for r in reports {
        let n = |key: &str| r[key].as_u64().unwrap_or(0);
        let list = |key: &str| {
            let items: Vec<String> =
                r[key].as_object().into_iter().flatten().map(|(k, v)| format!("{k} {v}")).collect();
            if items.is_empty() { "none".to_owned() } else { items.join(", ") }
        };
        eprintln!(
            "{} ({}): {} connections",
            r["program"].as_str().unwrap_or("?"),
            n("pid"),
            n("connections")
        );
        eprintln!(
            "  packets: {} sent ({} bytes), {} received ({} bytes)",
            n("tx_packets"),
            n("tx_bytes"),
            n("rx_packets"),
            n("rx_bytes")
        );
        eprintln!(
            "  lent: {} calls, {} bytes; copied by plain sends: {} bytes",
            n("lent_calls"),
            n("lent_bytes"),
            n("copied_bytes")
        );
        eprintln!(
            "  completions: {} in {} notifications; noted on them: {}",
            n("completions"),
            n("notifications"),
            list("calls_by_reason")
        );
        if n("changed_buffers") > 0 {
            eprintln!("  lent memory changed before its completion: {} times", n("changed_buffers"));
        }
        eprintln!("  drops: {}", list("drops"));
    }
}
