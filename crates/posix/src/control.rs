//! Control messages: what `recvmsg` says beside the bytes.

use stack::skb::Completion;

/// `sizeof(struct cmsghdr)`, and what its data is aligned to.
const HEADER: usize = size_of::<libc::cmsghdr>();
const ALIGN: usize = size_of::<usize>();
/// `SO_EE_ORIGIN_ZEROCOPY`.
const ORIGIN_ZEROCOPY: u8 = 5;

/// Builds the control messages of one call in a room of fixed size.
pub(crate) struct Control {
    bytes: Vec<u8>,
    room: usize,
    /// `MSG_CTRUNC`: something did not fit.
    pub(crate) truncated: bool,
}

impl Control {
    pub(crate) fn new(room: usize) -> Self {
        Self { bytes: Vec::new(), room, truncated: false }
    }

    /// Adds one message; what does not fit is cut, as the kernel does.
    pub(crate) fn put(&mut self, level: i32, kind: i32, data: &[u8]) {
        let left = self.room - self.bytes.len().min(self.room);
        if left < HEADER {
            self.truncated = true;
            return;
        }
        let len = (HEADER + data.len()).min(left);
        self.truncated |= len < HEADER + data.len();
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.extend_from_slice(&level.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&data[..len - HEADER]);
        let padded = self.bytes.len().next_multiple_of(ALIGN).min(self.room);
        self.bytes.resize(padded, 0);
    }

    /// Adds the notification of completed calls, at the level of the socket's family.
    pub(crate) fn put_completion(&mut self, domain: i32, c: &Completion) {
        // struct sock_extended_err: errno, origin, type, code, pad, info, data; then an unspecified address.
        let mut data = Vec::with_capacity(16 + size_of::<libc::sockaddr_in6>());
        data.extend_from_slice(&0u32.to_ne_bytes());
        data.extend_from_slice(&[ORIGIN_ZEROCOPY, 0, c.ee_code(), c.ee_pad()]);
        let (level, kind, address) = match domain {
            libc::AF_INET6 => (libc::SOL_IPV6, libc::IPV6_RECVERR, size_of::<libc::sockaddr_in6>()),
            _ => (libc::SOL_IP, libc::IP_RECVERR, size_of::<libc::sockaddr_in>()),
        };
        data.extend_from_slice(&c.first.to_ne_bytes());
        data.extend_from_slice(&c.last.to_ne_bytes());
        data.resize(data.len() + address, 0);
        self.put(level, kind, &data);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion() -> Completion {
        Completion { first: 3, last: 9, copied: None, device: true }
    }

    #[test]
    fn a_notification_is_laid_out_as_linux_does() {
        let mut c = Control::new(256);
        c.put_completion(libc::AF_INET, &completion());
        let b = c.bytes();
        assert_eq!(b.len(), 48);
        assert_eq!(usize::from_ne_bytes(b[..8].try_into().unwrap()), 48);
        assert_eq!(&b[8..16], [libc::SOL_IP.to_ne_bytes(), libc::IP_RECVERR.to_ne_bytes()].concat());
        assert_eq!(&b[16..24], [0, 0, 0, 0, 5, 0, 0, 11]);
        assert_eq!(&b[24..32], [3u32.to_ne_bytes(), 9u32.to_ne_bytes()].concat());
        assert!(b[32..].iter().all(|b| *b == 0));
        let mut c = Control::new(256);
        c.put_completion(libc::AF_INET6, &completion());
        assert_eq!(usize::from_ne_bytes(c.bytes()[..8].try_into().unwrap()), 16 + 44);
    }

    #[test]
    fn what_does_not_fit_is_cut_and_said() {
        for room in [0, 15] {
            let mut c = Control::new(room);
            c.put(1, 2, &[7; 4]);
            assert!(c.truncated && c.bytes().is_empty());
        }
        let mut c = Control::new(18);
        c.put(1, 2, &[7; 4]);
        assert!(c.truncated);
        assert_eq!((c.bytes()[0], c.bytes().len()), (18, 18));
    }
}
