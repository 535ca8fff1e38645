//! The options that name a TAP and the addresses on it.

use std::net::IpAddr;

use clap::Args;
use uncopied::tap::{TapConfig, TapDevice};
use uncopied::{Stack, Stats};

use crate::Error;

/// An address with its prefix length.
#[derive(Clone, Copy, Debug)]
pub struct Cidr {
    pub addr: IpAddr,
    pub prefix: u8,
}

impl std::str::FromStr for Cidr {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let (addr, prefix) = s.split_once('/').ok_or("write it as ADDRESS/PREFIX, e.g. 10.0.0.2/24")?;
        let addr: IpAddr = addr.parse().map_err(|e| format!("{addr}: {e}"))?;
        let prefix: u8 = prefix.parse().map_err(|e| format!("prefix {prefix}: {e}"))?;
        let longest = if addr.is_ipv4() { 32 } else { 128 };
        if prefix > longest {
            return Err(format!("a prefix has at most {longest} bits"));
        }
        Ok(Self { addr, prefix })
    }
}

/// Where the stack meets the kernel.
#[derive(Args, Clone, Debug)]
pub struct TapOptions {
    /// The TAP's name. A persistent one that you own needs no privileges:
    /// `sudo ip tuntap add NAME mode tap user $USER`.
    #[arg(long, default_value = "uncopied0")]
    pub tap: String,
    /// The stack's address on it, with the prefix length; may be given twice, for IPv4 and IPv6. It must
    /// not be the address the kernel has there.
    #[arg(long, required = true)]
    pub addr: Vec<Cidr>,
    /// The default gateway, for peers beyond the TAP.
    #[arg(long)]
    pub gw: Vec<IpAddr>,
}

impl TapOptions {
    /// Opens the TAP and starts a stack on it.
    pub fn start(&self) -> Result<Stack, Error> {
        let device = TapDevice::open(TapConfig { name: self.tap.clone(), ..TapConfig::default() })?;
        let addresses: Vec<_> = self.addr.iter().map(|c| (c.addr, c.prefix)).collect();
        let builder = Stack::builder().device(device, &addresses);
        let stack = self.gw.iter().fold(builder, |b, gw| b.gateway(*gw)).build()?;
        stack.spawn()?;
        Ok(stack)
    }
}

/// Prints what a transfer did, for `--stats`.
pub fn print_stats(stats: &Stats) {
    println!("{}", crate::report::copies(&Stats::default(), stats));
    println!("packets: {} sent, {} received", stats.tx_packets, stats.rx_packets);
    if let Some(line) = crate::report::drops(stats) {
        println!("{line}");
    }
}
