//! A TAP driven by hand: the ceiling that the stack over a TAP is measured against.
//!
//! [`RawTcpSender`] opens one TCP connection from an address that nobody has to an ordinary kernel socket,
//! and then writes prebuilt 64 KB segmentation frames of one stream as fast as the receiver's window
//! allows: per frame one `writev` of a virtio header, 54 bytes of headers in which only the sequence number
//! changes, and the payload. It has no timers but one, no congestion control and no options: whatever is
//! slower than this pays for being a stack, whatever is not has reached the device.
//!
//! What is lost is sent again from the first unacknowledged byte, after three duplicate acknowledgments or
//! 200 ms of silence.

use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use netdev::{Device, LinkKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::hdr::{
    ACK, Build, ETH_ARP, ETH_IPV4, ETH_LEN, FIN, Ip, Options, PSH, RST, SYN, Tcp, be16, pseudo,
};
use crate::sys::IoVecs;
use crate::tap::{TapDevice, VnetHeader};

/// IPv4 and TCP headers without options.
const HEADERS: usize = 40;
/// Silence after which everything unacknowledged is sent again.
const TIMEOUT: Duration = Duration::from_millis(200);
/// So many silences in a row, and the peer is gone.
const PATIENCE: u32 = 50;
/// Frames between two looks at the acknowledgments, while the window is open.
const BURST: u32 = 16;
const ISS: u32 = 0x1000_0000;

/// From where to where, and how.
#[derive(Clone, Copy, Debug)]
pub struct BareConfig {
    /// Our address: in the interface's network, and nobody's.
    pub local: SocketAddrV4,
    /// A listening kernel socket on the interface's address.
    pub remote: SocketAddrV4,
    /// Most payload bytes per frame; cut to what IPv4 takes and to whole segments. 1 means single segments.
    pub frame: usize,
    /// How long to wait for the connection.
    pub timeout: Duration,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct BareReport {
    /// Bytes of the stream that were acknowledged.
    pub bytes: u64,
    /// Frames written.
    pub frames: u64,
    /// Acknowledgments read.
    pub acks: u64,
    /// Times the window was exhausted and the loop had to sleep.
    pub waits: u64,
    /// Times it went back to the first unacknowledged byte.
    pub rewinds: u64,
    /// From the first frame to the last acknowledgment.
    pub elapsed: Duration,
}

/// One connection without a stack.
#[derive(Debug)]
pub struct RawTcpSender {
    wire: Wire,
    mss: usize,
    frame: usize,
    wscale: u8,
    /// The peer's next byte, which never changes: it sends nothing.
    rcv_nxt: u32,
    /// Stream offsets: acknowledged, sent next, sent at most, end of the peer's window.
    una: u64,
    nxt: u64,
    max: u64,
    edge: u64,
    duplicates: u32,
    report: BareReport,
}

/// Frames in and out.
#[derive(Debug)]
struct Wire {
    tap: TapDevice,
    /// Both station addresses, on an Ethernet.
    macs: Option<([u8; 6], [u8; 6])>,
    config: BareConfig,
}

impl Wire {
    fn link_len(&self) -> usize {
        if self.macs.is_some() { ETH_LEN } else { 0 }
    }

    /// All headers of a segment with `payload` bytes behind it.
    fn headers(&self, seq: u32, ack: u32, flags: u8, options: &[u8], payload: usize) -> Build {
        let (src, dst) = (IpAddr::V4(*self.config.local.ip()), IpAddr::V4(*self.config.remote.ip()));
        let mut b = Build::new();
        if let Some((ours, kernels)) = self.macs {
            b.put(&kernels).put(&ours).put(&ETH_IPV4.to_be_bytes());
        }
        let tcp_len = 20 + options.len() + payload;
        let t = Tcp {
            src_port: self.config.local.port(),
            dst_port: self.config.remote.port(),
            seq,
            ack,
            flags,
            window: u16::MAX,
            header: 0,
        };
        b.ip(src, dst, tcp_len).tcp(&t, options);
        let at = self.link_len() + 20 + 16;
        let sum = pseudo(src, dst, tcp_len as u32).to_be_bytes();
        if let Some(field) = b.bytes_mut().get_mut(at..at + 2) {
            field.copy_from_slice(&sum);
        }
        b
    }

    /// The virtio header: a checksum to be finished, and segmentation if there is more than one segment.
    fn vnet(&self, mss: usize, payload: usize) -> [u8; VnetHeader::LEN] {
        let start = (self.link_len() + 20) as u16;
        let mut h = VnetHeader { flags: 1, csum_start: start, csum_offset: 16, ..VnetHeader::default() };
        if payload > mss {
            (h.gso_type, h.gso_size, h.hdr_len) = (1, mss as u16, start + 20);
        }
        h.to_bytes()
    }

    /// Writes one frame; false if the device is full for the moment.
    fn write(&self, vnet: &[u8], head: &[u8], payload: &[u8]) -> io::Result<bool> {
        let mut iov = IoVecs::new();
        iov.push_slice(vnet);
        iov.push_slice(head);
        iov.push_slice(payload);
        match iov.write(self.tap.fd()) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn control(&self, seq: u32, ack: u32, flags: u8, options: &[u8]) -> io::Result<()> {
        let head = self.headers(seq, ack, flags, options, 0);
        self.write(&self.vnet(usize::MAX, 0), head.bytes(), &[]).map(drop)
    }

    /// The next segment of our connection that has arrived, if any. Answers ARP on the way.
    fn read(&self) -> io::Result<Option<(Tcp, Options)>> {
        let mut buf = [0u8; 2048];
        loop {
            let n = match rustix::io::read(self.tap.fd(), &mut buf) {
                Ok(n) => n,
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            let frame = buf.get(VnetHeader::LEN..n).unwrap_or(&[]);
            if self.macs.is_some() && be16(frame, 12) == Some(ETH_ARP) {
                self.answer_arp(frame)?;
            }
            if let Some(found) = self.parse(frame) {
                return Ok(Some(found));
            }
        }
    }

    fn parse(&self, frame: &[u8]) -> Option<(Tcp, Options)> {
        if self.macs.is_some() && be16(frame, 12) != Some(ETH_IPV4) {
            return None;
        }
        let packet = frame.get(self.link_len()..)?;
        let ip = Ip::parse(packet)?;
        let t = Tcp::parse(&ip, packet)?;
        let c = &self.config;
        let ours = ip.src == IpAddr::V4(*c.remote.ip())
            && t.src_port == c.remote.port()
            && t.dst_port == c.local.port();
        let options = packet.get(ip.header + 20..ip.header + t.header).unwrap_or(&[]);
        ours.then(|| (t, Options::parse(options)))
    }

    /// RFC 826, for our one address.
    fn answer_arp(&self, frame: &[u8]) -> io::Result<()> {
        let (Some((ours, _)), Some(request)) = (self.macs, frame.get(14..42)) else { return Ok(()) };
        let us = self.config.local.ip().octets();
        let is_request = be16(request, 6) == Some(1) && request.get(24..28) == Some(&us[..]);
        let Some(asker) = request.get(8..18).filter(|_| is_request) else { return Ok(()) };
        let mut b = Build::new();
        b.put(asker.get(..6).unwrap_or(&[])).put(&ours).put(&ETH_ARP.to_be_bytes());
        b.put(request.get(..6).unwrap_or(&[])).put(&[0, 2]).put(&ours).put(&us).put(asker);
        self.write(&[0; VnetHeader::LEN], b.bytes(), &[]).map(drop)
    }

    /// Sleeps until something arrives; false after `limit`.
    fn wait(&self, limit: Duration) -> io::Result<bool> {
        let tv_sec = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
        let limit = Timespec { tv_sec, tv_nsec: limit.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(self.tap.fd(), PollFlags::IN)], Some(&limit)) {
            Ok(n) => Ok(n > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(e) => Err(e.into()),
        }
    }
}

impl RawTcpSender {
    /// Connects.
    ///
    /// # Errors
    /// The device has no virtio header (`InvalidInput`), nobody listens (`ConnectionRefused`) or answers
    /// (`TimedOut`), or the device fails.
    pub fn connect(tap: TapDevice, config: BareConfig) -> io::Result<Self> {
        if !tap.vnet() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the bare loop needs a TAP with vnet_hdr",
            ));
        }
        let info = tap.info();
        let macs = match info.link {
            LinkKind::Ethernet(ours) => Some((ours, tap.kernel_mac()?)),
            LinkKind::Ip => None,
        };
        let wire = Wire { tap, macs, config };
        let ours = (info.mtu as usize).saturating_sub(HEADERS).clamp(1, 65495);
        let [hi, lo] = (ours as u16).to_be_bytes();
        let deadline = Instant::now() + config.timeout;
        while Instant::now() < deadline {
            // Scaling is ours to offer: without it the peer's window would end at 64 KB.
            wire.control(ISS, 0, SYN, &[2, 4, hi, lo, 1, 3, 3, 0])?;
            let resend = Instant::now() + TIMEOUT;
            while wire.wait(resend.saturating_duration_since(Instant::now()))? {
                match wire.read()? {
                    Some((t, _)) if t.flags & RST != 0 => return Err(io::ErrorKind::ConnectionRefused.into()),
                    Some((t, o)) if t.flags & (SYN | ACK) == SYN | ACK => {
                        return Self::established(wire, ours, t, o);
                    }
                    _ if Instant::now() >= resend => break,
                    _ => {}
                }
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn established(wire: Wire, ours: usize, t: Tcp, o: Options) -> io::Result<Self> {
        let mss = usize::from(o.mss.unwrap_or(536)).clamp(1, ours);
        let most = wire.config.frame.min(65535 - HEADERS);
        let rcv_nxt = t.seq.wrapping_add(1);
        wire.control(ISS.wrapping_add(1), rcv_nxt, ACK, &[])?;
        Ok(Self {
            wire,
            mss,
            frame: (most / mss * mss).max(mss),
            wscale: o.wscale.unwrap_or(0).min(14),
            rcv_nxt,
            una: 0,
            nxt: 0,
            max: 0,
            edge: u64::from(t.window),
            duplicates: 0,
            report: BareReport::default(),
        })
    }

    /// Payload bytes per frame.
    pub fn frame(&self) -> usize {
        self.frame
    }

    /// Sends `total` bytes (beyond what earlier calls sent): `payload` over and over, of which a length that
    /// is a multiple of [`frame`](Self::frame) is used. Returns when all is acknowledged; the report is of
    /// this call.
    ///
    /// # Errors
    /// `payload` is shorter than a frame (`InvalidInput`), the peer resets the connection
    /// (`ConnectionReset`) or falls silent (`TimedOut`), or the device fails.
    pub fn blast(&mut self, payload: &[u8], total: u64) -> io::Result<BareReport> {
        let cycle = payload.len() / self.frame * self.frame;
        let Some(payload) = payload.get(..cycle).filter(|p| !p.is_empty()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the payload must fill a frame"));
        };
        self.report = BareReport::default();
        let (first, end, start) = (self.una, self.una + total, Instant::now());
        let mut head = self.wire.headers(0, self.rcv_nxt, ACK | PSH, &[], self.frame);
        let full = self.wire.vnet(self.mss, self.frame);
        let mut silences = 0;
        while self.una < end {
            self.fill_window(payload, end, &mut head, &full)?;
            if self.read_acks()? > 0 {
                silences = 0;
                continue;
            }
            self.report.waits += 1;
            if !self.wire.wait(TIMEOUT)? {
                silences += 1;
                if silences > PATIENCE {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                self.rewind();
                // A closed window may have opened in an acknowledgment that was lost: probe it.
                self.edge = self.edge.max(self.una + 1);
            }
        }
        self.report.bytes = self.una - first;
        self.report.elapsed = start.elapsed();
        Ok(self.report)
    }

    /// Writes frames until the window or a burst is exhausted.
    fn fill_window(&mut self, payload: &[u8], end: u64, head: &mut Build, full: &[u8]) -> io::Result<()> {
        for _ in 0..BURST {
            let at = (self.nxt % payload.len() as u64) as usize;
            let room = self.edge.min(end).saturating_sub(self.nxt);
            let want = self.frame.min(payload.len() - at);
            let n = want.min(usize::try_from(room).unwrap_or(want));
            // Part of a frame only at the end, or if nothing else will make the window move.
            if n == 0 || (n < want && self.nxt + (n as u64) < end && self.nxt > self.una) {
                break;
            }
            let Some(bytes) = payload.get(at..at + n) else { break };
            let seq = ISS.wrapping_add(1).wrapping_add(self.nxt as u32);
            let sent = if n == self.frame {
                let field = self.wire.link_len() + 20 + 4;
                if let Some(field) = head.bytes_mut().get_mut(field..field + 4) {
                    field.copy_from_slice(&seq.to_be_bytes());
                }
                self.wire.write(full, head.bytes(), bytes)?
            } else {
                let head = self.wire.headers(seq, self.rcv_nxt, ACK | PSH, &[], n);
                self.wire.write(&self.wire.vnet(self.mss, n), head.bytes(), bytes)?
            };
            if !sent {
                break;
            }
            self.report.frames += 1;
            self.nxt += n as u64;
            self.max = self.max.max(self.nxt);
        }
        Ok(())
    }

    /// Reads what has arrived; returns how many acknowledgments moved something.
    fn read_acks(&mut self) -> io::Result<u32> {
        let mut moved = 0;
        while let Some((t, _)) = self.wire.read()? {
            if t.flags & RST != 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            self.report.acks += 1;
            let base = ISS.wrapping_add(1).wrapping_add(self.una as u32);
            let newly = u64::from(t.ack.wrapping_sub(base));
            if newly > self.max - self.una {
                continue;
            }
            let edge = self.una + newly + (u64::from(t.window) << self.wscale);
            if newly > 0 {
                self.una += newly;
                self.nxt = self.nxt.max(self.una);
                self.duplicates = 0;
            } else if edge == self.edge && self.max > self.una {
                self.duplicates += 1;
                if self.duplicates == 3 {
                    self.rewind();
                    moved += 1;
                }
            }
            moved += u32::from(newly > 0 || edge > self.edge);
            self.edge = edge;
        }
        Ok(moved)
    }

    fn rewind(&mut self) {
        if self.nxt > self.una {
            self.report.rewinds += 1;
            self.nxt = self.una;
        }
    }

    /// Ends the stream, waits for the acknowledgment of the end (a second at most), and gives the device back.
    ///
    /// # Errors
    /// The device fails.
    pub fn close(self) -> io::Result<TapDevice> {
        let seq = ISS.wrapping_add(1).wrapping_add(self.una as u32);
        let fin_acked = seq.wrapping_add(1);
        let end = Instant::now() + Duration::from_secs(1);
        self.wire.control(seq, self.rcv_nxt, FIN | ACK, &[])?;
        while Instant::now() < end {
            if !self.wire.wait(TIMEOUT)? {
                self.wire.control(seq, self.rcv_nxt, FIN | ACK, &[])?;
                continue;
            }
            while let Some((t, _)) = self.wire.read()? {
                if t.flags & FIN != 0 {
                    self.wire.control(fin_acked, t.seq.wrapping_add(1), ACK, &[])?;
                }
                if t.flags & RST != 0 || (t.flags & FIN != 0 && t.ack == fin_acked) {
                    return Ok(self.wire.tap);
                }
            }
        }
        Ok(self.wire.tap)
    }
}

#[cfg(test)]
mod tests;
