//! A network of one's own: a namespace with a TAP in it, for demonstrations and tests.
//!
//! Nothing outside is touched and nothing is left behind: the namespace ends with its last thread and the
//! TAP with its descriptor. Root needs only a network namespace, of the calling *thread*; everybody else
//! gets the right to one through a user namespace, which the kernel gives only to a process that has no
//! other threads: hence [`enter_private_net`] belongs at the beginning of `main`.
//!
//! Configuration is by ioctl and `/proc`, so that no `ip` binary is needed.

use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sys::{self, IfReq};
use crate::tap::{TapConfig, TapDevice, TapError};

/// What the machine lacks or forbids.
#[derive(Debug, thiserror::Error)]
pub enum PrivateNetError {
    /// A sysctl says no.
    #[error(
        "user namespaces are disabled on this machine: {path} is {value} (`sysctl -w {key}={wanted}` as root enables them)"
    )]
    Disabled {
        /// File that says so.
        path: &'static str,
        /// What it says.
        value: String,
        /// Its sysctl name.
        key: &'static str,
        /// What it would have to say.
        wanted: &'static str,
    },
    /// Something else says no.
    #[error(
        "this process may not make a network namespace (unshare: {0}): a container's seccomp profile or a security module forbids it; run as root, or allow it"
    )]
    Forbidden(io::Error),
    /// Not the beginning of `main` any more.
    #[error(
        "a process with several threads cannot enter a user namespace: enter_private_net() must be called at the beginning of main (or run as root)"
    )]
    Threads,
    /// The kernel has no namespaces.
    #[error("this kernel was built without network or user namespaces (CONFIG_NET_NS, CONFIG_USER_NS)")]
    NotInKernel,
    /// The namespace exists but the TAP could not be made in it.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// Something inside the namespace failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> PrivateNetError {
    let what = what.into();
    move |source| PrivateNetError::Io { what, source }
}

/// Proof that the calling thread is in a network namespace of its own. Threads it spawns are in it too;
/// threads that exist already are not.
#[derive(Debug)]
pub struct PrivateNet {
    /// The namespace is the thread's.
    _thread: PhantomData<*const ()>,
}

/// Moves the calling thread into a new network namespace (through a user namespace if needed) and brings
/// its loopback interface up.
///
/// # Errors
/// Named precisely: see [`PrivateNetError`].
pub fn enter_private_net() -> Result<PrivateNet, PrivateNetError> {
    match sys::unshare(libc::CLONE_NEWNET) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => enter_by_user_namespace()?,
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Err(PrivateNetError::NotInKernel),
        Err(e) => return Err(PrivateNetError::Forbidden(e)),
    }
    let net = PrivateNet { _thread: PhantomData };
    Interface::of("lo")
        .and_then(|lo| lo.set_up())
        .map_err(failed("cannot bring up lo in the private network"))?;
    Ok(net)
}

fn enter_by_user_namespace() -> Result<(), PrivateNetError> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET).map_err(why_not)?;
    // Our own ids stay what they are; without the map they would be those of nobody. `setgroups` must be
    // denied before an unprivileged process may map its group (user_namespaces(7)).
    let map =
        |path: &str, line: String| std::fs::write(path, line).map_err(failed(format!("cannot write {path}")));
    map("/proc/self/setgroups", "deny".to_owned())?;
    map("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    map("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// The sysctls by which machines forbid user namespaces, and what they must not be.
const SWITCHES: [(&str, &str, &str, &str); 3] = [
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone", "1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "kernel.apparmor_restrict_unprivileged_userns",
        "0",
    ),
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces", "10000"),
];

fn why_not(e: io::Error) -> PrivateNetError {
    for (path, forbids, key, wanted) in SWITCHES {
        let value = std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        if value == forbids {
            return PrivateNetError::Disabled { path, value, key, wanted };
        }
    }
    match e.raw_os_error() {
        Some(libc::EINVAL) if threads() > 1 => PrivateNetError::Threads,
        Some(libc::EINVAL) => PrivateNetError::NotInKernel,
        _ => PrivateNetError::Forbidden(e),
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

impl PrivateNet {
    /// A TAP (or TUN) in this namespace whose kernel side is up and has `addresses` (each with its prefix
    /// length).
    ///
    /// # Errors
    /// No TAP ([`PrivateNetError::Tap`]), or an address the kernel does not take.
    pub fn tap(&self, config: TapConfig, addresses: &[(IpAddr, u8)]) -> Result<TapDevice, PrivateNetError> {
        let tap = TapDevice::open(config)?;
        let what =
            |verb: &str| failed(format!("cannot {verb} interface `{}` of the private network", tap.name()));
        let interface = Interface::of(tap.name()).map_err(what("find"))?;
        interface.no_duplicate_detection();
        interface.set_up().map_err(what("bring up"))?;
        for (addr, prefix) in addresses {
            let what = what(&format!("give {addr}/{prefix} to"));
            interface.add_addr(*addr, *prefix).map_err(what)?;
            wait_until_usable(*addr);
        }
        Ok(tap)
    }
}

/// IPv6 addresses are tentative until a work item of the kernel has run, even without duplicate detection,
/// and cannot be bound before. Waits for that, two seconds at most (with duplicate detection it takes one).
fn wait_until_usable(addr: IpAddr) {
    let deadline = Instant::now() + Duration::from_secs(2);
    while UdpSocket::bind((addr, 0)).is_err() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The kernel's side of an interface, in the calling thread's namespace. Changing it needs
/// `CAP_NET_ADMIN` there.
#[derive(Debug)]
pub struct Interface {
    name: String,
    index: i32,
    socket: OwnedFd,
}

impl Interface {
    /// Finds an interface.
    ///
    /// # Errors
    /// `ENODEV`: there is none of that name here.
    pub fn of(name: &str) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let index = sys::query(&socket, name, libc::SIOCGIFINDEX)?.index();
        Ok(Self { name: name.to_owned(), index, socket })
    }

    fn request(&self) -> io::Result<IfReq> {
        IfReq::new(&self.name).map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    fn call(&self, req: &mut IfReq, request: libc::c_ulong) -> io::Result<()> {
        req.call(self.socket.as_fd(), request as libc::Ioctl)
    }

    /// Brings it up.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_up(&self) -> io::Result<()> {
        let mut req = sys::query(&self.socket, &self.name, libc::SIOCGIFFLAGS)?;
        req.set_flags(req.flags() | (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short);
        self.call(&mut req, libc::SIOCSIFFLAGS)
    }

    /// Sets its MTU, bytes.
    ///
    /// # Errors
    /// `EPERM`, or `EINVAL` for a size the interface does not take.
    pub fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let mut req = self.request()?;
        req.set_mtu(i32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidInput)?);
        self.call(&mut req, libc::SIOCSIFMTU)
    }

    /// Adds an IPv6 address, or sets the IPv4 address (an interface has one here), with its prefix length.
    ///
    /// # Errors
    /// `EPERM`, `EEXIST`, or `EINVAL` for a prefix longer than the address.
    pub fn add_addr(&self, addr: IpAddr, prefix: u8) -> io::Result<()> {
        match addr {
            IpAddr::V4(addr) => {
                let mask = match prefix {
                    0 => 0,
                    1..=32 => u32::MAX << (32 - prefix),
                    _ => return Err(io::ErrorKind::InvalidInput.into()),
                };
                let mut req = self.request()?;
                req.set_addr(addr);
                self.call(&mut req, libc::SIOCSIFADDR)?;
                let mut req = self.request()?;
                req.set_addr(Ipv4Addr::from_bits(mask));
                self.call(&mut req, libc::SIOCSIFNETMASK)
            }
            IpAddr::V6(addr) => {
                let socket =
                    socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
                sys::add_addr6(socket.as_fd(), self.index, addr, prefix)
            }
        }
    }

    /// Lets IPv6 addresses be used at once, where `/proc/sys` may be written: on a private wire there can
    /// be no duplicates to wait a second for.
    pub fn no_duplicate_detection(&self) {
        for key in ["accept_dad", "dad_transmits"] {
            // Without it addresses are merely late.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{}/{key}", self.name), "0");
        }
    }
}

/// Runs a test in a private network on a thread of its own; as root it must be possible, else the reason
/// is printed and the test skipped.
#[cfg(test)]
pub(crate) fn in_private_net(test: impl FnOnce(PrivateNet) + Send + 'static) {
    let root = rustix::process::geteuid().is_root();
    std::thread::spawn(move || match enter_private_net() {
        Ok(net) => test(net),
        Err(e) if root => panic!("root, and yet: {e}"),
        Err(e) => eprintln!("SKIPPED: {e}"),
    })
    .join()
    .unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_net_has_nothing_in_it_but_loopback() {
        in_private_net(|_net| {
            let dev = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            let names: Vec<&str> =
                dev.lines().filter_map(|l| l.split_once(':')).map(|(n, _)| n.trim()).collect();
            assert!(names.contains(&"lo"));
            assert!(!names.iter().any(|n| n.starts_with("eth") || n.starts_with("tap")), "{names:?}");
            std::net::TcpListener::bind("127.0.0.1:80").unwrap();
        });
    }

    #[test]
    fn an_impossible_prefix_is_refused() {
        in_private_net(|_net| {
            let lo = Interface::of("lo").unwrap();
            assert!(lo.add_addr(Ipv4Addr::LOCALHOST.into(), 33).is_err());
            assert!(lo.add_addr(std::net::Ipv6Addr::LOCALHOST.into(), 129).is_err());
            assert_eq!(Interface::of("nope").err().unwrap().raw_os_error(), Some(libc::ENODEV));
        });
    }

    #[test]
    fn errors_name_the_thing_that_is_missing() {
        let e = PrivateNetError::Disabled {
            path: "/proc/sys/user/max_user_namespaces",
            value: "0".to_owned(),
            key: "user.max_user_namespaces",
            wanted: "10000",
        };
        assert!(e.to_string().contains("/proc/sys/user/max_user_namespaces is 0"), "{e}");
        assert!(PrivateNetError::from(TapError::NoTun).to_string().contains("/dev/net/tun"));
    }
}
