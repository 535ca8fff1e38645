//! Asking and counting: Z2 (the flag alone does nothing), Z3 (flagged and plain sends mix), Z4 (a hint),
//! Z5 (numbers of calls), Z6 (calls and packets are different things).

mod common;

use common::borrowed::{Area, sendmsg};
use common::*;
use stack::TcpSocket;
use std::net::SocketAddr;
use std::sync::Arc;
use uncopied::{Error, Features, MSG_DONTWAIT, MSG_ZEROCOPY, Ready, Reason, Stack};

#[test]
fn an_accepted_socket_inherits_so_zerocopy_from_its_listener() {
    let mut net = Pair::new();
    let (tx, rx, _listener) = net.connect();
    let (_, ticket) = sendmsg(&rx, &[Area::new(&[1; 3000])], MSG_ZEROCOPY).unwrap();
    assert_eq!(ticket.unwrap().id, 0);
    net.pump();
    assert_eq!(drain(&tx), [1; 3000]);
    assert_eq!(completed_ids(&rx), [0]);
}

/// A socket of the layer below, where `SO_ZEROCOPY` is a choice.
fn plain_socket(stack: &Stack, to: SocketAddr) -> Arc<TcpSocket> {
    let socket = stack.tcp_socket();
    assert!(!socket.zerocopy(), "off unless asked for");
    socket.connect(to).unwrap();
    socket
}

#[test]
fn the_flag_without_so_zerocopy_is_ignored_and_the_bytes_are_copied() {
    let mut net = Pair::new();
    let (_tx, _rx, listener) = net.connect();
    let socket = plain_socket(&net.a, listener.local_addr());
    net.pump();
    let (mut rx, _) = listener.try_accept().unwrap();
    rx.set_nonblocking(true);
    let area = Area::new(&pattern(5000));
    let (sent, ticket) = borrowed_attempt(&socket, area, MSG_ZEROCOPY);
    assert_eq!((sent, ticket), (5000, None), "no number");
    assert_eq!((net.a.lent_bytes(), net.a.stats().lent_calls, net.a.stats().copied_bytes), (0, 0, 5000));
    for n in 0..area.len() {
        area.set(n, 0);
    }
    net.pump();
    assert_eq!(drain(&rx), pattern(5000), "the copy was made in the call");
    assert!(!socket.has_completion() && !socket.ready().contains(Ready::ERR), "no notification");
    socket.set_zerocopy(true);
    assert!(socket.zerocopy());
    assert_eq!(borrowed_attempt(&socket, area, MSG_ZEROCOPY), (5000, Some(0)), "now it counts, from 0");
    net.pump();
    assert_eq!(drain(&rx).len(), 5000);
    assert!(socket.pop_completion().unwrap().contains(0));
    socket.close();
}

fn borrowed_attempt(socket: &Arc<TcpSocket>, area: Area, flags: u32) -> (usize, Option<u32>) {
    common::borrowed::attempt(socket, area, flags)
}

#[test]
fn flagged_and_plain_sends_mix_and_only_flagged_ones_count() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    let mut expected = Vec::new();
    for n in 0..20_u8 {
        let bytes = vec![n; 700 + usize::from(n)];
        expected.extend_from_slice(&bytes);
        match n % 3 {
            0 => assert_eq!(tx.send_lent(bytes).unwrap().id, u32::from(n / 3)),
            1 => tx.send_all(&bytes).unwrap(),
            _ => assert_eq!(sendmsg(&tx, &[Area::new(&bytes)], 0).unwrap(), (bytes.len(), None)),
        }
    }
    net.run(std::time::Duration::from_secs(1));
    assert_eq!(drain(&rx), expected);
    assert_eq!(completed_ids(&tx), (0..7).collect::<Vec<_>>());
    assert_eq!((tx.outstanding(), net.a.lent_bytes()), (0, 0));
}

#[test]
fn a_send_that_cannot_avoid_the_copy_succeeds_and_notifies() {
    let mut net = Pair::with(Features::empty(), |_| {});
    let (tx, rx, _l) = net.connect();
    let ticket = tx.send_lent(pattern(100_000)).unwrap();
    net.pump();
    assert_eq!(drain(&rx), pattern(100_000));
    let done = completions(&tx);
    assert_eq!(done.len(), 1);
    assert!(done[0].contains(ticket.id) && done[0].copied.is_some());
}

#[test]
fn numbers_start_at_0_and_every_call_that_queues_a_byte_takes_the_next() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    for n in 0..50 {
        assert_eq!(tx.send_lent(vec![1]).unwrap().id, n);
    }
    net.run(std::time::Duration::from_secs(1));
    assert_eq!(completed_ids(&tx), (0..50).collect::<Vec<_>>());
}

#[test]
fn a_zero_length_call_takes_no_number() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    assert!(tx.send_lent(Vec::new()).is_err());
    assert_eq!(sendmsg(&tx, &[], MSG_ZEROCOPY).unwrap(), (0, None));
    assert_eq!(sendmsg(&tx, &[Area::new(&[])], MSG_ZEROCOPY).unwrap(), (0, None));
    assert_eq!(tx.send_lent(vec![1]).unwrap().id, 0);
    net.pump();
    assert_eq!(completed_ids(&tx), [0]);
}

#[test]
fn a_failed_call_takes_no_number_and_leaves_no_gap() {
    let mut net = Pair::with(Features::all(), |c| {
        c.memlock = 10_000;
        c.sndbuf = 9000;
    });
    let (tx, rx, _l) = net.connect();
    assert_eq!(tx.send_lent(vec![1; 8000]).unwrap().id, 0);
    assert_eq!(tx.send_lent(vec![1; 8000]).unwrap_err().error, Error::MemLock);
    tx.send_all(&[2; 1000]).unwrap();
    assert_eq!(tx.send_lent(vec![1; 10]).unwrap_err().error, Error::WouldBlock, "the buffer is full");
    assert!(sendmsg(&tx, &[Area::new(&[1; 10])], MSG_ZEROCOPY | MSG_DONTWAIT).is_err());
    net.pump();
    assert_eq!(drain(&rx).len(), 9000);
    net.pump();
    assert_eq!(completed_ids(&tx), [0]);
    assert_eq!(tx.send_lent(vec![1; 8000]).unwrap().id, 1);
    tx.shutdown(uncopied::Shutdown::Write).unwrap();
    assert_eq!(tx.send_lent(vec![1; 10]).unwrap_err().error, Error::Pipe);
    net.pump();
    assert_eq!(completed_ids(&tx), [1]);
}

#[test]
fn a_call_cut_short_counts_once_and_names_what_it_queued() {
    let mut net = Pair::with(Features::all(), |c| c.sndbuf = 40_000);
    let (tx, rx, _l) = net.connect();
    let area = Area::new(&pattern(100_000));
    let (sent, ticket) = sendmsg(&tx, &[area], MSG_ZEROCOPY | MSG_DONTWAIT).unwrap();
    assert!((1..100_000).contains(&sent), "{sent}");
    assert_eq!(ticket.unwrap().id, 0);
    assert_eq!(net.a.stats().lent_calls, 1);
    net.pump();
    assert_eq!(drain(&rx), pattern(100_000)[..sent]);
    net.run(std::time::Duration::from_secs(1));
    assert_eq!(completed_ids(&tx), [0]);
    assert_eq!(tx.send_lent(vec![1]).unwrap().id, 1);
}

#[test]
fn a_call_that_blocked_for_room_many_times_counts_once() {
    let (left, right, engine) = uncopied::link::pair(uncopied::link::LinkConfig::default());
    let engine = engine.spawn("nic").unwrap();
    let build = |dev, addr: [u8; 4]| {
        let s = Stack::builder().device(dev, &[(addr.into(), 24)]);
        let s = s.configure(|c| (c.memlock, c.sndbuf) = (u64::MAX, 50_000)).build().unwrap();
        s.spawn().unwrap();
        s
    };
    let (a, b) = (build(left, A), build(right, B));
    let listener = uncopied::TcpListener::bind(&b, SocketAddr::from((B, 80))).unwrap();
    let tx = uncopied::TcpStream::connect(&a, listener.local_addr()).unwrap();
    let (rx, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || {
        let (mut got, mut buf) = (Vec::new(), vec![0; 65536]);
        while got.len() < 1_000_000 {
            let n = rx.recv(&mut buf).unwrap();
            got.extend_from_slice(&buf[..n]);
        }
        got
    });
    let (sent, ticket) = sendmsg(&tx, &[Area::new(&pattern(1_000_000))], MSG_ZEROCOPY).unwrap();
    assert_eq!((sent, ticket.unwrap().id), (1_000_000, 0));
    assert!(reader.join().unwrap() == pattern(1_000_000));
    let done = tx.wait_completion(Some(std::time::Duration::from_secs(20))).unwrap().unwrap();
    assert_eq!((done.first, done.last), (0, 0));
    assert_eq!((a.stats().lent_calls, a.stats().lent_bytes, a.stats().completions), (1, 1_000_000, 1));
    drop((tx, listener, a, b, engine));
}

#[test]
fn the_counter_wraps_at_2_to_the_32() {
    let mut net = Pair::new();
    let (tx, _rx, _l) = net.connect();
    tx.set_next_call(u32::MAX - 1);
    let ids: Vec<u32> = (0..5).map(|_| tx.send_lent(vec![1; 10]).unwrap().id).collect();
    assert_eq!(ids, [u32::MAX - 1, u32::MAX, 0, 1, 2]);
    net.run(std::time::Duration::from_secs(1));
    assert_eq!(completed_ids(&tx), ids);
}

#[test]
fn the_counter_is_not_reset_by_a_purge() {
    let mut net = Pair::new();
    let (mut tx, _rx, listener) = net.connect();
    tx.set_write_timeout(Some(std::time::Duration::ZERO));
    assert_eq!(tx.send_lent(vec![1; 10]).unwrap().id, 0);
    tx.purge().unwrap();
    net.pump();
    let _ = tx.reconnect(listener.local_addr()); // does not wait here: nobody polls `b`
    net.pump();
    assert_eq!(tx.send_lent(vec![1; 10]).unwrap().id, 1);
    net.pump();
    assert_eq!(completed_ids(&tx), [0, 1]);
}

#[test]
fn one_call_is_one_number_however_many_packets_it_became() {
    let mut net = Pair::with(Features::SG | Features::CSUM, |_| {});
    let (tx, rx, _l) = net.connect();
    let before = net.a.stats().tx_packets;
    tx.send_lent(pattern(500_000)).unwrap();
    net.run(std::time::Duration::from_secs(1));
    let mut got = drain(&rx);
    while got.len() < 500_000 {
        net.run(std::time::Duration::from_millis(100));
        got.extend(drain(&rx));
    }
    assert!(got == pattern(500_000));
    net.run(std::time::Duration::from_secs(1));
    assert!(net.a.stats().tx_packets - before > 7, "many packets");
    let done = completions(&tx);
    assert_eq!(done.iter().map(|c| c.calls()).sum::<u64>(), 1);
    assert_eq!(net.a.stats().completions, 1);
}

#[test]
fn one_packet_carries_many_calls_and_each_completes_exactly_once() {
    let mut net = Pair::new();
    let (tx, rx, _l) = net.connect();
    tx.set_cork(true);
    for n in 0..10 {
        assert_eq!(tx.send_lent(vec![n; 100]).unwrap().id, u32::from(n));
    }
    assert_eq!(net.at_a.tx_len(), 0, "held back");
    tx.set_cork(false);
    net.poll_a();
    assert_eq!(net.at_a.tx_len(), 1, "packed into one packet");
    assert_eq!(tx.outstanding(), 10);
    net.run(std::time::Duration::from_secs(1));
    assert_eq!(drain(&rx).len(), 1000);
    assert_eq!(completed_ids(&tx), (0..10).collect::<Vec<_>>());
    assert_eq!(net.a.stats().calls_by_reason, Vec::<(Reason, u64)>::new());
}
