//! What an idle connection costs: little memory, and no work at all.

#[path = "common/alloc_count.rs"]
mod alloc_count;
mod common;

use std::time::Duration;

use common::*;
use uncopied::{TcpListener, TcpStream};

#[global_allocator]
static COUNTING: alloc_count::Counting = alloc_count::Counting;

const CONNECTIONS: usize = 10_000;

/// Bytes that one end of an idle connection may take.
const MOST: usize = 2048;

#[test]
fn ten_thousand_idle_connections_take_little_memory_and_no_time() {
    let mut net = Pair::new();
    let listener = TcpListener::bind(&net.b, std::net::SocketAddr::from((B, 80))).unwrap();
    let before = alloc_count::live();
    let mut ends: Vec<(TcpStream, TcpStream)> = Vec::with_capacity(CONNECTIONS);
    while ends.len() < CONNECTIONS {
        let batch: Vec<_> = (0..500)
            .map(|_| {
                let mut tx = TcpStream::begin_connect(&net.a, listener.local_addr()).unwrap();
                tx.set_nonblocking(true);
                tx
            })
            .collect();
        net.pump();
        for tx in batch {
            assert!(tx.take_error().is_none());
            let (mut rx, _) = listener.try_accept().unwrap();
            rx.set_nonblocking(true);
            ends.push((tx, rx));
        }
    }
    net.run(Duration::from_secs(2));
    let idle = (alloc_count::live() - before) / (2 * CONNECTIONS);
    println!("{idle} bytes per end of a connection that was never used");
    assert!(idle < MOST, "{idle}");

    // Used once, and idle again. Accepted in any order: the pairs are not each other's ends.
    for batch in ends.chunks(100) {
        for (tx, rx) in batch {
            tx.send_lent(vec![1; 3000]).unwrap();
            rx.send(&[2; 100]).unwrap();
        }
        net.run(Duration::from_millis(100));
    }
    let mut buf = [0; 4000];
    for (tx, rx) in &ends {
        assert_eq!((tx.recv(&mut buf).unwrap(), rx.recv(&mut buf).unwrap()), (100, 3000));
        assert_eq!(completed_ids(tx), [0]);
    }
    net.run(Duration::from_secs(5));
    let used = (alloc_count::live() - before) / (2 * CONNECTIONS);
    println!("{used} bytes per end of a connection that was used and is idle");
    // The pools' spare pages are in this, and the queues' spare room.
    assert!(used < MOST + 1024, "{used}");

    // An hour in which nothing happens.
    let (a, b) = (net.a.stats(), net.b.stats());
    for _ in 0..360 {
        net.clock.advance(Duration::from_secs(10));
        net.pump();
    }
    assert_eq!((net.a.stats().timers, net.b.stats().timers), (a.timers, b.timers), "no timer fired");
    assert_eq!((net.a.stats().tx_packets, net.b.stats().tx_packets), (a.tx_packets, b.tx_packets));
    assert_eq!(net.a.poll_all(net.a.now()), None, "and none is set");
    assert_eq!(net.a.connections(), CONNECTIONS);
}
