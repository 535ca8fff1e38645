//! Where the bytes go: a second stack, the kernel, or nowhere.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use uncopied::link::{self, EngineHandle, LinkConfig};
use uncopied::reflector::{Reflector, ReflectorConfig};
use uncopied::{Stack, TcpListener, TcpStream};

use super::DeviceKind;
use super::figures::{Limit, Mode, Sample};
use super::source::Source;
use crate::cputime::Meter;
use crate::demo::kernel::{KernelSide, STACK_CIDR};
use crate::send::{finish, lend};
use crate::{Error, demo};

/// How long a transfer may stand still before the bench gives up.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// A stack to send with, and something to send to.
pub struct Target {
    stack: Stack,
    peer: SocketAddr,
    sink: Sink,
}

enum Sink {
    /// A second stack that reads everything, and the cards between.
    Stack { requests: Option<Sender<()>>, totals: Receiver<u64>, reader: Option<JoinHandle<()>>, _engine: EngineHandle },
    /// The kernel of this machine, behind a TAP.
    Kernel(KernelSide),
    /// Nobody: the device acknowledges by itself.
    Reflector,
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Sink::Stack { requests, reader, .. } = self {
            requests.take();
            if let Some(reader) = reader.take() {
                let _ = reader.join();
            }
        }
    }
}

impl Target {
    /// Builds stacks and devices.
    pub fn new(kind: DeviceKind) -> Result<Self, Error> {
        match kind {
            DeviceKind::Link => Self::link(),
            DeviceKind::Reflector => Self::reflector(),
            DeviceKind::Tap => Self::tap(),
        }
    }

    fn link() -> Result<Self, Error> {
        let (left, right, engine) = link::pair(LinkConfig::default());
        let engine = engine.spawn("nic");
        let sender = Stack::builder().device(left, &[("10.0.0.1".parse()?, 24)]).build()?;
        let receiver = Stack::builder().device(right, &[("10.0.0.2".parse()?, 24)]).build()?;
        sender.spawn()?;
        receiver.spawn()?;
        let listener = TcpListener::bind(&receiver, "10.0.0.2:5001".parse()?)?;
        let peer = listener.local_addr();
        let (requests, incoming) = mpsc::channel();
        let (outgoing, totals) = mpsc::channel();
        let reader = std::thread::Builder::new().name("receiver".into()).spawn(move || {
            // One connection per request, until the bench is over.
            while incoming.recv().is_ok() {
                let total = listener.accept().and_then(|(stream, _)| drain(stream));
                if outgoing.send(total.unwrap_or(0)).is_err() {
                    break;
                }
            }
        })?;
        let sink = Sink::Stack { requests: Some(requests), totals, reader: Some(reader), _engine: engine };
        Ok(Self { stack: sender, peer, sink })
    }

    fn reflector() -> Result<Self, Error> {
        let device = Reflector::new(ReflectorConfig::default());
        let stack = Stack::builder().device(device, &[("10.0.0.1".parse()?, 24)]).build()?;
        stack.spawn()?;
        Ok(Self { stack, peer: "10.0.0.2:5001".parse()?, sink: Sink::Reflector })
    }

    fn tap() -> Result<Self, Error> {
        let (kernel, device) = demo::kernel::private_tap()?;
        let stack = Stack::builder().device(device, &[STACK_CIDR]).build()?;
        stack.spawn()?;
        Ok(Self { stack, peer: kernel.sink_addr(), sink: Sink::Kernel(kernel) })
    }

    /// Sends `bytes` over a new connection in calls of the source's size.
    pub fn transfer(&mut self, source: &Source, mode: Mode, bytes: u64) -> Result<Sample, Error> {
        if let Sink::Stack { requests: Some(requests), .. } = &self.sink {
            requests.send(()).map_err(|_| "the receiving thread has ended")?;
        }
        let stream = TcpStream::connect_timeout(&self.stack, self.peer, Some(PATIENCE))?;
        let calls = bytes.div_ceil(source.size() as u64);
        let sent = calls * source.size() as u64;
        let before = self.stack.stats();
        let meter = Meter::start();
        match mode {
            Mode::Copy => (0..calls).try_for_each(|n| stream.send_all(source.buffer(n).as_slice()))?,
            Mode::Lend => (0..calls).try_for_each(|n| lend(&stream, source.buffer(n).clone()))?,
        }
        finish(&stream, PATIENCE)?;
        let spent = meter.stop();
        let after = self.stack.stats();
        drop(stream);
        self.check(sent)?;
        Ok(Sample::new(
            spent,
            sent,
            after.completions - before.completions,
            after.notifications - before.notifications,
            after.tx_packets - before.tx_packets,
        ))
    }

    /// The receiver must have had every byte.
    fn check(&mut self, sent: u64) -> Result<(), Error> {
        let got = match &mut self.sink {
            Sink::Stack { totals, .. } => totals.recv_timeout(PATIENCE)?,
            Sink::Kernel(kernel) => kernel.received(PATIENCE)?.0,
            Sink::Reflector => return Ok(()),
        };
        if got != sent {
            return Err(format!("{sent} bytes were sent and {got} received").into());
        }
        Ok(())
    }

    /// The bare loop on a TAP of its own.
    pub fn bare_limit(&mut self, bytes: u64, runs: u32) -> Result<Limit, Error> {
        let mut limit = Limit { gbps: Vec::new(), process: Vec::new() };
        for _ in 0..runs {
            let (bytes, spent) = demo::kernel::bare_loop(bytes)?;
            limit.gbps.push(crate::cputime::gbps(bytes, spent.wall));
            limit.process.push(crate::cputime::per_gb(spent.thread, bytes));
        }
        Ok(limit)
    }
}

/// Reads to the end of the stream; how many bytes came.
fn drain(mut stream: TcpStream) -> std::io::Result<u64> {
    let mut buf = vec![0; 256 << 10];
    let mut total = 0;
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(total),
            n => total += n as u64,
        }
    }
}
