use super::*;
use crate::mem::{MemConfig, MemPort, pair};
use rustix::event::{PollFd, PollFlags, poll};
use time::{ManualClock, SystemClock};

type Wrapped = (Box<dyn DeviceTx>, Box<dyn DeviceRx>, MemPort, Arc<ManualClock>, [Arc<ImpairStats>; 2]);

fn wrapped(config: ImpairConfig) -> Wrapped {
    let (dev, port) = pair(MemConfig::default());
    let clock = Arc::new(ManualClock::new(Instant::from_secs(1)));
    let dev = Impair::new(Box::new(dev), config, clock.clone());
    let stats = dev.stats();
    let (tx, rx) = Box::new(dev).open();
    (tx, rx, port, clock, stats)
}

fn numbered(tx: &mut dyn DeviceTx, n: u32) {
    for i in 0..n {
        assert!(matches!(tx.start_xmit(SkBuff::from_slice(&i.to_be_bytes())), Xmit::Sent));
    }
    tx.kick();
}

fn sent(port: &MemPort) -> Vec<u32> {
    let number = |skb: SkBuff| u32::from_be_bytes(skb.to_vec().try_into().unwrap());
    std::iter::from_fn(|| port.pop_tx()).map(number).collect()
}

fn tx(rules: Rules) -> ImpairConfig {
    ImpairConfig { tx: rules, ..ImpairConfig::default() }
}

#[test]
fn without_rules_nothing_changes() {
    let (mut t, mut r, port, _, _) = wrapped(ImpairConfig::default());
    numbered(&mut *t, 100);
    assert_eq!(sent(&port), (0..100).collect::<Vec<_>>());
    port.push_rx(SkBuff::from_slice(b"in"));
    let mut got = Vec::new();
    assert_eq!(r.poll_rx(10, &mut got), 1);
    assert!(r.arm());
}

#[test]
fn a_seed_repeats_a_run_and_another_does_not() {
    let run = |seed| {
        let rules = Rules { loss: 0.3, duplicate: 0.2, ..Rules::default() };
        let (mut t, _r, port, _, stats) =
            wrapped(ImpairConfig { tx: rules, seed, ..ImpairConfig::default() });
        numbered(&mut *t, 900);
        let got = sent(&port);
        let lost = stats[0].lost.load(Ordering::Relaxed);
        assert!((180..360).contains(&lost), "{lost}");
        assert_eq!(got.len() as u64, 900 - lost + stats[0].duplicated.load(Ordering::Relaxed));
        got
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn delay_and_rate_hold_packets_until_their_time() {
    let rules = Rules { delay: Duration::from_millis(10), rate: 4000, ..Rules::default() };
    let (mut t, mut r, port, clock, _) = wrapped(tx(rules));
    numbered(&mut *t, 3);
    clock.advance(Duration::from_millis(10));
    assert!(r.arm());
    assert_eq!(sent(&port), []);
    clock.advance(Duration::from_millis(1));
    assert_eq!(t.reclaim_tx(), 0);
    assert_eq!(sent(&port), [0], "four bytes take a millisecond");
    clock.advance(Duration::from_millis(2));
    r.poll_rx(1, &mut Vec::new());
    assert_eq!(sent(&port), [1, 2], "the receiving half moves them on too");
}

#[test]
fn a_packet_held_back_is_overtaken() {
    let rules = Rules { reorder: 0.1, ..Rules::default() };
    let (mut t, _r, port, clock, stats) = wrapped(tx(rules));
    numbered(&mut *t, 100);
    let mut got = sent(&port);
    let held = stats[0].reordered.load(Ordering::Relaxed) as usize;
    assert!(held > 0 && got.len() == 100 - held);
    clock.advance(Duration::from_millis(1));
    t.kick();
    got.extend(sent(&port));
    assert!(!got.is_sorted());
    got.sort_unstable();
    assert_eq!(got, (0..100).collect::<Vec<_>>());
}

#[test]
fn damage_is_one_bit_behind_a_final_checksum_and_never_in_the_original() {
    let (mut t, _r, port, _, _) = wrapped(tx(Rules { corrupt: 1.0, ..Rules::default() }));
    let mut skb = SkBuff::from_slice(&[1; 200]);
    skb.csum = Csum::Partial { start: 20, offset: 6 };
    let original = skb.clone();
    let mut expect = skb.to_vec();
    expect[26..28].copy_from_slice(&(!skb.checksum(20, 180)).to_be_bytes());
    assert!(matches!(t.start_xmit(skb), Xmit::Sent));
    t.kick();
    let got = port.pop_tx().unwrap();
    assert_eq!(got.csum, Csum::None);
    let flipped: u32 = got.to_vec().iter().zip(&expect).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!(flipped, 1);
    assert_eq!(original.to_vec(), [1; 200]);
}

#[test]
fn a_full_wire_overflows_and_a_full_device_waits() {
    let (mut t, _r, port, clock, stats) =
        wrapped(tx(Rules { limit: 5, delay: Duration::from_millis(1), ..Rules::default() }));
    numbered(&mut *t, 8);
    assert_eq!(stats[0].overflowed.load(Ordering::Relaxed), 3);
    port.set_busy(true);
    clock.advance(Duration::from_millis(1));
    t.kick();
    assert_eq!(port.tx_len(), 0);
    port.set_busy(false);
    t.kick();
    assert_eq!(sent(&port), [0, 1, 2, 3, 4]);
}

#[test]
fn a_sleeper_is_woken_when_a_delayed_packet_is_due() {
    let (dev, port) = pair(MemConfig { wakeups: true, ..MemConfig::default() });
    let rules = Rules { delay: Duration::from_millis(20), ..Rules::default() };
    let config = ImpairConfig { rx: rules, ..ImpairConfig::default() };
    let (_t, mut r) = Box::new(Impair::new(Box::new(dev), config, Arc::new(SystemClock::new()))).open();
    port.push_rx(SkBuff::from_slice(b"late"));
    let mut got = Vec::new();
    assert_eq!(r.poll_rx(1, &mut got), 0);
    assert!(r.arm());
    let start = std::time::Instant::now();
    let limit = Timespec { tv_sec: 5, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&r.wait_fd().unwrap(), PollFlags::IN)], Some(&limit)), Ok(1));
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(r.poll_rx(1, &mut got), 1);
    assert!(r.arm());
    let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(
        poll(&mut [PollFd::new(&r.wait_fd().unwrap(), PollFlags::IN)], Some(&zero)),
        Ok(0),
        "it is silent again"
    );
}
