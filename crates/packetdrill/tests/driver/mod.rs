//! Scripts in Rust: events with their times, as packetdrill judges them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod calls;
pub mod packet;
pub mod tool;

use std::net::SocketAddr;

pub use packet::{Seg, seg};
use tool::{Call, Outcome, Tool};
use wire::tcp::TcpFlags;

/// How a script is run (`--ip_version`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Ipv4,
    Ipv6,
    Mapped,
}

pub const MODES: [Mode; 3] = [Mode::Ipv4, Mode::Ipv6, Mode::Mapped];

impl Mode {
    pub fn domain(self) -> i32 {
        if self == Mode::Ipv4 { libc::AF_INET } else { libc::AF_INET6 }
    }

    /// The stack's end and the peer's, as packets have them.
    pub fn ends(self) -> (SocketAddr, SocketAddr) {
        let (local, remote) = match self {
            Mode::Ipv6 => ("[fd3d:a0b:17d6::1]:8080", "[fd3d:fa7b:d17d::1]:8080"),
            Mode::Ipv4 | Mode::Mapped => ("192.168.0.1:8080", "192.0.2.1:8080"),
        };
        (local.parse().unwrap(), remote.parse().unwrap())
    }
}

/// packetdrill's default tolerances: microseconds, and a part of the time since the event before.
const TOLERANCE_USECS: u64 = 4000;
const TOLERANCE_PART: f64 = 0.125;

/// A script under way.
pub struct Script {
    pub tool: Tool,
    pub mode: Mode,
    /// The connection under test: the stack's end and the peer's.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The stack's initial sequence number.
    iss: u32,
    /// What the peer puts into timestamps: the stack's last value.
    pub ts_recent: u32,
    /// The last packet that was seen.
    pub last: Seg,
}

impl Script {
    pub fn new(mode: Mode, flags: &str) -> Self {
        // Parameters of the machine that runs the test are none of the script's.
        let flags = format!("sysctl=off,{flags}");
        let (local, remote) = mode.ends();
        let tool = Tool::new(Some(&flags));
        Self { tool, mode, local, remote, iss: 0, ts_recent: 0, last: Seg::default() }
    }

    /// `+after call`.
    pub fn call(&mut self, after: f64, call: Call) -> Outcome {
        let at = self.tool.now() + micros(after);
        self.tool.wait_until(at);
        self.tool.call(call)
    }

    /// A call that succeeds.
    pub fn ok(&mut self, after: f64, call: Call) -> i32 {
        let o = self.call(after, call);
        assert!(o.result >= 0, "{}", std::io::Error::from_raw_os_error(o.errno));
        o.result
    }

    /// A call that fails.
    pub fn fails(&mut self, after: f64, call: Call, errno: i32) {
        let o = self.call(after, call);
        assert_eq!(
            (o.result, std::io::Error::from_raw_os_error(o.errno).to_string()),
            (-1, errno_text(errno))
        );
    }

    /// `+after...: begins a call that may block; [`ends`](Self::ends) says how it ended.
    pub fn begin(&mut self, after: f64, call: Call) -> Begun {
        let at = self.tool.now() + micros(after);
        self.tool.hand_over(at, call);
        Begun { at }
    }

    /// The marked call ended after `took` seconds of script time.
    pub fn ends(&mut self, begun: Begun, took: f64) -> Outcome {
        let o = self.tool.join();
        check_time("the call's end", o.end, begun.at + micros(took), took);
        o
    }

    /// `+after < segment`: the peer sends.
    pub fn inject(&mut self, after: f64, segment: Seg) {
        let at = self.tool.now() + micros(after);
        self.tool.wait_until(at);
        let bytes = segment.to_packet(self.remote, self.local, self.iss, self.ts_recent);
        assert_eq!(self.tool.netdev_send(&bytes), 0);
    }

    /// `+after > segment`: the stack sends, within packetdrill's tolerances.
    pub fn expect(&mut self, after: f64, expected: Seg) {
        let due = self.tool.now() + micros(after);
        let (at, got) = self.receive(expected.len);
        check_time(&format!("{expected:?}"), at, due, after);
        self.compare(&got, &expected);
    }

    /// The next packets of the stack's, merged until they have `len` bytes, as packetdrill merges them.
    fn receive(&mut self, len: usize) -> (u64, Seg) {
        let (mut at, mut whole) = self.receive_one().expect("nothing will be sent");
        let unit = whole.len;
        let mut last = unit;
        while whole.len < len && whole.len > 0 {
            let (next_at, next) = self.receive_one().expect("nothing more will be sent");
            assert_eq!(next.seq, whole.seq.wrapping_add(whole.len as u32), "contiguous");
            assert_eq!(last, unit, "every packet but the last has the same length");
            assert_eq!(next.window, whole.window);
            (last, at) = (next.len, next_at);
            whole = Seg { seq: whole.seq, len: whole.len + next.len, ..next };
        }
        (at, whole)
    }

    fn receive_one(&mut self) -> Option<(u64, Seg)> {
        let (at, bytes) = self.tool.netdev_receive()?;
        let (from, to, mut got) = packet::parse(&bytes);
        if got.flags.contains(TcpFlags::SYN) {
            self.iss = got.seq;
            if !got.flags.contains(TcpFlags::ACK) {
                (self.local, self.remote) = (from, to);
            }
        }
        assert_eq!((from, to), (self.local, self.remote), "of the connection under test");
        got.seq = got.seq.wrapping_sub(self.iss);
        if let Some(ts) = got.options.timestamps {
            self.ts_recent = ts.val;
        }
        self.last = got.clone();
        Some((at, got))
    }

    fn compare(&self, got: &Seg, expected: &Seg) {
        assert_eq!(
            (got.flags, got.seq, got.len),
            (expected.flags, expected.seq, expected.len),
            "got {got:?}"
        );
        if expected.flags.contains(TcpFlags::ACK) {
            assert_eq!(got.ack, expected.ack, "got {got:?}");
        }
        if let Some(window) = expected.window {
            assert_eq!(got.window, Some(window), "got {got:?}");
        }
        if expected.options_matter {
            let blank = |s: &Seg| {
                let mut o = s.options.clone();
                o.timestamps = o.timestamps.map(|_| wire::tcp::Timestamps::default());
                o
            };
            assert_eq!(blank(got), blank(expected));
        }
    }

    /// Nothing is sent for `seconds`: the packet after it is what `next` expects, much later.
    pub fn wait(&mut self, seconds: f64) {
        let at = self.tool.now() + micros(seconds);
        self.tool.wait_until(at);
    }

    /// A listening socket.
    pub fn listener(&mut self) -> i32 {
        let fd = self.ok(0.0, calls::socket(self.mode));
        self.ok(0.0, calls::reuse_address(fd));
        self.ok(0.0, calls::bind(fd, self.mode.ends().0, self.mode));
        self.ok(0.0, calls::listen(fd, 1));
        fd
    }

    /// A listener's handshake with segments of 1000 bytes; the listener and the accepted socket.
    pub fn accepted(&mut self) -> (i32, i32) {
        let listener = self.listener();
        let fd = self.accept_on(listener);
        (listener, fd)
    }

    /// A connection to a listener that is there.
    pub fn accept_on(&mut self, listener: i32) -> i32 {
        self.inject(0.1, seg("S", 0, 0).win(65535).mss(1000).sack_permitted().wscale(0));
        self.expect(0.0, seg("S.", 0, 0).ack(1));
        self.inject(0.1, seg(".", 1, 0).ack(1).win(65535));
        let mode = self.mode;
        let o = self.call(0.0, calls::accept(listener, mode));
        assert!(o.result >= 0, "{o:?}");
        assert_eq!(o.out, calls::name(self.remote, mode), "the peer's address, of the family's length");
        o.result
    }

    /// A script's end: packetdrill resets every connection and closes sockets through libc.
    pub fn finish(mut self, open: &[i32]) {
        let bytes = seg("R.", 1, 0).ack(1).to_packet(self.remote, self.local, self.iss, 0);
        assert_eq!(self.tool.netdev_send(&bytes), 0);
        for fd in open {
            assert_eq!(calls::close_by_libc(*fd), 0, "{}", std::io::Error::last_os_error());
        }
    }
}

/// A marked call under way.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    at: u64,
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

fn errno_text(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

fn check_time(what: &str, got: u64, due: u64, distance: f64) {
    let tolerance = TOLERANCE_USECS.max((distance * TOLERANCE_PART * 1e6) as u64);
    let off = got as i64 - due as i64;
    assert!(off.unsigned_abs() <= tolerance, "{what} came {off} µs off its time");
}
