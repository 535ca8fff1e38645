//! Socket addresses between C's layout and ours.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::errno::{Errno, Result};
use crate::user;

const V4_LEN: usize = size_of::<libc::sockaddr_in>();
const V6_LEN: usize = size_of::<libc::sockaddr_in6>();
/// As Linux: an IPv6 address without its scope is taken too.
const V6_LEN_MIN: usize = V6_LEN - 4;

/// What a `sockaddr` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// `AF_UNSPEC`: no address; `connect` with it disconnects.
    Unspecified,
    /// An address.
    Ip(SocketAddr),
}

/// Reads the `sockaddr` in `bytes`, given to a socket of `domain`.
pub(crate) fn parse(bytes: &[u8], domain: i32) -> Result<Name> {
    let family = bytes.first_chunk().map(|b| u16::from_ne_bytes(*b)).ok_or(Errno::INVAL)?;
    match i32::from(family) {
        libc::AF_UNSPEC => Ok(Name::Unspecified),
        libc::AF_INET if bytes.len() >= V4_LEN => {
            // SAFETY-free: fields by position, as netinet/in.h lays them out.
            let port = u16::from_be_bytes([bytes[2], bytes[3]]);
            let ip = Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]);
            match domain {
                libc::AF_INET => Ok(Name::Ip(SocketAddr::V4(SocketAddrV4::new(ip, port)))),
                _ => Err(Errno::AFNOSUPPORT),
            }
        }
        libc::AF_INET6 if bytes.len() >= V6_LEN_MIN => {
            let port = u16::from_be_bytes([bytes[2], bytes[3]]);
            let ip: [u8; 16] = bytes[8..24].try_into().map_err(|_| Errno::INVAL)?;
            let scope = bytes.get(24..28).map_or(0, |s| u32::from_ne_bytes([s[0], s[1], s[2], s[3]]));
            match domain {
                libc::AF_INET6 => {
                    Ok(Name::Ip(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope))))
                }
                _ => Err(Errno::AFNOSUPPORT),
            }
        }
        libc::AF_INET | libc::AF_INET6 => Err(Errno::INVAL),
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// The `sockaddr` of `addr` for a socket of `domain`: an `AF_INET6` socket sees IPv4 addresses mapped.
pub(crate) fn to_bytes(addr: SocketAddr, domain: i32) -> Vec<u8> {
    if domain == libc::AF_INET6 {
        let (ip, scope) = match addr {
            SocketAddr::V4(a) => (a.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(a) => (*a.ip(), a.scope_id()),
        };
        let mut out = vec![0; V6_LEN];
        out[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        out[2..4].copy_from_slice(&addr.port().to_be_bytes());
        out[8..24].copy_from_slice(&ip.octets());
        out[24..28].copy_from_slice(&scope.to_ne_bytes());
        return out;
    }
    let ip = match addr.ip().to_canonical() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    };
    let mut out = vec![0; V4_LEN];
    out[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    out[2..4].copy_from_slice(&addr.port().to_be_bytes());
    out[4..8].copy_from_slice(&ip.octets());
    out
}

/// The address of a socket of `domain` that has none.
pub(crate) fn any(domain: i32) -> SocketAddr {
    let ip = if domain == libc::AF_INET6 {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    };
    SocketAddr::new(ip, 0)
}

/// Reads a `sockaddr` argument.
///
/// # Safety
/// `ptr` is null or readable for `len` bytes.
#[allow(unsafe_code)]
pub(crate) unsafe fn read(ptr: *const libc::sockaddr, len: libc::socklen_t) -> Result<Vec<u8>> {
    // As the kernel: no sockaddr is longer than a sockaddr_storage.
    let len = usize::try_from(len).ok().filter(|n| *n <= size_of::<libc::sockaddr_storage>());
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    unsafe { user::read_bytes(ptr.cast(), len.ok_or(Errno::INVAL)?) }
}

/// Writes `addr` to a `sockaddr` result: cut to the room there, its true length noted. A null `ptr` wants none.
///
/// # Safety
/// `ptr` is null, or `len` points at the length of the room behind it.
#[allow(unsafe_code)]
pub(crate) unsafe fn write(ptr: *mut libc::sockaddr, len: *mut libc::socklen_t, addr: &[u8]) -> Result<()> {
    if ptr.is_null() {
        return Ok(());
    }
    // SAFETY: the caller's promise. Test: test_names and others of sockets.py.
    unsafe {
        let room = user::read(len)?;
        let room = usize::try_from(room as i32).map_err(|_| Errno::INVAL)?;
        user::write_bytes(ptr.cast(), room, addr)?;
        user::write(len, addr.len() as libc::socklen_t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for (text, domain) in [("1.2.3.4:5", libc::AF_INET), ("[fe80::1]:80", libc::AF_INET6)] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(parse(&to_bytes(addr, domain), domain), Ok(Name::Ip(addr)));
        }
    }

    #[test]
    fn an_ipv6_socket_sees_ipv4_mapped() {
        let bytes = to_bytes("1.2.3.4:5".parse().unwrap(), libc::AF_INET6);
        assert_eq!(parse(&bytes, libc::AF_INET6), Ok(Name::Ip("[::ffff:1.2.3.4]:5".parse().unwrap())));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        assert_eq!(parse(&[], libc::AF_INET), Err(Errno::INVAL));
        assert_eq!(
            parse(&to_bytes(any(libc::AF_INET), libc::AF_INET)[..15], libc::AF_INET),
            Err(Errno::INVAL)
        );
        assert_eq!(parse(&[1, 0, 0, 0], libc::AF_INET), Err(Errno::AFNOSUPPORT), "AF_UNIX");
        assert_eq!(parse(&[0, 0], libc::AF_INET), Ok(Name::Unspecified));
    }
}
