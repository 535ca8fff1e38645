//! The system calls that `rustix` does not have: TUN and interface ioctls, `unshare`, and `writev` from
//! memory that is not ours.
//!
//! Contract. Every `ifreq` is built here, zeroed and with a terminated name, and is read back only through
//! the union member that the ioctl filled. Memory named by an [`IoVecs`] is only ever *read by the kernel*:
//! no reference to it is made, so it may change or even vanish during the call (`EFAULT`).
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use skb::{Frag, MAX_SKB_FRAGS};

/// Device header, packet head, fragments.
const MAX_IOVECS: usize = MAX_SKB_FRAGS + 2;

/// Spans to be written as one packet. The lifetime is that of the owners of all of them.
pub(crate) struct IoVecs<'a> {
    list: [libc::iovec; MAX_IOVECS],
    used: usize,
    /// Lent memory stays where it is until the packet is written.
    _look: skb::evict::Touching,
    owners: PhantomData<&'a ()>,
}

impl<'a> IoVecs<'a> {
    pub(crate) fn new() -> Self {
        const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self { list: [EMPTY; MAX_IOVECS], used: 0, _look: skb::evict::touching(), owners: PhantomData }
    }

    fn push(&mut self, base: *const u8, len: usize) {
        // Never over: a packet has at most MAX_SKB_FRAGS fragments. If it had more it would go out
        // short, which the receiver's checksum finds.
        debug_assert!(self.used < MAX_IOVECS);
        if let (Some(slot), 1..) = (self.list.get_mut(self.used), len) {
            *slot = libc::iovec { iov_base: base.cast_mut().cast(), iov_len: len };
            self.used += 1;
        }
    }

    pub(crate) fn push_slice(&mut self, bytes: &'a [u8]) {
        self.push(bytes.as_ptr(), bytes.len());
    }

    pub(crate) fn push_frag(&mut self, frag: &'a Frag) {
        let (base, len) = frag.as_iovec();
        self.push(base, len);
    }

    /// One `writev`.
    pub(crate) fn write(&self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        // SAFETY: the first `used` entries name memory whose owners are borrowed for 'a, which outlives
        // this call; the kernel only reads it, and checks each address itself. `used` is at most the
        // array's length. Test: writev_sends_slices_and_fragments_as_one_packet.
        let n = unsafe { libc::writev(fd.as_raw_fd(), self.list.as_ptr(), self.used as libc::c_int) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }
}

/// Why a name cannot be an interface's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadName {
    TooLong,
    Characters,
}

/// An interface request with `name` in it. An empty name is allowed: the kernel chooses.
pub(crate) struct IfReq(libc::ifreq);

impl IfReq {
    pub(crate) fn new(name: &str) -> Result<Self, BadName> {
        if name.len() >= libc::IFNAMSIZ {
            return Err(BadName::TooLong);
        }
        let bad = |b: u8| b == b'/' || b == b':' || b.is_ascii_whitespace() || b.is_ascii_control();
        if name.bytes().any(bad) || name == "." || name == ".." {
            return Err(BadName::Characters);
        }
        // SAFETY: ifreq is plain old data, for which all zeroes is a value.
        // Test: an_interface_name_is_checked.
        let mut req: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in req.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        Ok(Self(req))
    }

    pub(crate) fn name(&self) -> String {
        let bytes = self.0.ifr_name.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect::<Vec<u8>>();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn set_flags(&mut self, flags: libc::c_short) {
        self.0.ifr_ifru.ifru_flags = flags;
    }

    pub(crate) fn flags(&self) -> libc::c_short {
        // SAFETY: the union is plain integers and addresses, all initialised by `zeroed` or the kernel; any
        // bits are a short. Test: the_loopback_interface_answers_ioctls.
        unsafe { self.0.ifr_ifru.ifru_flags }
    }

    pub(crate) fn set_mtu(&mut self, mtu: i32) {
        self.0.ifr_ifru.ifru_mtu = mtu;
    }

    pub(crate) fn mtu(&self) -> i32 {
        // SAFETY: as for `flags`. Test: the_loopback_interface_answers_ioctls.
        unsafe { self.0.ifr_ifru.ifru_mtu }
    }

    pub(crate) fn index(&self) -> i32 {
        // SAFETY: as for `flags`. Test: the_loopback_interface_answers_ioctls.
        unsafe { self.0.ifr_ifru.ifru_ifindex }
    }

    pub(crate) fn hwaddr(&self) -> [u8; 6] {
        // SAFETY: as for `flags`; a sockaddr is plain bytes. Test: the_loopback_interface_answers_ioctls.
        let data = unsafe { self.0.ifr_ifru.ifru_hwaddr.sa_data };
        std::array::from_fn(|i| data[i] as u8)
    }

    pub(crate) fn set_addr(&mut self, addr: Ipv4Addr) {
        let mut data = [0 as libc::c_char; 14];
        // A sockaddr_in: port, then the address in network order.
        for (to, from) in data.iter_mut().skip(2).zip(addr.octets()) {
            *to = from as libc::c_char;
        }
        let family = libc::AF_INET as libc::sa_family_t;
        self.0.ifr_ifru.ifru_addr = libc::sockaddr { sa_family: family, sa_data: data };
    }

    /// An ioctl that takes an ifreq: SIOCGIF*, SIOCSIF*, TUNSETIFF, TUNGETIFF.
    pub(crate) fn call(&mut self, fd: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<()> {
        debug_assert!(request == libc::TUNSETIFF || request == libc::TUNGETIFF || (request >> 8) == 0x89);
        // SAFETY: the requests used with this function (asserted above) read and write one ifreq, which
        // `self.0` is, exclusively borrowed. Test: the_loopback_interface_answers_ioctls.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), request, &raw mut self.0) })
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What the kernel may hand us: a set of `TUN_F_*`.
pub(crate) fn tun_set_offload(fd: BorrowedFd<'_>, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value. Test: tap::tests (they need the offloads).
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags)) })
}

/// Who may attach to the interface besides the privileged.
pub(crate) fn tun_set_owner(fd: BorrowedFd<'_>, uid: libc::uid_t) -> io::Result<()> {
    // SAFETY: TUNSETOWNER takes its argument by value. Test: tap::tests.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOWNER, libc::c_ulong::from(uid)) })
}

/// Keeps the interface when nobody has it open.
pub(crate) fn tun_set_persist(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes its argument by value. Test: tap::tests.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETPERSIST, 1 as libc::c_ulong) })
}

/// Bytes of virtio header in front of each packet, at least 10.
pub(crate) fn tun_set_vnet_header(fd: BorrowedFd<'_>, size: libc::c_int) -> io::Result<()> {
    // SAFETY: TUNSETVNETHDRSZ reads one int. Test: tap::tests.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const size) })
}

/// Bytes in flight on the kernel's side before a write answers `EAGAIN`.
pub(crate) fn tun_set_sndbuf(fd: BorrowedFd<'_>, size: libc::c_int) -> io::Result<()> {
    // SAFETY: TUNSETSNDBUF reads one int. Test: tap::tests.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETSNDBUF, &raw const size) })
}

/// `struct in6_ifreq` of `linux/ipv6.h`.
#[repr(C)]
struct In6IfReq {
    addr: [u8; 16],
    prefix: u32,
    index: libc::c_int,
}

/// Gives interface `index` an IPv6 address. `socket` is an `AF_INET6` one.
pub(crate) fn add_addr6(socket: BorrowedFd<'_>, index: i32, addr: Ipv6Addr, prefix: u8) -> io::Result<()> {
    let req = In6IfReq { addr: addr.octets(), prefix: u32::from(prefix), index };
    // SAFETY: SIOCSIFADDR on an AF_INET6 socket reads one in6_ifreq, which `req` is; on any other socket
    // it would read a 40-byte ifreq out of these 24 bytes, so the family is checked first.
    // Test: tap::tests::both_families_are_configured.
    check(unsafe {
        let mut domain: libc::c_int = 0;
        let mut len = size_of::<libc::c_int>() as libc::socklen_t;
        let fd = socket.as_raw_fd();
        let got =
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &raw mut len);
        if got == 0 && domain != libc::AF_INET6 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if got < 0 { got } else { libc::ioctl(fd, libc::SIOCSIFADDR as libc::Ioctl, &raw const req) }
    })
}

/// `unshare(2)` with namespace flags only.
pub(crate) fn unshare(flags: libc::c_int) -> io::Result<()> {
    const ALLOWED: libc::c_int = libc::CLONE_NEWNET | libc::CLONE_NEWUSER;
    if flags & !ALLOWED != 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: new network and user namespaces change what later system calls of this thread reach, not
    // memory or descriptors (unlike CLONE_FILES or CLONE_VM, refused above).
    // Test: netns::tests::a_private_net_has_nothing_in_it_but_loopback.
    check(unsafe { libc::unshare(flags) })
}

/// An interface ioctl by name that only reads.
pub(crate) fn query(socket: impl AsFd, name: &str, request: libc::c_ulong) -> io::Result<IfReq> {
    let mut req = IfReq::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    req.call(socket.as_fd(), request as libc::Ioctl)?;
    Ok(req)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, socket};

    /// A lent fragment, for tests of devices.
    pub(crate) fn lent(queue: &std::sync::Arc<skb::ErrorQueue>, bytes: &'static [u8]) -> Frag {
        // SAFETY: static memory outlives every owner. Test: this is one.
        let span = unsafe { skb::Span::new(bytes.as_ptr(), bytes.len()) }.unwrap();
        std::sync::Arc::new(queue.begin(bytes.len() as u64, &mut None).unwrap()).frag(span)
    }

    #[test]
    fn writev_sends_slices_and_fragments_as_one_packet() {
        let (a, b) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let frag = Frag::copied_from(b" world").slice(0, 6);
        let mut v = IoVecs::new();
        v.push_slice(b"hel");
        v.push_slice(b"");
        v.push_slice(b"lo");
        v.push_frag(&frag);
        assert_eq!(v.write(a.as_fd()).unwrap(), 11);
        let mut buf = [0; 32];
        assert_eq!(b.recv(&mut buf).unwrap(), 11);
        assert_eq!(&buf[..11], b"hello world");
    }

    #[test]
    fn an_interface_name_is_checked() {
        assert_eq!(IfReq::new("eth0").unwrap().name(), "eth0");
        assert_eq!(IfReq::new("").unwrap().name(), "");
        assert_eq!(IfReq::new("a23456789012345").unwrap().name(), "a23456789012345");
        assert_eq!(IfReq::new("a234567890123456").err(), Some(BadName::TooLong));
        for bad in ["a/b", "a b", "a:b", ".", "..", "a\n"] {
            assert_eq!(IfReq::new(bad).err(), Some(BadName::Characters), "{bad:?}");
        }
    }

    #[test]
    fn the_loopback_interface_answers_ioctls() {
        let s = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        assert!(query(&s, "lo", libc::SIOCGIFMTU).unwrap().mtu() > 1000);
        assert!(query(&s, "lo", libc::SIOCGIFINDEX).unwrap().index() > 0);
        assert_ne!(query(&s, "lo", libc::SIOCGIFFLAGS).unwrap().flags() & libc::IFF_LOOPBACK as i16, 0);
        assert_eq!(query(&s, "lo", libc::SIOCGIFHWADDR).unwrap().hwaddr(), [0; 6]);
        let none = query(&s, "no-such-if", libc::SIOCGIFMTU).err().unwrap();
        assert_eq!(none.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn an_ipv6_address_needs_an_ipv6_socket() {
        let s = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let e = add_addr6(s.as_fd(), 1, Ipv6Addr::LOCALHOST, 128).err().unwrap();
        assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn only_namespaces_can_be_unshared() {
        let e = unshare(libc::CLONE_FILES).err().unwrap();
        assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
    }
}
