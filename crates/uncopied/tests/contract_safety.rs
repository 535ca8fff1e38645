//! Safety: Z23 (changing lent bytes hurts nobody else), Z24 (the checking mode finds who does).

mod common;

use common::borrowed::{Area, sendmsg};
use common::*;
use stack::skb::SkBuff;
use std::time::Duration;
use uncopied::{Features, MSG_ZEROCOPY};

const SECOND: Duration = Duration::from_secs(1);

fn sent(net: &Pair) -> Vec<SkBuff> {
    net.poll_a();
    std::iter::from_fn(|| net.at_a.pop_tx()).filter(|p| seg(p).payload > 0).collect()
}

fn scribble(area: Area) {
    (0..area.len()).for_each(|n| area.set(n, 0xee));
}

#[test]
fn bytes_changed_in_flight_change_no_header_and_no_length() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let area = Area::new(&pattern(10_000));
    sendmsg(&tx, &[area], MSG_ZEROCOPY).unwrap();
    let packets = sent(&net);
    let before: Vec<_> = packets.iter().map(|p| (p.head().to_vec(), p.len())).collect();
    scribble(area);
    let after: Vec<_> = packets.iter().map(|p| (p.head().to_vec(), p.len())).collect();
    assert_eq!(before, after);
    packets.iter().for_each(|p| net.at_b.push_rx(arriving(p)));
    drop(packets);
    net.run(SECOND);
    assert_eq!(drain(&rx), [0xee; 10_000], "the peer gets what was there when the device looked");
    assert_eq!(completed_ids(&tx), [0]);
}

#[test]
fn a_checksum_made_by_us_is_of_the_bytes_that_go_out() {
    let mut net = Pair::with(Features::SG, |_| {});
    let (tx, rx, _l) = net.connect();
    let area = Area::new(&pattern(10_000));
    sendmsg(&tx, &[area], MSG_ZEROCOPY).unwrap();
    let packets = sent(&net);
    scribble(area);
    packets.iter().for_each(|p| net.at_b.push_rx(arriving(p)));
    drop(packets);
    net.run(SECOND);
    assert_eq!(drain(&rx), pattern(10_000), "summed and sent from the same private copy");
    assert_eq!(net.b.stats().drops, []);
}

#[test]
fn another_socket_of_the_stack_does_not_notice() {
    let mut net = Pair::new();
    let (tx, rx, listener) = net.connect();
    let mut tx2 = uncopied::TcpStream::begin_connect(&net.a, listener.local_addr()).unwrap();
    tx2.set_nonblocking(true);
    net.pump();
    let (mut rx2, _) = listener.try_accept().unwrap();
    rx2.set_nonblocking(true);
    let area = Area::new(&pattern(5000));
    sendmsg(&tx, &[area], MSG_ZEROCOPY).unwrap();
    tx2.send_lent(pattern(5000)).unwrap();
    scribble(area);
    net.run(SECOND);
    assert_eq!(drain(&rx).len(), 5000);
    assert_eq!(drain(&rx2), pattern(5000));
    assert_eq!((completed_ids(&tx), completed_ids(&tx2)), (vec![0], vec![0]));
}

#[test]
fn a_retransmission_of_changed_bytes_still_keeps_the_stream_in_step() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let area = Area::new(&pattern(5000));
    sendmsg(&tx, &[area], MSG_ZEROCOPY).unwrap();
    drop(sent(&net));
    scribble(area);
    net.run(5 * SECOND);
    tx.send_all(&[1, 2, 3]).unwrap();
    net.run(SECOND);
    let got = drain(&rx);
    assert_eq!(got.len(), 5003);
    assert_eq!(got[5000..], [1, 2, 3]);
}

#[test]
fn the_checking_mode_finds_a_change_before_completion() {
    let mut net = Pair::with(Features::all(), |c| c.check_lent = true);
    let (tx, _rx, _l) = net.connect();
    let (good, bad) = (Area::new(&pattern(5000)), Area::new(&pattern(5000)));
    sendmsg(&tx, &[good], MSG_ZEROCOPY).unwrap();
    sendmsg(&tx, &[bad, good], MSG_ZEROCOPY).unwrap();
    bad.set(4321, 0xee);
    assert_eq!(net.a.stats().changed_buffers, 0, "compared at completion");
    net.run(SECOND);
    assert_eq!(completed_ids(&tx), [0, 1]);
    assert_eq!(net.a.stats().changed_buffers, 1);
}

#[test]
fn the_checking_mode_is_silent_about_changes_after_completion_and_of_memory_not_lent() {
    let mut net = Pair::with(Features::all(), |c| c.check_lent = true);
    let (tx, _rx, _l) = net.connect();
    let (lent, copied) = (Area::new(&pattern(5000)), Area::new(&pattern(5000)));
    sendmsg(&tx, &[lent], MSG_ZEROCOPY).unwrap();
    sendmsg(&tx, &[copied], 0).unwrap();
    tx.send_lent(pattern(5000)).unwrap();
    scribble(copied);
    net.run(SECOND);
    assert_eq!(completed_ids(&tx), [0, 1]);
    scribble(lent);
    net.run(SECOND);
    assert_eq!(net.a.stats().changed_buffers, 0);
}

#[test]
fn the_checking_mode_is_off_by_default() {
    assert!(!uncopied::Config::default().check_lent);
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    let area = Area::new(&pattern(5000));
    sendmsg(&tx, &[area], MSG_ZEROCOPY).unwrap();
    scribble(area);
    net.run(SECOND);
    assert_eq!((completed_ids(&tx), net.a.stats().changed_buffers), (vec![0], 0));
}
