//! The TCP header (RFC 9293, 3.1) and its options (RFC 9293, 7323, 2018).

use arrayvec::ArrayVec;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{SeqNum, WireError};

bitflags::bitflags! {
    /// Control bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct TcpFlags: u8 {
        /// No more data from the sender.
        const FIN = 0x01;
        /// Synchronize sequence numbers.
        const SYN = 0x02;
        /// Reset the connection.
        const RST = 0x04;
        /// Push.
        const PSH = 0x08;
        /// The acknowledgment number counts.
        const ACK = 0x10;
        /// The urgent pointer counts.
        const URG = 0x20;
        /// ECN echo.
        const ECE = 0x40;
        /// Congestion window reduced.
        const CWR = 0x80;
    }
}

/// The fixed part, as it lies on the wire.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Fixed {
    src_port: U16,
    dst_port: U16,
    seq: U32,
    ack: U32,
    /// Data offset in the high four bits, in 32-bit words.
    offset: u8,
    flags: u8,
    window: U16,
    checksum: U16,
    urgent: U16,
}

/// Bytes of a header without options.
pub const MIN_HEADER_LEN: usize = size_of::<Fixed>();
/// Bytes of the longest header.
pub const MAX_HEADER_LEN: usize = 60;
/// Where the checksum field lies.
pub const CHECKSUM_OFFSET: usize = 16;

mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
    pub(super) const FAST_OPEN: u8 = 34;
}

/// The timestamps option (RFC 7323, 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub val: u32,
    /// TSecr: the peer's clock, echoed.
    pub ecr: u32,
}

/// A Fast Open cookie (RFC 7413, 4.1.1), 4 to 16 bytes; empty to ask for one.
pub type Cookie = ArrayVec<u8, 16>;

/// The options this stack understands. Others are skipped.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TcpOptions {
    /// Maximum segment size in bytes.
    pub mss: Option<u16>,
    /// Window scale shift, 14 at most (larger ones are read as 14, as RFC 7323, 2.3 says).
    pub window_scale: Option<u8>,
    /// SACK may be used.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// SACK blocks, `[start, end)`.
    pub sack: ArrayVec<(SeqNum, SeqNum), 4>,
    /// Fast Open.
    pub fast_open: Option<Cookie>,
}

/// A TCP header, understood.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TcpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first byte (or of SYN).
    pub seq: SeqNum,
    /// Next byte expected from the peer, if ACK is set.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: TcpFlags,
    /// Window, not scaled.
    pub window: u16,
    /// Urgent pointer, if URG is set.
    pub urgent: u16,
    /// Options.
    pub options: TcpOptions,
}

impl TcpHeader {
    /// Reads a header and says how long it is. Options with an impossible length end the parsing of
    /// options, as in Linux; a data offset outside the header is an error.
    pub fn parse(bytes: &[u8]) -> Result<(TcpHeader, usize), WireError> {
        let (fixed, rest) = Fixed::ref_from_prefix(bytes).map_err(|_| WireError::TooShort)?;
        let len = usize::from(fixed.offset >> 4) * 4;
        let options = len.checked_sub(MIN_HEADER_LEN).ok_or(WireError::BadLength)?;
        let options = rest.get(..options).ok_or(WireError::BadLength)?;
        let header = TcpHeader {
            src_port: fixed.src_port.get(),
            dst_port: fixed.dst_port.get(),
            seq: SeqNum(fixed.seq.get()),
            ack: SeqNum(fixed.ack.get()),
            flags: TcpFlags::from_bits_retain(fixed.flags),
            window: fixed.window.get(),
            urgent: fixed.urgent.get(),
            options: TcpOptions::parse(options),
        };
        Ok((header, len))
    }

    /// Bytes that [`emit`](Self::emit) writes.
    pub fn header_len(&self) -> usize {
        MIN_HEADER_LEN + self.options.len()
    }

    /// Writes the header, checksum 0, into the first [`header_len`](Self::header_len) bytes of `out`, which
    /// must be zeroed. A shorter `out` is left as it is.
    pub fn emit(&self, out: &mut [u8]) {
        let len = self.header_len();
        let Some(out) = out.get_mut(..len) else { return };
        let fixed = Fixed {
            src_port: self.src_port.into(),
            dst_port: self.dst_port.into(),
            seq: self.seq.0.into(),
            ack: self.ack.0.into(),
            offset: ((len / 4) as u8) << 4,
            flags: self.flags.bits(),
            window: self.window.into(),
            checksum: 0.into(),
            urgent: self.urgent.into(),
        };
        let (front, options) = out.split_at_mut(MIN_HEADER_LEN);
        front.copy_from_slice(fixed.as_bytes());
        self.options.emit(options);
    }
}

impl TcpOptions {
    fn parse(mut bytes: &[u8]) -> TcpOptions {
        let mut options = TcpOptions::default();
        while let Some((&k, rest)) = bytes.split_first() {
            if k == kind::END {
                break;
            }
            if k == kind::NOP {
                bytes = rest;
                continue;
            }
            let Some(len) = rest.first().map(|l| usize::from(*l)).filter(|l| *l >= 2) else { break };
            let Some(body) = bytes.get(2..len) else { break };
            options.understand(k, body);
            bytes = bytes.get(len..).unwrap_or(&[]);
        }
        options
    }

    fn understand(&mut self, k: u8, body: &[u8]) {
        match (k, body.len()) {
            (kind::MSS, 2) => self.mss = U16::read_from_bytes(body).ok().map(U16::get),
            (kind::WINDOW_SCALE, 1) => self.window_scale = body.first().map(|s| (*s).min(14)),
            (kind::SACK_PERMITTED, 0) => self.sack_permitted = true,
            (kind::TIMESTAMPS, 8) => {
                self.timestamps = <[U32; 2]>::read_from_bytes(body)
                    .ok()
                    .map(|[val, ecr]| Timestamps { val: val.get(), ecr: ecr.get() });
            }
            (kind::FAST_OPEN, n) if n == 0 || (4..=16).contains(&n) => {
                self.fast_open = Cookie::try_from(body).ok();
            }
            (kind::SACK, n) if n % 8 == 0 => {
                for block in body.chunks_exact(8) {
                    if let Ok([a, b]) = <[U32; 2]>::read_from_bytes(block) {
                        // At most four fit into a header.
                        let _ = self.sack.try_push((SeqNum(a.get()), SeqNum(b.get())));
                    }
                }
            }
            _ => {}
        }
    }

    /// Bytes of the options, padded to whole words.
    pub fn len(&self) -> usize {
        let mut len = 0;
        len += if self.mss.is_some() { 4 } else { 0 };
        len += if self.window_scale.is_some() { 4 } else { 0 };
        len += match (self.sack_permitted, self.timestamps) {
            (true, None) => 4,
            (_, Some(_)) => 12,
            (false, None) => 0,
        };
        len += match self.sack.len() {
            0 => 0,
            n => 4 + 8 * n,
        };
        len += self.fast_open.as_ref().map_or(0, |c| (2 + c.len()).next_multiple_of(4));
        len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Laid out as Linux does: words whole, SACK-permitted in the padding of the timestamps.
    fn emit(&self, out: &mut [u8]) {
        let mut w = Writer(out);
        if let Some(mss) = self.mss {
            w.put(&[kind::MSS, 4]);
            w.put(&mss.to_be_bytes());
        }
        if let Some(t) = self.timestamps {
            w.put(if self.sack_permitted { &[kind::SACK_PERMITTED, 2] } else { &[kind::NOP, kind::NOP] });
            w.put(&[kind::TIMESTAMPS, 10]);
            w.put(&t.val.to_be_bytes());
            w.put(&t.ecr.to_be_bytes());
        } else if self.sack_permitted {
            w.put(&[kind::NOP, kind::NOP, kind::SACK_PERMITTED, 2]);
        }
        if let Some(shift) = self.window_scale {
            w.put(&[kind::NOP, kind::WINDOW_SCALE, 3, shift]);
        }
        if !self.sack.is_empty() {
            w.put(&[kind::NOP, kind::NOP, kind::SACK, 2 + 8 * self.sack.len() as u8]);
            for (a, b) in &self.sack {
                w.put(&a.0.to_be_bytes());
                w.put(&b.0.to_be_bytes());
            }
        }
        if let Some(cookie) = &self.fast_open {
            let len = 2 + cookie.len();
            w.put(&[kind::FAST_OPEN, len as u8]);
            w.put(cookie);
            for _ in len..len.next_multiple_of(4) {
                w.put(&[kind::NOP]);
            }
        }
    }
}

/// Writes front to back; what does not fit is left out (lengths are computed before).
struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let out = core::mem::take(&mut self.0);
        if let Some((now, later)) = out.split_at_mut_checked(bytes.len()) {
            now.copy_from_slice(bytes);
            self.0 = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn options() -> impl Strategy<Value = TcpOptions> {
        let sack = prop::collection::vec((any::<u32>(), any::<u32>()), 0..=2);
        let ts = prop::option::of((any::<u32>(), any::<u32>()));
        (prop::option::of(any::<u16>()), prop::option::of(0u8..=14), any::<bool>(), ts, sack).prop_map(
            |(mss, window_scale, sack_permitted, ts, sack)| TcpOptions {
                mss,
                window_scale,
                sack_permitted,
                timestamps: ts.map(|(val, ecr)| Timestamps { val, ecr }),
                // Where there is room: empty, even and odd ones.
                fast_open: mss
                    .filter(|_| sack.is_empty())
                    .map(|m| (0..[0, 8, 5, 16][usize::from(m) % 4]).collect()),
                sack: sack.into_iter().map(|(a, b)| (SeqNum(a), SeqNum(b))).collect(),
            },
        )
    }

    proptest! {
        #[test]
        fn a_header_survives_the_wire(
            ports: (u16, u16), seq: u32, ack: u32, flags: u8, window: u16, urgent: u16, options in options()
        ) {
            let header = TcpHeader {
                src_port: ports.0, dst_port: ports.1, seq: SeqNum(seq), ack: SeqNum(ack),
                flags: TcpFlags::from_bits_retain(flags), window, urgent, options,
            };
            let mut bytes = vec![0; header.header_len()];
            header.emit(&mut bytes);
            prop_assert_eq!(bytes.len() % 4, 0);
            prop_assert_eq!(TcpHeader::parse(&bytes), Ok((header, bytes.len())));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((header, len)) = TcpHeader::parse(&bytes) {
                prop_assert!(len <= bytes.len() && header.options.sack.len() <= 4);
            }
        }
    }

    #[test]
    fn an_option_of_impossible_length_ends_the_options() {
        let mut bytes = [0u8; 32];
        bytes[12] = 8 << 4;
        bytes[20..28].copy_from_slice(&[kind::NOP, kind::WINDOW_SCALE, 3, 99, kind::MSS, 1, 0, 0]);
        let (h, _) = TcpHeader::parse(&bytes).unwrap();
        assert_eq!((h.options.window_scale, h.options.mss), (Some(14), None));
        bytes[12] = 4 << 4;
        assert_eq!(TcpHeader::parse(&bytes), Err(WireError::BadLength));
        bytes[12] = 15 << 4;
        assert_eq!(TcpHeader::parse(&bytes), Err(WireError::BadLength));
    }
}
