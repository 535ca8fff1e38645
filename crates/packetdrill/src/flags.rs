//! `--so_flags`: what the plug-in is told. The grammar is in the crate's README.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::sysctl;

/// An address and the prefix length of its network.
pub(crate) type Network = (IpAddr, u8);

/// What the text says, or the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flags {
    /// The stack's addresses. Others become its own when a script binds to them.
    pub(crate) local: Vec<IpAddr>,
    /// Where it may send to. Default: everywhere.
    pub(crate) remote: Vec<Network>,
    /// MTU for IPv4 and IPv6.
    pub(crate) mtu: [u32; 2],
    /// Packets that are taken from the stack lose their lent memory, as a TUN's do.
    pub(crate) orphan: bool,
    /// Packets of several segments stay whole.
    pub(crate) gso: bool,
    /// Where kernel parameters are read from; `None` for nowhere.
    pub(crate) sysctl: Option<PathBuf>,
    /// Kernel parameters that are not read from there.
    pub(crate) parameters: BTreeMap<String, String>,
    /// Real time without a call after which a blocked call moves the clock itself.
    pub(crate) idle: Duration,
    /// Virtual time that `netdev_receive` waits for a packet.
    pub(crate) patience: Duration,
    /// Initial congestion window in segments.
    pub(crate) initcwnd: Option<u32>,
    /// Longest delay of an acknowledgment.
    pub(crate) delayed_ack: Option<Duration>,
    /// Length of TIME-WAIT.
    pub(crate) time_wait: Option<Duration>,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            // packetdrill's test runner uses these; alone it draws hosts of the same networks at random.
            local: vec![
                IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)),
                IpAddr::V6(Ipv6Addr::new(0xfd3d, 0x0a0b, 0x17d6, 0, 0, 0, 0, 1)),
            ],
            remote: vec![(Ipv4Addr::UNSPECIFIED.into(), 0), (Ipv6Addr::UNSPECIFIED.into(), 0)],
            // So that the segment size is 1460 in both.
            mtu: [1500, 1520],
            orphan: true,
            gso: false,
            sysctl: Some("/proc/sys".into()),
            parameters: BTreeMap::new(),
            // Longer than packetdrill takes between two events, far shorter than the second that it waits.
            idle: Duration::from_millis(100),
            // As long as the kernel's keepalive takes to give a connection up.
            patience: Duration::from_secs(7200 + 10 * 75),
            initcwnd: None,
            delayed_ack: None,
            time_wait: None,
        }
    }
}

/// What is wrong with the text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum FlagError {
    #[error("`{0}`: write KEY=VALUE")]
    NotAPair(String),
    #[error("`{0}` is no key; see the README of uncopied-packetdrill")]
    UnknownKey(String),
    #[error("{key}: `{value}` is no {what}")]
    BadValue { key: String, value: String, what: &'static str },
}

impl Flags {
    pub(crate) fn parse(text: &str) -> Result<Self, FlagError> {
        let mut flags = Self::default();
        let (mut locals, mut remotes) = (Vec::new(), Vec::new());
        for pair in text.split([',', ' ', '\n', '\t']).filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| FlagError::NotAPair(pair.into()))?;
            match key {
                "local" => locals.push(number(key, value, "address")?),
                "remote" => remotes.push(network(key, value)?),
                "mtu" => flags.mtu = [mtu(key, value)?; 2],
                "mtu4" => flags.mtu[0] = mtu(key, value)?,
                "mtu6" => flags.mtu[1] = mtu(key, value)?,
                "orphan" => flags.orphan = switch(key, value)?,
                "gso" => flags.gso = switch(key, value)?,
                "sysctl" => flags.sysctl = (value != "off").then(|| value.into()),
                "idle_ms" => flags.idle = Duration::from_millis(number(key, value, "number")?),
                "patience" => flags.patience = Duration::from_secs(number(key, value, "number of seconds")?),
                "initcwnd" => flags.initcwnd = Some(number(key, value, "number of segments")?),
                "delack_ms" => {
                    flags.delayed_ack = Some(Duration::from_millis(number(key, value, "number")?));
                }
                "time_wait" => {
                    flags.time_wait = Some(Duration::from_secs(number(key, value, "number of seconds")?));
                }
                name if sysctl::is_known(name) => {
                    if !sysctl::is_valid(name, &spaced(value)) {
                        return Err(bad(key, value, "value of that parameter"));
                    }
                    flags.parameters.insert(name.into(), spaced(value));
                }
                unknown => return Err(FlagError::UnknownKey(unknown.into())),
            }
        }
        // An address replaces the default of its family.
        flags.local.retain(|d| !locals.iter().any(|l: &IpAddr| l.is_ipv4() == d.is_ipv4()));
        flags.local.extend(locals);
        if !remotes.is_empty() {
            flags.remote = remotes;
        }
        Ok(flags)
    }
}

/// Triples are written with colons, as spaces and commas separate pairs.
fn spaced(value: &str) -> String {
    value.replace(':', " ")
}

fn bad(key: &str, value: &str, what: &'static str) -> FlagError {
    FlagError::BadValue { key: key.into(), value: value.into(), what }
}

fn number<T: FromStr>(key: &str, value: &str, what: &'static str) -> Result<T, FlagError> {
    value.parse().map_err(|_| bad(key, value, what))
}

fn switch(key: &str, value: &str) -> Result<bool, FlagError> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(bad(key, value, "0 or 1")),
    }
}

/// The least MTU is IPv4's; the largest is what a length field can say.
fn mtu(key: &str, value: &str) -> Result<u32, FlagError> {
    number(key, value, "MTU")
        .and_then(|n| if (68..=65_535).contains(&n) { Ok(n) } else { Err(bad(key, value, "MTU")) })
}

fn network(key: &str, value: &str) -> Result<Network, FlagError> {
    let (address, prefix) = value.split_once('/').unwrap_or((value, ""));
    let address: IpAddr = number(key, address, "address")?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let prefix = if prefix.is_empty() { longest } else { number(key, prefix, "prefix length")? };
    if prefix > longest { Err(bad(key, value, "network")) } else { Ok((address, prefix)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flags_are_the_defaults_of_the_runner() {
        let flags = Flags::parse("").unwrap();
        assert_eq!(flags, Flags::default());
        assert_eq!(flags.local[1].to_string(), "fd3d:a0b:17d6::1");
        assert_eq!(flags.mtu, [1500, 1520]);
    }

    #[test]
    fn an_address_replaces_the_default_of_its_family_only() {
        let flags = Flags::parse("local=10.0.0.1,remote=10.0.0.0/24 remote=2001:db8::1").unwrap();
        assert_eq!(flags.local.len(), 2);
        assert!(flags.local.contains(&"10.0.0.1".parse().unwrap()));
        assert!(flags.local.iter().any(IpAddr::is_ipv6));
        assert_eq!(flags.remote, [("10.0.0.0".parse().unwrap(), 24), ("2001:db8::1".parse().unwrap(), 128)]);
    }

    #[test]
    fn every_key_is_read() {
        let flags = Flags::parse(
            "mtu=1000 mtu6=1400,orphan=0,gso=1,sysctl=off,idle_ms=5,patience=9,initcwnd=3,delack_ms=20,\
             time_wait=2,tcp_timestamps=0,tcp_rmem=4096:8192:16384",
        )
        .unwrap();
        assert_eq!(flags.mtu, [1000, 1400]);
        assert!(!flags.orphan && flags.gso && flags.sysctl.is_none());
        assert_eq!((flags.idle, flags.patience), (Duration::from_millis(5), Duration::from_secs(9)));
        assert_eq!(flags.initcwnd, Some(3));
        assert_eq!(
            (flags.delayed_ack, flags.time_wait),
            (Some(Duration::from_millis(20)), Some(Duration::from_secs(2)))
        );
        assert_eq!(flags.parameters["tcp_rmem"], "4096 8192 16384");
        assert_eq!(flags.parameters["tcp_timestamps"], "0");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("mtu", "KEY=VALUE"),
            ("tcp_no_such=1", "tcp_no_such"),
            ("mtu=67", "no MTU"),
            ("orphan=2", "0 or 1"),
            ("local=somewhere", "no address"),
            ("remote=10.0.0.1/33", "no network"),
            ("tcp_rmem=1:x:3", "no value"),
        ] {
            let error = Flags::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
