//! Where the stack of a preloaded program meets the network: from a TOML file, overridden by the environment.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An address with its prefix length, or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    /// The address.
    pub addr: IpAddr,
    /// How many leading bits name the network.
    pub prefix: u8,
}

impl Cidr {
    /// Whether `ip` lies in the network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.addr.to_canonical(), ip.to_canonical()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let shift = 32u32.saturating_sub(self.prefix.into());
                u32::from(a).checked_shr(shift) == u32::from(b).checked_shr(shift)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let shift = 128u32.saturating_sub(self.prefix.into());
                u128::from(a).checked_shr(shift) == u128::from(b).checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let (addr, prefix) =
            s.split_once('/').ok_or(format!("`{s}`: write it as ADDRESS/PREFIX, e.g. 10.0.0.2/24"))?;
        let addr: IpAddr = addr.parse().map_err(|e| format!("`{addr}`: {e}"))?;
        let prefix: u8 = prefix.parse().map_err(|e| format!("prefix `{prefix}`: {e}"))?;
        let longest = if addr.is_ipv4() { 32 } else { 128 };
        if prefix > longest {
            return Err(format!("`{s}`: a prefix has at most {longest} bits"));
        }
        Ok(Self { addr, prefix })
    }
}

impl TryFrom<String> for Cidr {
    type Error = String;

    fn try_from(s: String) -> Result<Self, String> {
        s.parse()
    }
}

impl From<Cidr> for String {
    fn from(c: Cidr) -> String {
        c.to_string()
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.addr, self.prefix)
    }
}

/// The configuration. Each field is a key of the TOML file, and in capitals behind `UNCOPIED_` a variable of
/// the environment (lists separated by commas), which wins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Name of the TAP.
    pub tap: String,
    /// The stack's addresses on it.
    pub addr: Vec<Cidr>,
    /// Default gateways, at most one of each family.
    pub gw: Vec<IpAddr>,
    /// MTU to set on the TAP; its own if absent. Setting it needs `CAP_NET_ADMIN`.
    pub mtu: Option<u32>,
    /// Networks whose connections stay with the kernel. Loopback always does.
    pub bypass: Vec<Cidr>,
    /// A file to which each process that ran a stack appends one line of JSON with its counters.
    pub stats: Option<PathBuf>,
    /// Compare lent memory at completion with what it held at the send, and report changes.
    pub check_lent: bool,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{path}: {source}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A variable is not what it should be.
    #[error("{name}: {message}")]
    Variable {
        /// The variable.
        name: String,
        /// Why.
        message: String,
    },
    /// Something is missing.
    #[error("no {0}")]
    Missing(&'static str),
}

/// The prefix of all variables.
const PREFIX: &str = "UNCOPIED_";

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is not such a file; unknown keys are errors.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.into(), source })?;
        toml::from_str(&text).map_err(|e| ConfigError::Malformed { path: path.into(), source: Box::new(e) })
    }

    /// Reads the file that `UNCOPIED_CONFIG` names, if it is set, and then the other variables. `Ok(None)`:
    /// none of them is set.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn from_env() -> Result<Option<Self>, ConfigError> {
        Self::from_vars(|name| std::env::var(format!("{PREFIX}{name}")).ok().filter(|v| !v.is_empty()))
    }

    fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, ConfigError> {
        let file = var("CONFIG");
        if file.is_none() && var("TAP").is_none() {
            return Ok(None);
        }
        let mut config = match file {
            Some(path) => Self::from_file(Path::new(&path))?,
            None => Self::default(),
        };
        if let Some(tap) = var("TAP") {
            config.tap = tap;
        }
        if let Some(list) = var("ADDR") {
            config.addr = parse_list("ADDR", &list)?;
        }
        if let Some(list) = var("GW") {
            config.gw = parse_list("GW", &list)?;
        }
        if let Some(list) = var("BYPASS") {
            config.bypass = parse_list("BYPASS", &list)?;
        }
        if let Some(mtu) = var("MTU") {
            config.mtu = parse_list("MTU", &mtu)?.pop();
        }
        if let Some(path) = var("STATS") {
            config.stats = Some(path.into());
        }
        if let Some(on) = var("CHECK_LENT") {
            config.check_lent = match on.as_str() {
                "0" => false,
                "1" => true,
                _ => return Err(wrong("CHECK_LENT", "0 or 1")),
            };
        }
        if config.tap.is_empty() {
            return Err(ConfigError::Missing("TAP: set UNCOPIED_TAP, or `tap` in the file"));
        }
        if config.addr.is_empty() {
            return Err(ConfigError::Missing(
                "address: set UNCOPIED_ADDR=ADDRESS/PREFIX, or `addr` in the file",
            ));
        }
        Ok(Some(config))
    }

    /// The environment that says the same.
    pub fn to_env(&self) -> Vec<(String, String)> {
        let list = |items: Vec<String>| items.join(",");
        let mut vars = vec![
            ("TAP", self.tap.clone()),
            ("ADDR", list(self.addr.iter().map(Cidr::to_string).collect())),
            ("GW", list(self.gw.iter().map(IpAddr::to_string).collect())),
            ("BYPASS", list(self.bypass.iter().map(Cidr::to_string).collect())),
            ("MTU", self.mtu.map(|m| m.to_string()).unwrap_or_default()),
            ("CHECK_LENT", if self.check_lent { "1" } else { "" }.into()),
        ];
        if let Some(stats) = &self.stats {
            vars.push(("STATS", stats.to_string_lossy().into_owned()));
        }
        vars.into_iter().map(|(k, v)| (format!("{PREFIX}{k}"), v)).collect()
    }

    /// Whether connections to `ip` stay with the kernel.
    pub fn bypasses(&self, ip: IpAddr) -> bool {
        self.bypass.iter().any(|net| net.contains(ip))
    }
}

fn wrong(name: &str, message: impl Into<String>) -> ConfigError {
    ConfigError::Variable { name: format!("{PREFIX}{name}"), message: message.into() }
}

fn parse_list<T: FromStr<Err: std::fmt::Display>>(name: &str, list: &str) -> Result<Vec<T>, ConfigError> {
    list.split(',').map(|item| item.trim().parse().map_err(|e: T::Err| wrong(name, e.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| set.iter().find(|(k, _)| *k == name).map(|(_, v)| (*v).into())
    }

    #[test]
    fn the_environment_overrides_the_file() {
        let path = std::env::temp_dir().join(format!("uncopied-config-{}.toml", std::process::id()));
        std::fs::write(
            &path,
            "tap = \"a\"\naddr = [\"10.0.0.2/24\"]\nmtu = 9000\nbypass = [\"10.9.0.0/16\"]\n",
        )
        .unwrap();
        let path_text = path.to_string_lossy().into_owned();
        let set = [("CONFIG", path_text.as_str()), ("TAP", "b"), ("ADDR", "10.1.0.2/24, fd00::2/64")];
        let config = Config::from_vars(vars(&set)).unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((config.tap.as_str(), config.mtu), ("b", Some(9000)));
        assert_eq!(config.addr.len(), 2);
        assert!(config.bypasses("10.9.8.7".parse().unwrap()));
        assert!(config.bypasses("::ffff:10.9.8.7".parse().unwrap()));
        assert!(!config.bypasses("10.8.8.7".parse().unwrap()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(Config::from_vars(vars(&[])).unwrap(), None);
        for (set, says) in [
            (&[("TAP", "t")][..], "UNCOPIED_ADDR"),
            (&[("TAP", "t"), ("ADDR", "10.0.0.2")], "ADDRESS/PREFIX"),
            (&[("TAP", "t"), ("ADDR", "10.0.0.2/33")], "32 bits"),
            (&[("TAP", "t"), ("ADDR", "10.0.0.2/24"), ("MTU", "x")], "UNCOPIED_MTU"),
            (&[("CONFIG", "/nonexistent/file")], "/nonexistent/file"),
        ] {
            let error = Config::from_vars(vars(set)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_configuration_survives_the_environment() {
        let config = Config {
            tap: "t0".into(),
            addr: vec!["10.0.0.2/24".parse().unwrap(), "fd00::2/64".parse().unwrap()],
            gw: vec!["10.0.0.1".parse().unwrap()],
            mtu: Some(1400),
            bypass: vec!["10.9.0.0/16".parse().unwrap()],
            stats: Some("/tmp/s".into()),
            check_lent: true,
        };
        let env = config.to_env();
        let back = Config::from_vars(|name| {
            let key = format!("{PREFIX}{name}");
            env.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone()).filter(|v| !v.is_empty())
        });
        assert_eq!(back.unwrap().unwrap(), config);
    }
}
