//! One connection against a peer made by hand, segment by segment in virtual time. Sequence numbers count
//! from the first byte of data, segments are 1000 bytes, the round trip is 100 ms.

use super::*;

pub(super) struct Drill {
    pub(super) t: Tcb,
    pub(super) now: Instant,
    pub(super) base: SeqNum,
    released: Released,
    /// What the peer's next acknowledgment echoes, if there are timestamps.
    pub(super) echo: Option<u32>,
    /// The timestamp of the last segment taken with [`sent`](Self::sent).
    pub(super) stamp: u32,
}

const IRS: SeqNum = SeqNum(5_000_000);

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

impl Drill {
    pub(super) fn new(change: impl FnOnce(&mut Config)) -> Drill {
        let mut c = Config { mss: 1000, timestamps: false, ..Config::default() };
        change(&mut c);
        let (sack, timestamps) = (c.sack, c.timestamps);
        let now = Instant::from_secs(100);
        let iss = SeqNum(u32::MAX - 4000);
        let t = Tcb::connect(c, 1000, 80, iss, 7, now);
        let mut d = Drill { t, now, base: iss + 1, released: Released::default(), echo: None, stamp: 0 };
        let syn = d.next().unwrap();
        assert!(syn.header.flags.contains(TcpFlags::SYN));
        d.now += ms(100);
        let options = wire::tcp::TcpOptions {
            mss: Some(if timestamps { 1012 } else { 1000 }),
            window_scale: Some(8),
            sack_permitted: sack,
            timestamps: timestamps.then_some(wire::tcp::Timestamps { val: 1, ecr: d.stamp }),
            ..Default::default()
        };
        d.echo = timestamps.then_some(d.stamp);
        let _ = d.arrives(TcpHeader {
            seq: IRS,
            ack: d.base,
            flags: TcpFlags::SYN | TcpFlags::ACK,
            window: 65_535,
            options,
            ..Default::default()
        });
        assert_eq!(d.sent(), [(0, 0)]);
        d.ack(0, &[]);
        d
    }

    fn next(&mut self) -> Option<SegmentIn> {
        let seg = parse(self.t.next_segment(self.now)?);
        self.stamp = seg.header.options.timestamps.map_or(0, |t| t.val);
        Some(seg)
    }

    fn arrives(&mut self, header: TcpHeader) -> Outcome {
        let seg = SegmentIn { header, payload: SkBuff::new(), gso_size: 0, ce: false };
        let o = self.t.segment_arrives(self.now, seg, &mut self.released);
        self.released.clear();
        o
    }

    /// What leaves now, in segments.
    pub(super) fn sent(&mut self) -> Vec<(u32, usize)> {
        let mut all = Vec::new();
        while let Some(seg) = self.next() {
            let at = seg.header.seq.since(self.base);
            let len = seg.payload.len();
            all.extend((0..len.max(1)).step_by(1000).map(|n| (at + n as u32, 1000.min(len - n))));
        }
        all
    }

    /// How many segments leave now.
    pub(super) fn count(&mut self) -> usize {
        self.sent().len()
    }

    pub(super) fn write(&mut self, n: usize) {
        write(&mut self.t, n);
    }

    /// An acknowledgment with selective ones.
    pub(super) fn ack(&mut self, upto: u32, sacks: &[(u32, u32)]) {
        let mut header = TcpHeader {
            seq: IRS + 1,
            ack: self.base + upto,
            flags: TcpFlags::ACK,
            window: 2000,
            ..Default::default()
        };
        header.options.sack.extend(sacks.iter().map(|(s, e)| (self.base + *s, self.base + *e)));
        header.options.timestamps = self.echo.map(|ecr| wire::tcp::Timestamps { val: 1, ecr });
        let _ = self.arrives(header);
    }

    /// Time passes; timers that run out do so on time.
    pub(super) fn wait(&mut self, d: Duration) {
        let end = self.now + d;
        while let Some(at) = self.t.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let _ = self.t.on_timeout(self.now, &mut self.released);
            if self.t.wants_to_send() {
                break;
            }
        }
        if !self.t.wants_to_send() {
            self.now = end;
        }
    }

    pub(super) fn info(&self) -> TcpInfo {
        self.t.info(self.now)
    }

    pub(super) fn cwnd(&self) -> u32 {
        self.info().snd_cwnd
    }
}
