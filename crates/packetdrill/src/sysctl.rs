//! Kernel parameters (`net.ipv4.tcp_*`) as they concern new connections.
//!
//! Scripts set them by shell command, after the plug-in was started and sometimes between two connections. So
//! they are read when a socket is made: from the files of the network namespace that packetdrill runs in, which
//! `/proc/sys` shows, unless a flag says otherwise. What cannot be read stays as the stack has it.

use std::path::Path;
use std::time::Duration;

use stack::tcp::{Config, CongestionKind, Ecn};

use crate::flags::Flags;

/// Takes a parameter's words; `None` if they are not a value of it.
type Apply = fn(&mut Config, &[&str]) -> Option<()>;

/// A parameter that is one word: what to do with it.
macro_rules! word {
    ($config:ident, $value:ident: $ty:ty => $change:expr) => {
        |$config, words| {
            let $value: $ty = one(words)?;
            $change;
            Some(())
        }
    };
}

/// Each parameter, and what it does to a socket.
const PARAMETERS: &[(&str, Apply)] = &[
    ("tcp_timestamps", word!(c, n: u32 => c.timestamps = n != 0)),
    ("tcp_sack", word!(c, n: u32 => c.sack = n != 0)),
    ("tcp_dsack", word!(c, n: u32 => c.dsack = n != 0)),
    ("tcp_ecn", |c, words| {
        c.ecn = match one(words)? {
            0u32 => Ecn::Off,
            1 => Ecn::On,
            2 => Ecn::Passive,
            // Later kernels have modes that the stack has not.
            _ => c.ecn,
        };
        Some(())
    }),
    ("tcp_window_scaling", word!(c, n: u32 => c.window_scaling = n != 0)),
    ("tcp_rmem", |c, words| {
        let [_, initial, largest] = triple(words)?;
        (c.rcvbuf, c.rcvbuf_max) = (initial, largest.max(initial));
        Some(())
    }),
    // The send buffer does not tune itself: it is as large as Linux's may become.
    ("tcp_wmem", |c, words| {
        c.sndbuf = triple(words)?[2];
        Some(())
    }),
    ("tcp_congestion_control", |c, words| {
        c.congestion = match one::<String>(words)?.as_str() {
            "cubic" => CongestionKind::Cubic,
            "reno" => CongestionKind::NewReno,
            // Another one may be the host's default; the stack has none such.
            _ => c.congestion,
        };
        Some(())
    }),
    ("tcp_syn_retries", word!(c, n: u8 => c.syn_retries = n)),
    ("tcp_synack_retries", word!(c, n: u8 => c.synack_retries = n)),
    ("tcp_retries2", word!(c, n: u8 => c.retries = n)),
    ("tcp_fin_timeout", word!(c, s: u64 => c.fin_timeout = Duration::from_secs(s))),
    ("tcp_keepalive_time", word!(c, s: u64 => c.keepalive.idle = Duration::from_secs(s))),
    ("tcp_keepalive_intvl", word!(c, s: u64 => c.keepalive.interval = Duration::from_secs(s))),
    ("tcp_keepalive_probes", word!(c, n: u8 => c.keepalive.probes = n)),
    ("tcp_rto_min_us", word!(c, us: u64 => c.rto_min = Duration::from_micros(us))),
    ("tcp_rto_max_ms", word!(c, ms: u64 => c.rto_max = Duration::from_millis(ms))),
    ("tcp_notsent_lowat", word!(c, n: u32 => c.notsent_lowat = n)),
];

fn one<T: std::str::FromStr>(words: &[&str]) -> Option<T> {
    match words {
        [word] => word.parse().ok(),
        _ => None,
    }
}

fn triple(words: &[&str]) -> Option<[usize; 3]> {
    match words {
        [a, b, c] => Some([a.parse().ok()?, b.parse().ok()?, c.parse().ok()?]),
        _ => None,
    }
}

pub(crate) fn is_known(name: &str) -> bool {
    PARAMETERS.iter().any(|(n, _)| *n == name)
}

pub(crate) fn is_valid(name: &str, value: &str) -> bool {
    let words: Vec<_> = value.split_whitespace().collect();
    let mut scratch = Config::default();
    PARAMETERS.iter().any(|(n, apply)| *n == name && apply(&mut scratch, &words).is_some())
}

/// Every parameter that has a value now, in the order of the table.
pub(crate) fn read(flags: &Flags) -> Vec<(&'static str, String)> {
    PARAMETERS.iter().filter_map(|(name, _)| Some((*name, value(flags, name)?))).collect()
}

fn value(flags: &Flags, name: &str) -> Option<String> {
    if let Some(value) = flags.parameters.get(name) {
        return Some(value.clone());
    }
    std::fs::read_to_string(flags.sysctl.as_deref().map(Path::new)?.join("net/ipv4").join(name)).ok()
}

/// Puts values that were [read](read) into the parameters of a socket.
pub(crate) fn apply(values: &[(&'static str, String)], config: &mut Config) {
    for (name, value) in values {
        let words: Vec<_> = value.split_whitespace().collect();
        for (_, apply) in PARAMETERS.iter().filter(|(n, _)| n == name) {
            // What the kernel shows in a form that is not known here changes nothing.
            let _ = apply(config, &words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_files_and_files_over_defaults() {
        let dir = std::env::temp_dir().join(format!("uncopied-sysctl-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("net/ipv4")).unwrap();
        for (name, value) in
            [("tcp_timestamps", "0\n"), ("tcp_sack", "0\n"), ("tcp_rmem", "4096\t100000\t200000\n")]
        {
            std::fs::write(dir.join("net/ipv4").join(name), value).unwrap();
        }
        let flags = Flags::parse(&format!("sysctl={},tcp_sack=1", dir.display())).unwrap();
        let mut config = Config::default();
        apply(&read(&flags), &mut config);
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(!config.timestamps && config.sack && config.window_scaling);
        assert_eq!((config.rcvbuf, config.rcvbuf_max), (100_000, 200_000));
    }

    #[test]
    fn every_parameter_of_this_host_is_understood() {
        for (name, value) in read(&Flags::default()) {
            assert!(is_valid(name, &value), "{name}: {value:?}");
        }
    }
}
