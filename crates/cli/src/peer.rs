//! The other end of a measured transfer: the kernel behind a private TAP, a second stack on an in-process
//! link, or a device that acknowledges by itself.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::RecvFlags;
use uncopied::bare::{BareConfig, RawTcpSender};
use uncopied::link::{self, EngineHandle, LinkConfig};
use uncopied::netns::{PrivateNet, PrivateNetError, enter_private_net};
use uncopied::reflector::{Reflector, ReflectorConfig};
use uncopied::tap::{TapConfig, TapDevice};
use uncopied::{Builder, Stack, TcpListener};

use crate::Error;
use crate::cputime::{Meter, Spent};

/// How long a transfer may stand still before it is given up.
pub const PATIENCE: Duration = Duration::from_secs(30);

const KERNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
const OURS: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2)), 24);
const BARE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);

/// Send buffer of a stack that is measured in this process, in bytes.
const SNDBUF: usize = 16 << 20;

/// How long a reflector's acknowledgments gather: what many cards default to.
const ACK_DELAY: Duration = Duration::from_micros(20);

/// What the receiver does with the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Hash them (BLAKE3).
    Hash,
    /// Count them. A kernel socket drops them without copying (`MSG_TRUNC`).
    Count,
}

/// What arrived over one connection.
#[derive(Clone, Debug)]
pub struct Received {
    /// Bytes.
    pub bytes: u64,
    /// Their hash, if asked for.
    pub hash: Option<String>,
}

/// A thread that takes one connection per request and reads it to its end.
struct Receiver {
    requests: Option<Sender<()>>,
    results: mpsc::Receiver<io::Result<Received>>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    fn spawn<S: Read>(
        check: Check,
        mut accept: impl FnMut() -> io::Result<S> + Send + 'static,
    ) -> io::Result<Self> {
        let (requests, incoming) = mpsc::channel();
        let (outgoing, results) = mpsc::channel();
        let thread = std::thread::Builder::new().name("receiver".into()).spawn(move || {
            while incoming.recv().is_ok() {
                let result = accept().and_then(|stream| read_all(stream, check));
                if outgoing.send(result).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { requests: Some(requests), results, thread: Some(thread) })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.requests.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read_all(mut stream: impl Read, check: Check) -> io::Result<Received> {
    let mut buf = vec![0; 512 << 10];
    let mut hasher = (check == Check::Hash).then(blake3::Hasher::new);
    let mut bytes = 0;
    loop {
        let n = stream.read(&mut buf)?;
        if n == 0 {
            break;
        }
        bytes += n as u64;
        if let Some(hasher) = &mut hasher {
            hasher.update(&buf[..n]);
        }
    }
    Ok(Received { bytes, hash: hasher.map(|h| h.finalize().to_hex().to_string()) })
}

/// A kernel socket whose data is dropped unread.
struct Discard(std::net::TcpStream);

impl Read for Discard {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (_, n) = rustix::net::recv(&self.0, buf, RecvFlags::TRUNC)?;
        Ok(n)
    }
}

enum Kind {
    Kernel { net: PrivateNet, listener: std::net::TcpListener },
    Stack { _engine: EngineHandle },
    Reflector,
}

/// A stack to send with, and its peer.
pub struct Peer {
    /// The sending stack.
    pub stack: Stack,
    /// Where to connect to.
    pub addr: SocketAddr,
    receiver: Option<Receiver>,
    kind: Kind,
}

impl Peer {
    /// A private network with a TAP, and a kernel socket on the other side. To be called before the
    /// process has threads, unless it is root's.
    pub fn kernel(check: Check, napi: bool) -> Result<Self, Error> {
        let net = enter_private_net()?;
        let device = private_tap(&net, napi)?;
        let stack = Stack::builder().device(device, &[OURS]).build()?;
        stack.spawn()?;
        let listener = std::net::TcpListener::bind((KERNEL, 0))?;
        let addr = listener.local_addr()?;
        let accepting = listener.try_clone()?;
        let receiver = match check {
            Check::Hash => Receiver::spawn(check, move || Ok(accepting.accept()?.0))?,
            Check::Count => Receiver::spawn(check, move || Ok(Discard(accepting.accept()?.0)))?,
        };
        Ok(Self { stack, addr, receiver: Some(receiver), kind: Kind::Kernel { net, listener } })
    }

    /// A second stack on an in-process link, whose engine is a thread of its own.
    pub fn link(check: Check) -> Result<Self, Error> {
        let (left, right, engine) = link::pair(LinkConfig::default());
        let engine = engine.spawn("nic")?;
        let stack = sender().device(left, &[("10.0.0.1".parse()?, 24)]).build()?;
        let other = Stack::builder().device(right, &[("10.0.0.2".parse()?, 24)]).build()?;
        stack.spawn()?;
        other.spawn()?;
        let listener = TcpListener::bind(&other, "10.0.0.2:5001".parse()?)?;
        let addr = listener.local_addr();
        let receiver = Receiver::spawn(check, move || Ok(listener.accept()?.0))?;
        Ok(Self { stack, addr, receiver: Some(receiver), kind: Kind::Stack { _engine: engine } })
    }

    /// A device that acknowledges at once and touches no payload.
    pub fn reflector() -> Result<Self, Error> {
        let device = Reflector::new(ReflectorConfig { ack_delay: ACK_DELAY, ..ReflectorConfig::default() });
        let stack = sender().device(device, &[("10.0.0.1".parse()?, 24)]).build()?;
        stack.spawn()?;
        Ok(Self { stack, addr: "10.0.0.2:5001".parse()?, receiver: None, kind: Kind::Reflector })
    }

    /// Makes the receiver expect one connection.
    pub fn expect(&self) -> Result<(), Error> {
        match self.receiver.as_ref().and_then(|r| r.requests.as_ref()) {
            Some(requests) => requests.send(()).map_err(|_| "the receiving thread has ended".into()),
            None => Ok(()),
        }
    }

    /// What the expected connection brought; `None` if nobody looks at the bytes.
    pub fn received(&self) -> Result<Option<Received>, Error> {
        match &self.receiver {
            Some(r) => Ok(Some(r.results.recv_timeout(PATIENCE)??)),
            None => Ok(None),
        }
    }

    /// Writes prebuilt frames of one TCP stream of `bytes` to a second TAP of the private network, without
    /// any stack; bytes, and what the loop took.
    pub fn bare_loop(&self, bytes: u64) -> Result<(u64, Spent), Error> {
        let Kind::Kernel { net, listener } = &self.kind else {
            return Err("the bare loop needs a TAP".into());
        };
        let SocketAddr::V4(remote) = listener.local_addr()? else {
            return Err("the bare loop is IPv4 only".into());
        };
        let remote = SocketAddrV4::new(Ipv4Addr::new(10, 78, 0, 1), remote.port());
        let local = SocketAddrV4::new(Ipv4Addr::new(10, 78, 0, BARE.octets()[3]), 40_000);
        let tap = net.tap(TapConfig::default(), &[(IpAddr::V4(*remote.ip()), 24)])?;
        let sink = std::net::TcpListener::bind(remote)?;
        let receiver = Receiver::spawn(Check::Count, move || Ok(Discard(sink.accept()?.0)))?;
        if let Some(requests) = &receiver.requests {
            requests.send(())?;
        }
        let config = BareConfig { local, remote, frame: 65_160, timeout: Duration::from_secs(5) };
        let mut sender = RawTcpSender::connect(tap, config)?;
        let payload = vec![7u8; 1 << 20];
        let meter = Meter::start();
        let report = sender.blast(&payload, bytes)?;
        let spent = meter.stop();
        drop(sender.close()?);
        Ok((report.bytes, spent))
    }
}

/// A stack for one bulk flow, with a send buffer larger than the largest receive window (6 MiB): the sender is
/// ahead of the window then, and packets leave when acknowledgments come. The limits on lent memory follow: so
/// many bytes may be lent, and so many calls of 4 KB be unread.
fn sender() -> Builder {
    Stack::builder().configure(|c| {
        c.sndbuf = SNDBUF;
        c.memlock = c.memlock.max(2 * SNDBUF as u64);
        c.optmem_max = c.optmem_max.max(1 << 20);
    })
}

fn private_tap(net: &PrivateNet, napi: bool) -> Result<TapDevice, PrivateNetError> {
    net.tap(TapConfig { napi, ..TapConfig::default() }, &[(KERNEL, 24)])
}
