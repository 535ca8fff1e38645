//! A peer that acknowledges everything at once and looks at no payload.
//!
//! What it measures is the stack alone: one TCP flow into it costs the sender's own work and nothing
//! else. It speaks just enough TCP: a SYN is answered with a SYN-ACK that agrees to what was asked (MSS,
//! window scaling, timestamps, SACK), data is acknowledged cumulatively with the largest window there is,
//! a FIN is answered with a FIN. What has ended with a `kick` is acknowledged, once per flow, when the
//! receiving half is polled: bursts that nobody looked at in between share an acknowledgment, as the packets
//! of an interrupt do. There is one more whenever [`ReflectorConfig::ack_bytes`] have gathered before that.
//! Anything but TCP is swallowed.
//!
//! Each packet is dropped inside `start_xmit`: this hardware is infinitely fast.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use netdev::{Device, DeviceInfo, DeviceRx, DeviceTx, Features, LinkKind, TxDone, Xmit};
use parking_lot::Mutex;
use skb::{Csum, SkBuff};
use std::collections::VecDeque;
use time::Duration;

use crate::hdr::{ACK, Build, FIN, Ip, Options, RST, SYN, Tcp};
use crate::wake::Wake;

/// Window scale offered: 65535 << 14 is the largest window TCP has.
const WSCALE: u8 = 14;
/// Initial sequence number of every flow. A constant: whoever attacks this attacks himself.
const ISS: u32 = 0x1000_0000;

/// Facts of a [`Reflector`].
#[derive(Clone, Debug)]
pub struct ReflectorConfig {
    /// Interface name.
    pub name: String,
    /// Largest network-layer packet, bytes; the MSS it offers follows from it. Default 1500.
    pub mtu: u32,
    /// Offloads. Default: all that exist.
    pub features: Features,
    /// Largest TSO packet, bytes. Default 65535.
    pub gso_max_size: usize,
    /// Unacknowledged bytes after which an acknowledgment does not wait for the end of the burst. Default
    /// 256 KiB.
    pub ack_bytes: u32,
    /// How long acknowledgments gather after some were received, before they interrupt; cards call it
    /// `rx-usecs`. For receivers that sleep when there is nothing more; those that only poll would have to wait
    /// for nothing. Default 0: not at all.
    pub ack_delay: Duration,
}

impl Default for ReflectorConfig {
    fn default() -> Self {
        Self {
            name: "reflector0".to_owned(),
            mtu: 1500,
            features: Features::all(),
            gso_max_size: 65535,
            ack_bytes: 256 * 1024,
            ack_delay: Duration::ZERO,
        }
    }
}

/// Counters.
#[derive(Debug, Default)]
pub struct ReflectorStats {
    /// Packets swallowed.
    pub packets: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Segments sent back.
    pub acks: AtomicU64,
}

/// The device.
#[derive(Debug)]
pub struct Reflector {
    config: ReflectorConfig,
    shared: Arc<Shared>,
}

impl Reflector {
    /// A reflector. Panics if the process has no descriptor left.
    pub fn new(config: ReflectorConfig) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            news: AtomicBool::new(false),
            loud: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            wake: Wake::new().expect("a descriptor for the wake-ups of a reflector"),
            stats: Arc::default(),
        };
        Self { config, shared: Arc::new(shared) }
    }

    /// Its counters; they outlive the device.
    pub fn stats(&self) -> Arc<ReflectorStats> {
        self.shared.stats.clone()
    }
}

impl Device for Reflector {
    fn info(&self) -> DeviceInfo {
        let c = &self.config;
        DeviceInfo {
            name: c.name.clone(),
            mtu: c.mtu,
            link: LinkKind::Ip,
            features: c.features,
            gso_max_size: c.gso_max_size,
        }
    }

    fn open(self: Box<Self>) -> (Box<dyn DeviceTx>, Box<dyn DeviceRx>) {
        let (ack_bytes, mtu) = (self.config.ack_bytes, self.config.mtu);
        let tx = ReflectorTx { shared: self.shared.clone(), rang: None, ack_bytes, mtu };
        let rx = ReflectorRx { shared: self.shared, ack_delay: self.config.ack_delay, answered: false };
        (Box::new(tx), Box::new(rx))
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<Reflections>,
    /// A burst has ended since the last look: only then is `state` worth its lock.
    news: AtomicBool,
    /// The news are more than acknowledgments.
    loud: AtomicBool,
    /// Acknowledgments gather: who receives sleeps, and will look by itself.
    quiet: AtomicBool,
    wake: Wake,
    stats: Arc<ReflectorStats>,
}

/// The connections, and what is on its way back beside the acknowledgments they owe.
#[derive(Debug, Default)]
struct Reflections {
    flows: Vec<Flow>,
    /// The flow of the last segment: usually that of the next.
    last: usize,
    rx: VecDeque<SkBuff>,
}

/// One connection, from our side.
#[derive(Clone, Debug)]
struct Flow {
    peer: IpAddr,
    us: IpAddr,
    peer_port: u16,
    our_port: u16,
    rcv_nxt: u32,
    snd_nxt: u32,
    /// The peer's last timestamp, if it asked for timestamps.
    ts_recent: Option<u32>,
    unacked: u32,
    pending: bool,
    fin_sent: bool,
}

impl Flow {
    fn is(&self, ip: &Ip, t: &Tcp) -> bool {
        self.peer_port == t.src_port
            && self.our_port == t.dst_port
            && self.peer == ip.src
            && self.us == ip.dst
    }

    fn reply(&self, flags: u8, seq: u32, options: &[u8]) -> SkBuff {
        let t = Tcp {
            src_port: self.our_port,
            dst_port: self.peer_port,
            seq,
            ack: self.rcv_nxt,
            flags,
            window: u16::MAX,
            header: 0,
        };
        let mut b = Build::new();
        b.ip(self.us, self.peer, 20 + options.len()).tcp(&t, options);
        let mut skb = SkBuff::from_slice(b.bytes());
        skb.csum = Csum::Unnecessary;
        skb
    }

    /// The timestamp option as everybody lays it out, or nothing.
    fn timestamp(&self) -> ([u8; 12], usize) {
        let Some(recent) = self.ts_recent else { return ([0; 12], 0) };
        let mut o = [1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
        // Our clock is the peer's: it makes every round trip measure as zero, which is what it is.
        o[4..8].copy_from_slice(&recent.to_be_bytes());
        o[8..12].copy_from_slice(&recent.to_be_bytes());
        (o, 12)
    }

    /// Takes the timestamp of a segment, also of one that brings nothing new: a clock that stood still while
    /// the peer sends again would have every answer taken for an old duplicate. It never goes back, for the
    /// same reason.
    fn see_timestamp(&mut self, options: &[u8]) {
        if let (Some(recent), Some(seen)) = (self.ts_recent, timestamp_of(options))
            && seen.wrapping_sub(recent) as i32 > 0
        {
            self.ts_recent = Some(seen);
        }
    }

    fn acknowledge(&mut self) -> SkBuff {
        (self.pending, self.unacked) = (false, 0);
        let (options, n) = self.timestamp();
        self.reply(ACK, self.snd_nxt, options.get(..n).unwrap_or(&[]))
    }

    fn syn_ack(&self, asked: &Options, mtu: u32) -> SkBuff {
        let headers = if self.us.is_ipv4() { 40 } else { 60 };
        let mss = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
        let mut o = Build::new();
        o.put(&[2, 4]).put(&mss.to_be_bytes());
        if asked.sack {
            o.put(&[1, 1, 4, 2]);
        }
        if self.ts_recent.is_some() {
            o.put(&self.timestamp().0);
        }
        if asked.wscale.is_some() {
            o.put(&[1, 3, 3, WSCALE]);
        }
        self.reply(SYN | ACK, ISS, o.bytes())
    }
}

/// What a segment calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    /// An acknowledgment: it may gather with others.
    Ack,
    /// The beginning or the end of a connection.
    Control,
}

struct ReflectorTx {
    shared: Arc<Shared>,
    /// What is to be answered since the last `kick`.
    rang: Option<Answer>,
    ack_bytes: u32,
    mtu: u32,
}

impl Reflections {
    fn find(&mut self, ip: &Ip, t: &Tcp) -> Option<usize> {
        if !self.flows.get(self.last).is_some_and(|f| f.is(ip, t)) {
            self.last = self.flows.iter().position(|f| f.is(ip, t))?;
        }
        Some(self.last)
    }

    fn send(&mut self, skb: SkBuff) {
        self.rx.push_back(skb);
    }

    fn segment_arrives(&mut self, head: &[u8], len: usize, tx: &ReflectorTx) -> Option<Answer> {
        let ip = Ip::parse(head)?;
        let t = Tcp::parse(&ip, head)?;
        let options = head.get(ip.header + 20..ip.header + t.header).unwrap_or(&[]);
        if t.flags & SYN != 0 {
            self.open_flow(&ip, &t, &Options::parse(options), tx.mtu);
            return Some(Answer::Control);
        }
        let i = self.find(&ip, &t)?;
        if t.flags & RST != 0 {
            self.flows.swap_remove(i);
            return None;
        }
        let flow = self.flows.get_mut(i)?;
        let payload = len.saturating_sub(ip.header + t.header) as u32;
        let end = t.seq.wrapping_add(payload).wrapping_add(u32::from(t.flags & FIN != 0));
        if payload == 0 && t.flags & FIN == 0 {
            // A bare acknowledgment. The one that covers our FIN ends the flow.
            if flow.fin_sent && t.ack == flow.snd_nxt {
                self.flows.swap_remove(i);
            }
            return None;
        }
        flow.pending = true;
        if end.wrapping_sub(flow.rcv_nxt) as i32 > 0 {
            flow.unacked = flow.unacked.saturating_add(end.wrapping_sub(flow.rcv_nxt));
            flow.rcv_nxt = end;
        }
        flow.see_timestamp(options);
        if t.flags & FIN != 0 {
            flow.pending = false;
            let (o, n) = flow.timestamp();
            let seq = flow.snd_nxt.wrapping_sub(u32::from(flow.fin_sent));
            let fin = flow.reply(FIN | ACK, seq, o.get(..n).unwrap_or(&[]));
            flow.snd_nxt = seq.wrapping_add(1);
            flow.fin_sent = true;
            self.send(fin);
            return Some(Answer::Control);
        }
        if flow.unacked >= tx.ack_bytes {
            let ack = flow.acknowledge();
            self.send(ack);
        }
        Some(Answer::Ack)
    }

    fn open_flow(&mut self, ip: &Ip, t: &Tcp, asked: &Options, mtu: u32) {
        if let Some(i) = self.find(ip, t) {
            self.flows.swap_remove(i);
        }
        let flow = Flow {
            peer: ip.src,
            us: ip.dst,
            peer_port: t.src_port,
            our_port: t.dst_port,
            rcv_nxt: t.seq.wrapping_add(1),
            snd_nxt: ISS.wrapping_add(1),
            ts_recent: asked.timestamp,
            unacked: 0,
            pending: false,
            fin_sent: false,
        };
        self.send(flow.syn_ack(asked, mtu));
        self.flows.push(flow);
    }
}

/// The timestamp of a segment: nearly always two no-ops and the option.
fn timestamp_of(options: &[u8]) -> Option<u32> {
    match options {
        [1, 1, 8, 10, a, b, c, d, ..] => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => Options::parse(options).timestamp,
    }
}

impl DeviceTx for ReflectorTx {
    fn start_xmit(&mut self, mut skb: SkBuff) -> Xmit {
        let len = skb.len();
        let stats = &self.shared.stats;
        stats.packets.fetch_add(1, Ordering::Relaxed);
        stats.bytes.fetch_add(len as u64, Ordering::Relaxed);
        // Our stacks put all headers into the head; others may need up to 120 bytes of it pulled.
        if skb.headlen() < 40 {
            let _ = skb.may_pull(len.min(120));
        }
        let answer = self.shared.state.lock().segment_arrives(skb.head(), len, self);
        self.rang = self.rang.max(answer);
        Xmit::Sent
    }

    fn kick(&mut self) {
        let Some(answer) = self.rang.take() else { return };
        let shared = &self.shared;
        if answer == Answer::Control {
            shared.loud.store(true, Ordering::SeqCst);
        }
        // A look before the store, which would take the line from a receiver that is looking.
        if !shared.news.load(Ordering::SeqCst) {
            shared.news.store(true, Ordering::SeqCst);
        }
        // Dekker with `arm`: it ends the quiet, then looks at the news.
        if answer == Answer::Control || !shared.quiet.load(Ordering::SeqCst) {
            shared.wake.signal();
        }
    }

    fn tx_done(&self) -> TxDone {
        TxDone::Never
    }
}

struct ReflectorRx {
    shared: Arc<Shared>,
    ack_delay: Duration,
    /// Something was received since the last `arm`.
    answered: bool,
}

impl DeviceRx for ReflectorRx {
    fn poll_rx(&mut self, budget: usize, out: &mut Vec<SkBuff>) -> usize {
        let gather = self.answered && !self.ack_delay.is_zero() && !self.shared.loud.load(Ordering::SeqCst);
        if gather || !self.shared.news.load(Ordering::Relaxed) {
            return 0;
        }
        // Before the look at what there is: what comes after it is news again.
        self.shared.loud.store(false, Ordering::SeqCst);
        self.shared.news.store(false, Ordering::SeqCst);
        let before = out.len();
        let mut state = self.shared.state.lock();
        let Reflections { flows, rx, .. } = &mut *state;
        let owed = flows.iter_mut().filter(|f| f.pending).map(Flow::acknowledge);
        let n = budget.min(rx.len());
        out.extend(rx.drain(..n));
        // What has come first goes first: an acknowledgment made now covers all of it.
        out.extend(owed.take(budget - n));
        if !rx.is_empty() || flows.iter().any(|f| f.pending) {
            self.shared.news.store(true, Ordering::SeqCst);
        }
        drop(state);
        let n = out.len() - before;
        self.answered |= n > 0;
        self.shared.stats.acks.fetch_add(n as u64, Ordering::Relaxed);
        n
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.wake.fd())
    }

    fn arm(&mut self) -> bool {
        let shared = &self.shared;
        // Where acknowledgments came, more will: they may gather for one sleep.
        let quiet = std::mem::take(&mut self.answered) && !self.ack_delay.is_zero();
        shared.quiet.store(quiet, Ordering::SeqCst);
        shared.wake.prepare();
        let news = if quiet { &shared.loud } else { &shared.news };
        let idle = !news.load(Ordering::SeqCst);
        if !idle {
            shared.wake.cancel();
        }
        idle
    }

    fn rest(&self) -> Option<Duration> {
        self.shared.quiet.load(Ordering::SeqCst).then_some(self.ack_delay)
    }
}

#[cfg(test)]
mod tests;
