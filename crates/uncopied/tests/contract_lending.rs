//! Lending: Z7 (packets point at the caller's memory, 17 fragments at most), Z8 (headers are never in lent
//! memory), Z9 (limits), Z25 (lending by value gives the buffer back).

mod common;

use common::borrowed::{Area, sendmsg};
use common::*;
use stack::skb::{MAX_SKB_FRAGS, OPTMEM_PER_CALL, SkBuff};
use std::sync::atomic::Ordering;
use std::time::Duration;
use uncopied::{Error, Features, Lent, MSG_ZEROCOPY, TcpStream};

/// Data packets that are in `a`'s device now.
fn sent(net: &Pair) -> Vec<SkBuff> {
    net.poll_a();
    std::iter::from_fn(|| net.at_a.pop_tx()).filter(|p| seg(p).payload > 0).collect()
}

#[test]
fn packet_fragments_point_at_the_callers_memory() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    let buffer = pattern(10_000);
    let at = buffer.as_ptr().addr();
    tx.send_lent(buffer).unwrap();
    let packets = sent(&net);
    let mut next = at;
    for packet in &packets {
        for frag in packet.frags() {
            let (ptr, len) = frag.as_iovec();
            assert!(frag.is_lent());
            assert_eq!(ptr.addr(), next, "in order, nothing left out");
            next += len;
        }
    }
    assert_eq!(next, at + 10_000);
    assert_eq!(net.a.stats().copied_bytes, 0);
}

#[test]
fn each_borrowed_piece_is_at_least_one_fragment_of_its_own() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    let areas: Vec<_> = [10, 2000, 1, 300].iter().map(|n| Area::new(&pattern(*n))).collect();
    sendmsg(&tx, &areas, MSG_ZEROCOPY).unwrap();
    let packets = sent(&net);
    assert_eq!(packets.len(), 1, "one large packet");
    let frags: Vec<_> = packets[0].frags().iter().map(|f| (f.as_iovec().0.addr(), f.len())).collect();
    assert_eq!(frags, areas.iter().map(|a| (a.addr(), a.len())).collect::<Vec<_>>());
}

#[test]
fn a_packet_that_runs_out_of_fragments_is_pushed_and_the_next_one_begins() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let areas: Vec<_> = (0..40).map(|n| Area::new(&[n; 100])).collect();
    sendmsg(&tx, &areas, MSG_ZEROCOPY).unwrap();
    let packets = sent(&net);
    let counts: Vec<_> = packets.iter().map(|p| p.frags().len()).collect();
    assert!(counts.iter().all(|n| *n <= MAX_SKB_FRAGS), "{counts:?}");
    assert_eq!(counts[0], MAX_SKB_FRAGS);
    assert!(counts.len() > 1, "the next one begins at once: {counts:?}");
    assert_ne!(seg(&packets[0]).flags & PSH, 0, "closed for want of fragments, so pushed");
    packets.iter().for_each(|p| net.at_b.push_rx(arriving(p)));
    drop(packets);
    net.run(Duration::from_secs(1));
    assert_eq!(drain(&rx), (0..40).flat_map(|n| [n; 100]).collect::<Vec<u8>>());
    assert_eq!(completed_ids(&tx), [0]);
}

#[test]
fn headers_are_never_in_lent_memory() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    tx.send_lent(pattern(5000)).unwrap();
    for packet in sent(&net) {
        let s = seg(&packet);
        assert_eq!(packet.headlen() + s.payload, packet.len(), "head: headers; fragments: payload");
        assert_eq!(packet.data_len(), s.payload);
    }
}

#[test]
fn a_retransmission_points_at_the_callers_memory_too() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let buffer = pattern(1000);
    let at = buffer.as_ptr().addr();
    tx.send_lent(buffer).unwrap();
    assert_eq!(sent(&net).len(), 1, "and lost");
    net.clock.advance(Duration::from_secs(2));
    let again = sent(&net);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].frags()[0].as_iovec().0.addr(), at);
    net.at_b.push_rx(arriving(&again[0]));
    drop(again);
    net.pump();
    assert_eq!(drain(&rx), pattern(1000));
    assert_eq!(completed_ids(&tx), [0]);
}

/// Two more connections of one stack.
fn two(net: &mut Pair) -> (TcpStream, TcpStream, Vec<TcpStream>) {
    let (tx, rx, listener) = net.connect();
    let mut tx2 = TcpStream::begin_connect(&net.a, listener.local_addr()).unwrap();
    tx2.set_nonblocking(true);
    net.pump();
    let (mut rx2, _) = listener.try_accept().unwrap();
    rx2.set_nonblocking(true);
    (tx, tx2, vec![rx, rx2])
}

#[test]
fn memlock_bounds_the_bytes_lent_over_all_sockets_with_enobufs_and_nothing_queued() {
    let mut net = Pair::with(Features::all(), |c| c.memlock = 100_000);
    let (tx, tx2, rx) = two(&mut net);
    tx.send_lent(vec![1; 60_000]).unwrap();
    let queued = tx2.queued();
    let failed = tx2.send_lent(pattern(60_000)).unwrap_err();
    assert_eq!(failed.error, Error::MemLock);
    assert_eq!(failed.buffer.as_slice(), pattern(60_000), "the buffer comes back");
    assert_eq!((tx2.queued(), tx2.outstanding(), net.a.lent_bytes()), (queued, 0, 60_000));
    let e = sendmsg(&tx2, &[Area::new(&[0; 60_000])], MSG_ZEROCOPY).unwrap_err();
    assert_eq!(e.kind(), std::io::ErrorKind::QuotaExceeded);
    tx2.send_lent(vec![2; 40_000]).unwrap();
    assert_eq!(net.a.lent_bytes(), 100_000);
    net.run(Duration::from_secs(1));
    rx.iter().for_each(|rx| drop(drain(rx)));
    net.run(Duration::from_secs(1));
    assert_eq!(net.a.lent_bytes(), 0, "complete is given back, read or not");
    assert_eq!(tx2.send_lent(failed.buffer).unwrap().id, 1);
}

#[test]
fn memlock_does_not_touch_the_accounting_of_the_send_buffer() {
    let mut net = Pair::with(Features::all(), |c| (c.memlock, c.sndbuf) = (1000, 500_000));
    let (tx, _rx, _l) = net.connect();
    assert_eq!(tx.send_lent(vec![1; 2000]).unwrap_err().error, Error::MemLock);
    assert_eq!(tx.send(&[1; 400_000]).unwrap(), 400_000, "copying goes on");
    assert_eq!(tx.queued().1, 400_000);
}

#[test]
fn optmem_bounds_unread_notifications_and_draining_makes_room() {
    let mut net = Pair::with(Features::all(), |c| c.optmem_max = 3 * OPTMEM_PER_CALL);
    let (tx, rx, _l) = net.connect();
    for n in 0..3 {
        assert_eq!(tx.send_lent(vec![1; 100]).unwrap().id, n);
    }
    let queued = tx.queued();
    let failed = tx.send_lent(vec![9; 100]).unwrap_err();
    assert_eq!(failed.error, Error::OptMem);
    assert_eq!((tx.queued(), net.a.lent_bytes()), (queued, 300), "nothing queued, nothing charged");
    net.run(Duration::from_secs(1));
    assert_eq!(tx.outstanding(), 0);
    // Three notifications have merged into one, which still takes its place.
    assert_eq!(tx.send_lent(vec![1; 100]).unwrap().id, 3);
    assert_eq!(tx.send_lent(vec![1; 100]).unwrap().id, 4);
    assert_eq!(tx.send_lent(vec![1; 100]).unwrap_err().error, Error::OptMem);
    assert_eq!(completed_ids(&tx), [0, 1, 2]);
    assert_eq!(tx.send_lent(vec![1; 100]).unwrap().id, 5, "reading made room");
    net.run(Duration::from_secs(1));
    assert_eq!(completed_ids(&tx), [3, 4, 5]);
    assert_eq!(drain(&rx).len(), 600);
}

#[test]
fn a_buffer_lent_by_value_is_given_back_when_its_call_completes_and_not_before() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    let (buffer, back) = Owned::lend(pattern(5000));
    tx.send_lent(buffer).unwrap();
    assert_eq!(back.load(Ordering::SeqCst), 0);
    drop(sent(&net));
    assert_eq!(back.load(Ordering::SeqCst), 0, "on the wire, not acknowledged");
    net.run(Duration::from_secs(3));
    assert_eq!(back.load(Ordering::SeqCst), 1);
    assert_eq!(completed_ids(&tx), [0]);
}

#[test]
fn whatever_owns_bytes_can_be_lent() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let arc: std::sync::Arc<[u8]> = vec![2; 10].into();
    let lent: [Lent; 6] = [
        vec![1; 10].into(),
        arc.into(),
        vec![3; 10].into_boxed_slice().into(),
        Lent::from(&[4; 10][..]),
        String::from("5555555555").into(),
        "6666666666".into(),
    ];
    for l in lent {
        tx.send_lent(l).unwrap();
    }
    net.run(Duration::from_secs(1));
    let got = drain(&rx);
    assert_eq!(got.iter().step_by(10).copied().collect::<Vec<_>>(), [1, 2, 3, 4, b'5', b'6']);
    assert_eq!(completed_ids(&tx), (0..6).collect::<Vec<_>>());
}
