//! Linux TAP and TUN: the kernel is the other end of the wire.
//!
//! # Theory of operation
//! A packet leaves by one `writev`: virtio header, packet head, each fragment. There is no bounce buffer;
//! the kernel reads our iovecs once, inside the call, and the packet is dropped when it returns. That read
//! is a copy, though not one of ours: it is noted on lent memory as [`Reason::Device`]. The virtio header
//! carries partial checksums and segmentation both ways, so that a 64 KB packet crosses as one.
//!
//! A packet arrives by one `read` into a page large enough for anything. Small ones (up to [`COPYBREAK`])
//! are copied out and the page is read into again; a large one takes the page with it.
//!
//! A frame that comes from a socket of this machine has a partial checksum, because nothing between here
//! and there can damage it: it counts as `Csum::Unnecessary`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use netdev::{Device, DeviceInfo, DeviceRx, DeviceTx, Features, LinkKind, Xmit};
use rand::{Rng, SeedableRng};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use skb::{PageMut, PagePool, Reason, SkBuff};

use crate::sys::{self, BadName, IfReq, IoVecs};

mod vnet;

pub(crate) use vnet::VnetHeader;

/// Frames up to this many bytes do not keep the page they were read into: a queue of 100-byte frames must
/// not hold 66 KB each.
pub const COPYBREAK: usize = 2048;
/// Room for the virtio and link headers around the largest packet.
const HEADERS: usize = 64;

/// Which frames the interface carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TapKind {
    /// Ethernet.
    #[default]
    Tap,
    /// Bare IP packets.
    Tun,
}

/// How to open an interface.
#[derive(Clone, Debug)]
pub struct TapConfig {
    /// Its name, at most 15 bytes. An existing persistent interface is attached to, another is created (and
    /// vanishes with the device). Empty: the kernel chooses. Default empty.
    pub name: String,
    /// Set this MTU, which needs `CAP_NET_ADMIN`; `None` (default) takes what the interface has.
    pub mtu: Option<u32>,
    /// Default TAP.
    pub kind: TapKind,
    /// Checksum and segmentation offload in both directions (`IFF_VNET_HDR`). Default yes.
    pub vnet_hdr: bool,
    /// Let the kernel receive through NAPI and GRO (`IFF_NAPI`). Default no.
    pub napi: bool,
    /// Our station address; `None` (default) makes a random, locally administered one.
    pub mac: Option<[u8; 6]>,
    /// Largest TSO packet, network-layer bytes. Default 65535; more needs a kernel with BIG TCP.
    pub gso_max_size: usize,
    /// Unused large receive pages kept. Default 64 (of 66 KB).
    pub rx_pool: usize,
}

impl Default for TapConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            mtu: None,
            kind: TapKind::Tap,
            vnet_hdr: true,
            napi: false,
            mac: None,
            gso_max_size: 65535,
            rx_pool: 64,
        }
    }
}

/// Why an interface could not be opened. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// There is no `/dev/net/tun`.
    #[error(
        "there is no /dev/net/tun: load the module (`modprobe tun`), or hand the device to the container (`--device /dev/net/tun`)"
    )]
    NoTun,
    /// `/dev/net/tun` may not be opened.
    #[error(
        "/dev/net/tun may not be opened by this user: `chmod 0666 /dev/net/tun` (its usual mode), or run as root"
    )]
    TunDenied,
    /// Neither privileged nor the owner.
    #[error(
        "no permission on interface `{0}`: it needs CAP_NET_ADMIN or ownership of the persistent TAP: `ip tuntap add {0} mode tap user $USER`"
    )]
    NotPermitted(String),
    /// Another process has it.
    #[error("interface `{0}` is in use by another process: stop that one, or take another name")]
    Busy(String),
    /// 15 bytes are the most.
    #[error("interface name `{0}` is too long: at most 15 bytes")]
    NameTooLong(String),
    /// Not a name the kernel takes.
    #[error("`{0}` cannot be an interface name: no slash, colon or white space, nor `.` and `..`")]
    BadName(String),
    /// The name belongs to something else.
    #[error(
        "interface `{0}` exists and is of another kind (TUN or TAP, multi-queue, or no TUN at all): take another name, or delete it with `ip link del {0}`"
    )]
    OtherKind(String),
    /// Anything else, with what was being done.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, and to what.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl TapError {
    fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::Io { what: what.into(), source: source.into() }
    }

    fn set_iff(name: &str, source: io::Error) -> Self {
        let name_owned = name.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM) => Self::NotPermitted(name_owned),
            Some(libc::EBUSY) => Self::Busy(name_owned),
            Some(libc::EINVAL | libc::EEXIST) => Self::OtherKind(name_owned),
            _ => Self::io(format!("cannot attach to interface `{name}`"), source),
        }
    }
}

/// An open interface.
#[derive(Debug)]
pub struct TapDevice {
    fd: Arc<OwnedFd>,
    info: DeviceInfo,
    vnet: bool,
    rx_pool: usize,
}

impl TapDevice {
    /// Opens (attaches to, or creates) an interface in the calling thread's network namespace.
    ///
    /// # Errors
    /// See [`TapError`].
    pub fn open(config: TapConfig) -> Result<Self, TapError> {
        let mut req = IfReq::new(&config.name).map_err(|bad| match bad {
            BadName::TooLong => TapError::NameTooLong(config.name.clone()),
            BadName::Characters => TapError::BadName(config.name.clone()),
        })?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty()).map_err(|e| match e {
            rustix::io::Errno::NOENT | rustix::io::Errno::NODEV | rustix::io::Errno::NXIO => TapError::NoTun,
            rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => TapError::TunDenied,
            e => TapError::io("cannot open /dev/net/tun", e),
        })?;
        let mut iff = libc::IFF_NO_PI;
        iff |= if config.kind == TapKind::Tap { libc::IFF_TAP } else { libc::IFF_TUN };
        iff |= if config.vnet_hdr { libc::IFF_VNET_HDR } else { 0 };
        iff |= if config.napi { libc::IFF_NAPI } else { 0 };
        req.set_flags(iff as libc::c_short);
        req.call(fd.as_fd(), libc::TUNSETIFF).map_err(|e| TapError::set_iff(&config.name, e))?;
        Self::finish(fd, &req.name(), &config)
    }

    /// Takes over a descriptor that is already attached to an interface (by a helper with privileges). What
    /// it is, the kernel says; of `config` count `mtu`, `mac`, `gso_max_size` and `rx_pool`.
    ///
    /// # Errors
    /// It is not attached to an interface, or carries a packet-information header.
    pub fn from_fd(fd: OwnedFd, config: TapConfig) -> Result<Self, TapError> {
        let mut req = IfReq::new("").map_err(|_| TapError::BadName(String::new()))?;
        req.call(fd.as_fd(), libc::TUNGETIFF)
            .map_err(|e| TapError::io("the descriptor is not an attached TUN", e))?;
        let flags = libc::c_int::from(req.flags());
        if flags & libc::IFF_NO_PI == 0 {
            return Err(TapError::OtherKind(req.name()));
        }
        let old = rustix::fs::fcntl_getfl(&fd).map_err(|e| TapError::io("fcntl", e))?;
        rustix::fs::fcntl_setfl(&fd, old | OFlags::NONBLOCK).map_err(|e| TapError::io("fcntl", e))?;
        let kind = if flags & libc::IFF_TAP != 0 { TapKind::Tap } else { TapKind::Tun };
        let vnet_hdr = flags & libc::IFF_VNET_HDR != 0;
        Self::finish(fd, &req.name(), &TapConfig { kind, vnet_hdr, ..config })
    }

    fn finish(fd: OwnedFd, name: &str, config: &TapConfig) -> Result<Self, TapError> {
        let mut features = Features::SG;
        if config.vnet_hdr {
            let set = |e| TapError::io(format!("cannot set up offloads of `{name}`"), e);
            sys::tun_set_vnet_header(fd.as_fd(), VnetHeader::LEN as libc::c_int).map_err(set)?;
            sys::tun_set_offload(fd.as_fd(), libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6)
                .map_err(set)?;
            features |=
                Features::CSUM | Features::TSO4 | Features::TSO6 | Features::RXCSUM | Features::GRO_HW;
        }
        // Its default already; then a write never answers EAGAIN, as hardware with an endless ring.
        let _ = sys::tun_set_sndbuf(fd.as_fd(), libc::c_int::MAX);
        let mtu = match config.mtu {
            Some(mtu) => {
                crate::netns::Interface::of(name).and_then(|i| i.set_mtu(mtu)).map_err(|e| {
                    match e.raw_os_error() {
                        Some(libc::EPERM) => TapError::NotPermitted(name.to_owned()),
                        _ => TapError::io(format!("cannot set the MTU of `{name}` to {mtu}"), e),
                    }
                })?;
                mtu
            }
            None => kernel_mtu(name)?,
        };
        let link = match config.kind {
            TapKind::Tap => LinkKind::Ethernet(config.mac.unwrap_or_else(random_mac)),
            TapKind::Tun => LinkKind::Ip,
        };
        let info =
            DeviceInfo { name: name.to_owned(), mtu, link, features, gso_max_size: config.gso_max_size };
        Ok(Self { fd: Arc::new(fd), info, vnet: config.vnet_hdr, rx_pool: config.rx_pool })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// The kernel's own station address on this wire (all zeroes on a TUN).
    ///
    /// # Errors
    /// The interface is in another namespace than the calling thread, or gone.
    pub fn kernel_mac(&self) -> io::Result<[u8; 6]> {
        Ok(sys::query(probe()?, self.name(), libc::SIOCGIFHWADDR)?.hwaddr())
    }

    /// Keeps the interface when its last descriptor is closed, and lets the calling user open it again without
    /// privileges.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN` over the interface's namespace.
    pub fn persist_for_owner(&self) -> io::Result<()> {
        sys::tun_set_owner(self.fd.as_fd(), rustix::process::geteuid().as_raw())?;
        sys::tun_set_persist(self.fd.as_fd())
    }

    pub(crate) fn vnet(&self) -> bool {
        self.vnet
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A socket to ask about interfaces through.
fn probe() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

fn kernel_mtu(name: &str) -> Result<u32, TapError> {
    let what = || format!("cannot read the MTU of `{name}`");
    let socket = probe().map_err(|e| TapError::io(what(), e))?;
    let req = sys::query(socket, name, libc::SIOCGIFMTU).map_err(|e| TapError::io(what(), e))?;
    u32::try_from(req.mtu()).map_err(|_| TapError::io(what(), io::ErrorKind::InvalidData))
}

fn random_mac() -> [u8; 6] {
    let mut mac: [u8; 6] = rand::rngs::SmallRng::from_os_rng().random();
    // Not a group address, and locally administered: IEEE 802, clause 8.2.
    mac[0] = (mac[0] & !1) | 2;
    mac
}

impl Device for TapDevice {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn open(self: Box<Self>) -> (Box<dyn DeviceTx>, Box<dyn DeviceRx>) {
        let blocked = Arc::new(AtomicBool::new(false));
        let largest = self.info.gso_max_size.max(65535).max(self.info.mtu as usize) + HEADERS;
        let rx = TapRx {
            fd: self.fd.clone(),
            vnet: self.vnet,
            blocked: blocked.clone(),
            large: PagePool::new(largest, self.rx_pool),
            small: PagePool::new(COPYBREAK, 512),
            page: None,
            dead: false,
        };
        let ethernet = matches!(self.info.link, LinkKind::Ethernet(_));
        (Box::new(TapTx { fd: self.fd, vnet: self.vnet, ethernet, blocked }), Box::new(rx))
    }
}

struct TapTx {
    fd: Arc<OwnedFd>,
    vnet: bool,
    ethernet: bool,
    blocked: Arc<AtomicBool>,
}

impl DeviceTx for TapTx {
    fn start_xmit(&mut self, skb: SkBuff) -> Xmit {
        let header = VnetHeader::of(&skb, self.ethernet).to_bytes();
        let mut iov = IoVecs::new();
        if self.vnet {
            iov.push_slice(&header);
        }
        iov.push_slice(skb.head());
        for frag in skb.frags() {
            iov.push_frag(frag);
        }
        let result = loop {
            match iov.write(self.fd.as_fd()) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match result {
            Ok(_) => {
                skb.mark(Reason::Device);
                Xmit::Sent
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.blocked.store(true, Ordering::SeqCst);
                Xmit::Busy(skb)
            }
            // EFAULT: lent memory was unmapped. EIO: the interface is down. EINVAL: not an offload this
            // kernel knows. The packet is lost, as on a wire.
            Err(e) => Xmit::Failed(e),
        }
    }
}

struct TapRx {
    fd: Arc<OwnedFd>,
    vnet: bool,
    blocked: Arc<AtomicBool>,
    large: Arc<PagePool>,
    small: Arc<PagePool>,
    /// Read into next.
    page: Option<PageMut>,
    /// The interface is gone: its descriptor would be readable for ever.
    dead: bool,
}

impl TapRx {
    fn read(&mut self) -> Option<SkBuff> {
        let mut page = self.page.take().unwrap_or_else(|| self.large.alloc());
        let n = loop {
            match rustix::io::read(&*self.fd, &mut page[..]) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other,
            }
        };
        let n = match n {
            Ok(n) => n,
            Err(e) => {
                self.page = Some(page);
                self.dead |= e != rustix::io::Errno::AGAIN && e != rustix::io::Errno::IO;
                return None;
            }
        };
        let header = if self.vnet { VnetHeader::LEN } else { 0 };
        let vnet = page.first_chunk().filter(|_| self.vnet).map(VnetHeader::from_bytes);
        let frame = page.get(header..n).unwrap_or(&[]);
        let meta = vnet.map(|v| v.received(frame));
        let mut skb = if frame.len() > COPYBREAK {
            SkBuff::from_frag(page.freeze(header..n))
        } else {
            let skb = self.copy_out(frame);
            self.page = Some(page);
            skb
        };
        if let Some((csum, gso)) = meta {
            (skb.csum, skb.gso) = (csum, gso);
        }
        Some(skb)
    }

    fn copy_out(&self, frame: &[u8]) -> SkBuff {
        // Acknowledgments and the like fit into the head.
        if frame.len() <= skb::HEAD_SIZE - skb::HEADROOM {
            return SkBuff::from_slice(frame);
        }
        let mut small = self.small.alloc();
        if let Some(room) = small.get_mut(..frame.len()) {
            room.copy_from_slice(frame);
        }
        SkBuff::from_frag(small.freeze(0..frame.len()))
    }
}

impl DeviceRx for TapRx {
    fn poll_rx(&mut self, budget: usize, out: &mut Vec<SkBuff>) -> usize {
        let before = out.len();
        while out.len() - before < budget {
            match self.read() {
                Some(skb) if skb.is_empty() => {}
                Some(skb) => out.push(skb),
                None => break,
            }
        }
        out.len() - before
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.dead).then(|| self.fd.as_fd())
    }

    /// The descriptor is level-triggered by the kernel, so there is nothing to prepare; only room for a
    /// blocked sender needs a look. As long as there is none the stack does not sleep: that is the one
    /// state the descriptor cannot report, and with the send buffer at its maximum it does not occur.
    fn arm(&mut self) -> bool {
        if !self.blocked.load(Ordering::SeqCst) {
            return true;
        }
        let soon = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        if poll(&mut [PollFd::new(&*self.fd, PollFlags::OUT)], Some(&soon)) == Ok(1) {
            self.blocked.store(false, Ordering::SeqCst);
        }
        false
    }
}

#[cfg(test)]
mod tests;
