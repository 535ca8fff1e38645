//! A flood of SYNs against a small backlog costs no memory, and a real connection still gets in (by a SYN
//! cookie), with window scaling and SACK, and lends.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::*;
use uncopied::{TcpListener, TcpStream};

const BACKLOG: usize = 8;

/// SYNs from `ports` of a host that never answers.
fn flood(net: &Pair, ports: std::ops::Range<u16>) -> usize {
    let mut answers = 0;
    for sport in ports {
        let syn = Seg { sport, dport: 80, seq: 77, ack: 0, flags: SYN, window: 1000, payload: 0 };
        net.at_b.push_rx(forge([10, 0, 0, 99], B, syn));
        if sport % 64 == 0 {
            net.poll_b();
            answers += std::iter::from_fn(|| net.at_b.pop_tx()).count();
        }
    }
    net.poll_b();
    answers + std::iter::from_fn(|| net.at_b.pop_tx()).count()
}

fn connect_during_a_flood(net: &mut Pair, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let mut tx = TcpStream::begin_connect(&net.a, listener.local_addr()).unwrap();
    tx.set_nonblocking(true);
    net.pump();
    assert!(tx.take_error().is_none());
    let (mut rx, _) = listener.try_accept().unwrap();
    rx.set_nonblocking(true);
    (tx, rx)
}

#[test]
fn a_flood_is_answered_with_cookies_and_costs_no_connections() {
    let net = Pair::new();
    let _listener = TcpListener::bind_with_backlog(&net.b, SocketAddr::from((B, 80)), BACKLOG).unwrap();
    let answers = flood(&net, 1000..21_000);
    assert!(answers >= 20_000, "each is answered: {answers}");
    assert!(net.b.connections() <= BACKLOG + 1, "{}", net.b.connections());
}

#[test]
fn a_real_connection_gets_in_during_a_flood_and_lends() {
    let mut net = Pair::new();
    let listener = TcpListener::bind_with_backlog(&net.b, SocketAddr::from((B, 80)), BACKLOG).unwrap();
    for round in 0..5_u16 {
        flood(&net, 1000 + round * 3000..4000 + round * 3000);
        let (tx, rx) = connect_during_a_flood(&mut net, &listener);
        assert_eq!(rx.peer_addr(), tx.local_addr());
        let bytes = pattern(300_000);
        tx.send_lent(bytes.clone()).unwrap();
        rx.send_lent(vec![round as u8; 10]).unwrap();
        let mut got = Vec::new();
        for _ in 0..30 {
            net.run(Duration::from_millis(100));
            got.extend(drain(&rx));
        }
        assert!(got == bytes);
        assert_eq!(drain(&tx), [round as u8; 10]);
        assert_eq!((completed_ids(&tx), completed_ids(&rx)), (vec![0], vec![0]));
    }
}

#[test]
fn the_flood_is_forgotten_when_it_is_over() {
    let mut net = Pair::new();
    let listener = TcpListener::bind_with_backlog(&net.b, SocketAddr::from((B, 80)), BACKLOG).unwrap();
    flood(&net, 1000..3000);
    assert!(net.b.connections() > 0);
    for _ in 0..400 {
        net.clock.advance(Duration::from_secs(1));
        net.poll_b();
        while net.at_b.pop_tx().is_some() {}
    }
    assert_eq!(net.b.connections(), 0, "half-open connections have been given up");
    connect_during_a_flood(&mut net, &listener);
}

#[test]
fn a_guessed_cookie_makes_no_connection() {
    let net = Pair::new();
    let _listener = TcpListener::bind_with_backlog(&net.b, SocketAddr::from((B, 80)), 0).unwrap();
    flood(&net, 1000..1100);
    let before = net.b.connections();
    for n in 0..10_000_u32 {
        let sport = 5000 + (n % 1000) as u16;
        let ack = n.wrapping_mul(0x9e37_79b9);
        let guess = Seg { sport, dport: 80, seq: 78, ack, flags: ACK, window: 1000, payload: 0 };
        net.at_b.push_rx(forge([10, 0, 0, 99], B, guess));
        net.poll_b();
        while net.at_b.pop_tx().is_some_and(|p| {
            assert_ne!(seg(&p).flags & RST, 0, "refused");
            true
        }) {}
    }
    assert_eq!(net.b.connections(), before);
}

#[test]
fn a_full_accept_queue_takes_nobody_more_until_somebody_accepts() {
    let mut net = Pair::new();
    let listener = TcpListener::bind_with_backlog(&net.b, SocketAddr::from((B, 80)), 2).unwrap();
    let streams: Vec<_> = (0..20)
        .map(|_| {
            let mut s = TcpStream::begin_connect(&net.a, listener.local_addr()).unwrap();
            s.set_nonblocking(true);
            s
        })
        .collect();
    net.pump();
    net.run(Duration::from_secs(10));
    assert!(net.b.connections() <= 6, "bounded by the backlog: {}", net.b.connections());
    let mut accepted = Vec::new();
    let mut said = [false; 20];
    for _ in 0..200 {
        for (s, said) in streams.iter().zip(&mut said) {
            *said |= s.state() == uncopied::State::Established && (*said || s.send(&[1]).is_ok());
        }
        accepted.extend(std::iter::from_fn(|| listener.try_accept().ok()));
        net.run(Duration::from_secs(1));
    }
    assert_eq!(accepted.len(), 20, "all get in in the end");
    assert!(accepted.iter().all(|(s, _)| s.queued().0 == 1), "with their data");
}
