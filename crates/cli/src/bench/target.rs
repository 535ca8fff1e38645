//! One measured transfer.

use uncopied::TcpStream;

use super::DeviceKind;
use super::figures::{Limit, Mode, Sample};
use super::source::Source;
use crate::Error;
use crate::cputime::{Meter, gbps, per_gb};
use crate::peer::{Check, PATIENCE, Peer};
use crate::send::{finish, lend};

/// What is measured against.
pub struct Target(Peer);

impl Target {
    /// Builds stacks and devices.
    pub fn new(kind: DeviceKind, napi: bool) -> Result<Self, Error> {
        Ok(Self(match kind {
            DeviceKind::Link => Peer::link(Check::Count)?,
            DeviceKind::Reflector => Peer::reflector()?,
            DeviceKind::Tap => Peer::kernel(Check::Count, napi)?,
        }))
    }

    /// Sends `bytes`, rounded up to whole calls of the source's size, over a new connection.
    pub fn transfer(&mut self, source: &Source, mode: Mode, bytes: u64) -> Result<Sample, Error> {
        let stack = &self.0.stack;
        self.0.expect()?;
        let stream = TcpStream::connect_timeout(stack, self.0.addr, Some(PATIENCE))?;
        let calls = bytes.div_ceil(source.size() as u64);
        let sent = calls * source.size() as u64;
        let before = stack.stats();
        let meter = Meter::start();
        match mode {
            Mode::Copy => (0..calls).try_for_each(|n| stream.send_all(source.buffer(n).as_slice()))?,
            Mode::Lend => (0..calls).try_for_each(|n| lend(&stream, source.buffer(n).clone()))?,
        }
        finish(&stream, PATIENCE)?;
        let spent = meter.stop();
        let after = stack.stats();
        drop(stream);
        if let Some(got) = self.0.received()?.filter(|got| got.bytes != sent) {
            return Err(format!("{sent} bytes were sent and {} received", got.bytes).into());
        }
        Ok(Sample::new(
            spent,
            sent,
            after.completions - before.completions,
            after.notifications - before.notifications,
            after.tx_packets - before.tx_packets,
        ))
    }

    /// One run of the bare loop on a TAP beside ours.
    pub fn add_bare_run(&self, limit: &mut Limit, bytes: u64) -> Result<(), Error> {
        let (bytes, spent) = self.0.bare_loop(bytes)?;
        limit.gbps.push(gbps(bytes, spent.wall));
        limit.process.push(per_gb(spent.thread, bytes));
        limit.system.push(per_gb(spent.process, bytes));
        Ok(())
    }
}
