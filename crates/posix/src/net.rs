//! The stack of this process, started by its first socket; or the way to the process that has it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dev::tap::{TapConfig, TapDevice, TapError};
use parking_lot::RwLock;
use stack::{Stack, Stats};

use crate::config::Config;
use crate::endpoint::Endpoint;
use crate::errno::{Errno, Result};
use crate::installed::Installed;
use crate::local::Local;
use crate::lock::ForkMutex;
use crate::remote::{client::Client, host::Host};
use crate::{sys, table};

/// Where sockets come from.
pub(crate) enum Net {
    /// The stack is in this process, and serves others too.
    Host { stack: Stack, host: Arc<Host> },
    /// The stack is in another process.
    Client(Arc<Client>),
    /// The program brought it.
    Installed(Installed),
}

impl Net {
    /// A new socket.
    pub(crate) fn tcp_socket(&self) -> Result<Arc<dyn Endpoint>> {
        match self {
            Net::Host { stack, .. } => Ok(Local::open(stack.tcp_socket())),
            Net::Client(client) => client.tcp_socket(),
            Net::Installed(installed) => Ok(installed.tcp_socket()),
        }
    }

    /// The stack, if it is in this process.
    pub(crate) fn stack(&self) -> Option<Stack> {
        match self {
            Net::Host { stack, .. } => Some(stack.clone()),
            Net::Installed(installed) => Some(installed.stack()),
            Net::Client(_) => None,
        }
    }
}

/// What this process was told, read when it is first asked for.
static CONFIG: RwLock<Option<Arc<Config>>> = RwLock::new(None);
static NET: ForkMutex<Option<Arc<Net>>> = ForkMutex::new(None);
/// Held while the stack is being started: by one thread, the others wait.
static STARTING: ForkMutex<()> = ForkMutex::new(());

/// Sockets of this process go to a stack as `config` says, from the next one on.
pub fn configure(config: Config) {
    *CONFIG.write() = Some(Arc::new(config));
}

/// Whether connections to `ip` stay with the kernel.
pub(crate) fn bypasses(ip: IpAddr) -> bool {
    CONFIG.read().as_ref().is_some_and(|c| c.bypasses(ip))
}

/// Name of the stack's interface.
pub(crate) fn device() -> String {
    CONFIG.read().as_ref().map(|c| c.tap.clone()).unwrap_or_default()
}

/// The stack, started if it is not yet; `None` if this process is to have none.
pub(crate) fn current() -> Option<Result<Arc<Net>>> {
    if let Some(net) = NET.lock().as_ref() {
        return Some(Ok(net.clone()));
    }
    let config = CONFIG.read().clone()?;
    let _starting = STARTING.lock();
    if let Some(net) = NET.lock().as_ref() {
        return Some(Ok(net.clone()));
    }
    let started = table::noting_internal(|| start(&config)).map(Arc::new);
    match started {
        Ok(net) => {
            *NET.lock() = Some(net.clone());
            Some(Ok(net))
        }
        Err(message) => {
            say(&message);
            Some(Err(Errno::NETDOWN))
        }
    }
}

/// The stack, if it was started.
pub(crate) fn started() -> Option<Arc<Net>> {
    NET.lock().clone()
}

/// Nobody is in the middle of starting or stopping it while the result lives.
pub(crate) fn freeze() -> impl std::any::Any {
    (STARTING.lock(), NET.lock())
}

/// Puts another one in place: in a child, whose stack is its parent's.
pub(crate) fn replace(net: Option<Arc<Net>>) -> Option<Arc<Net>> {
    std::mem::replace(&mut *NET.lock(), net)
}

/// Says something to whoever runs the program.
pub fn say(message: &str) {
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("uncopied: {message}\n").as_bytes());
}

fn start(config: &Config) -> std::result::Result<Net, String> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match open(config) {
            Ok(device) => return host(config, device),
            // Another process has the TAP, and with it the stack: be its guest.
            Err(TapError::Busy(name)) => match Client::connect(&config.tap) {
                Ok(client) => return Ok(Net::Client(client)),
                // It may be starting, or ending.
                Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
                Err(e) => {
                    return Err(format!(
                        "interface `{name}` is in use, by a process that is no stack of ours: {e}"
                    ));
                }
            },
            Err(e) => return Err(e.to_string()),
        }
    }
}

pub(crate) fn open(config: &Config) -> std::result::Result<TapDevice, TapError> {
    TapDevice::open(TapConfig {
        name: config.tap.clone(),
        mtu: config.mtu,
        mac: Some(station(config)),
        ..TapConfig::default()
    })
}

/// A station address that is the same for every process that has these addresses in turn: neighbours keep
/// what they have learned.
fn station(config: &Config) -> [u8; 6] {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in config.addr.iter().flat_map(|a| a.to_string().into_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let [a, b, c, d, e, ..] = hash.to_le_bytes();
    // Locally administered, one station.
    [0x02, a, b, c, d, e]
}

fn host(config: &Config, device: TapDevice) -> std::result::Result<Net, String> {
    let addresses: Vec<_> = config.addr.iter().map(|c| (c.addr, c.prefix)).collect();
    let builder = Stack::builder().configure(|c| c.check_lent = config.check_lent).device(device, &addresses);
    let stack = config.gw.iter().fold(builder, |b, gw| b.gateway(*gw)).build().map_err(|e| e.to_string())?;
    let host = sys::with_signals_blocked(|| {
        stack.spawn()?;
        Host::start(&config.tap, stack.clone())
    })
    .map_err(|e| e.to_string())?;
    Ok(Net::Host { stack, host })
}

/// How long a process that ends waits for peers that acknowledge nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// The process is about to end. Sockets that are still open are closed; what they have sent goes out first,
/// and processes that use this one's stack are waited for.
pub fn farewell() {
    let Some(net) = NET.lock().take() else { return };
    let Net::Host { stack, host } = &*net else { return };
    for (fd, file) in table::all() {
        table::remove(fd);
        drop(file);
    }
    host.wait_for_guests();
    deliver(stack);
    if let Some(path) = CONFIG.read().as_ref().and_then(|c| c.stats.clone()) {
        let line = format!("{}\n", summary(&stack.stats()));
        let written = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .and_then(|mut f| std::io::Write::write_all(&mut f, line.as_bytes()));
        if let Err(e) = written {
            say(&format!("cannot write the statistics to {}: {e}", path.display()));
        }
    }
}

/// Waits until peers have what was sent to them, as long as they take any.
fn deliver(stack: &Stack) {
    let (mut left, mut since) = (stack.undelivered(), Instant::now());
    while left.0 > 0 {
        std::thread::sleep(Duration::from_millis(1));
        let now = stack.undelivered();
        if now != left {
            (left, since) = (now, Instant::now());
        } else if since.elapsed() > PATIENCE {
            let (connections, bytes) = left;
            say(&format!(
                "{connections} connections given up: their peers have not acknowledged {bytes} bytes"
            ));
            return;
        }
    }
}

/// The counters as JSON.
fn summary(stats: &Stats) -> serde_json::Value {
    let by_reason: serde_json::Map<_, _> =
        stats.calls_by_reason.iter().map(|(r, n)| (r.as_str().to_owned(), (*n).into())).collect();
    let drops: serde_json::Map<_, _> =
        stats.drops.iter().map(|(r, n)| (r.as_str().to_owned(), (*n).into())).collect();
    let program = std::env::args().next().unwrap_or_default();
    serde_json::json!({
        "pid": std::process::id(),
        "program": program,
        "connections": stats.connections,
        "tx_packets": stats.tx_packets, "tx_bytes": stats.tx_bytes,
        "rx_packets": stats.rx_packets, "rx_bytes": stats.rx_bytes,
        "lent_calls": stats.lent_calls, "lent_bytes": stats.lent_bytes,
        "copied_bytes": stats.copied_bytes,
        "completions": stats.completions, "notifications": stats.notifications,
        "calls_not_copied": stats.calls_not_copied,
        "calls_by_reason": by_reason,
        "changed_buffers": stats.changed_buffers,
        "drops": drops,
    })
}
