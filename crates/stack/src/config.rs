//! Limits and defaults of a stack, each with its reason.

use std::net::IpAddr;

use time::Duration;

/// What a stack may use and how its sockets begin. All sizes are bytes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of everything drawn at random: sequence numbers, ports, hash keys. Give the same seed and the
    /// same packets and the stack repeats itself exactly. Default: drawn from the system.
    pub seed: [u8; 16],
    /// Bytes that may be lent at once, over all sockets: `RLIMIT_MEMLOCK` of the process, unlimited with
    /// `CAP_IPC_LOCK`, as in Linux. `ENOBUFS` beyond.
    pub memlock: u64,
    /// Option memory of one socket, which bounds its unread notifications (`net.core.optmem_max`).
    /// Default 131072, as in Linux; here that is over a thousand calls, since a record is small.
    pub optmem_max: usize,
    /// Send buffer of a new TCP socket, in queued bytes. Default 4 MiB, the upper end of Linux's
    /// `tcp_wmem`: lent bytes cost no memory, so there is nothing to save by starting lower.
    pub sndbuf: usize,
    /// Receive buffer of a new TCP socket. Default 131072 (`tcp_rmem[1]`); it grows up to `rcvbuf_max`.
    pub rcvbuf: usize,
    /// Up to where the receive buffer tunes itself. Default 6 MiB (`tcp_rmem[2]`).
    pub rcvbuf_max: usize,
    /// Most that `SO_RCVBUF` gives, before doubling (`net.core.rmem_max`). Default 212992, as in Linux.
    pub rmem_max: usize,
    /// Most that `SO_SNDBUF` gives, before doubling (`net.core.wmem_max`). Default 212992.
    pub wmem_max: usize,
    /// Compare every lent range at completion with what it held at the send, and report changes. Off by
    /// default: it reads every byte twice.
    pub check_lent: bool,
    /// Time a closed connection lingers in TIME-WAIT. Default 60 s, as in Linux (RFC 9293 says 2 MSL,
    /// which it puts at 4 minutes).
    pub time_wait: Duration,
    /// First and last port given to sockets that did not ask for one. Default 32768..=60999, as in Linux.
    pub ephemeral_ports: (u16, u16),
    /// Events one socket's backlog holds while its owner is busy. Default 8192: two full windows of
    /// small segments; beyond, segments are dropped and counted, and retransmitted by the peer.
    pub backlog: usize,
    /// TCP parameters of new sockets that are not sizes.
    pub tcp: tcp::Config,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: rand::random(),
            memlock: memlock_limit(),
            optmem_max: 131_072,
            sndbuf: 4 << 20,
            rcvbuf: 131_072,
            rcvbuf_max: 6 << 20,
            rmem_max: 212_992,
            wmem_max: 212_992,
            check_lent: false,
            time_wait: Duration::from_secs(60),
            ephemeral_ports: (32_768, 60_999),
            backlog: 8192,
            tcp: tcp::Config::default(),
        }
    }
}

/// The process's `RLIMIT_MEMLOCK`, or no limit for whoever may lock what they like.
fn memlock_limit() -> u64 {
    use rustix::thread::{CapabilitySet, capabilities};
    let ipc_lock = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if ipc_lock {
        return u64::MAX;
    }
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current.unwrap_or(u64::MAX)
}

/// A route to be added when the stack is built.
#[derive(Clone, Copy, Debug)]
pub struct RouteConfig {
    /// Destination network.
    pub dst: IpAddr,
    /// Its prefix length in bits.
    pub prefix: u8,
    /// Next hop; `None` for a network on the link.
    pub gateway: Option<IpAddr>,
    /// Position of the device among those given to the builder.
    pub device: usize,
}
