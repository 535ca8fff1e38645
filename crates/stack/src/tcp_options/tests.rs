use std::net::SocketAddr;

use super::*;
use crate::{Ready, SendFlags, Shutdown, Stack};

/// Two ends of a connection over the loopback of one stack.
fn pair(stack: &Stack, before: impl Fn(&Arc<TcpSocket>)) -> (Arc<TcpSocket>, Arc<TcpSocket>) {
    let listener = stack.tcp_socket();
    before(&listener);
    let to = SocketAddr::from(([127, 0, 0, 1], 80));
    listener.bind(to).unwrap();
    listener.listen(5).unwrap();
    // What is set after listen() holds as well.
    listener.set_keepidle(77).unwrap();
    let client = stack.tcp_socket();
    client.connect(to).unwrap();
    stack.poll_all(stack.now());
    let server = listener.accept().unwrap();
    listener.close();
    (client, server)
}

#[test]
fn options_have_linuxs_ranges_and_read_back() {
    let stack = Stack::builder().build().unwrap();
    let s = stack.tcp_socket();
    for (bad, good) in [(87, 88), (32_768, 32_767)] {
        assert_eq!(s.set_maxseg(bad), Err(Error::Invalid));
        assert_eq!((s.set_maxseg(good), s.maxseg()), (Ok(()), good));
    }
    assert_eq!((s.set_maxseg(0), s.maxseg()), (Ok(()), 536));
    assert!([0, 32_768].into_iter().all(|v| s.set_keepidle(v).is_err() && s.set_keepintvl(v).is_err()));
    assert!([0, 128].into_iter().all(|v| s.set_keepcnt(v).is_err() && s.set_syncnt(v).is_err()));
    s.set_keepidle(1).and(s.set_keepintvl(2)).and(s.set_keepcnt(3)).and(s.set_syncnt(127)).unwrap();
    assert_eq!((s.keepalive_parameters(), s.syncnt(), s.keepalive()), ((1, 2, 3), 127, false));
    assert_eq!(s.set_user_timeout(u32::MAX), Err(Error::Invalid));
    assert_eq!((s.set_user_timeout(3000), s.user_timeout()), (Ok(()), 3000));
    for (set, got) in [(-5, -1), (0, 60), (7, 7), (500, 120)] {
        s.set_linger2(set);
        assert_eq!(s.linger2(), got);
    }
    for (set, got) in [(0, 0), (1, 1), (2, 3), (4, 7), (-1, 0)] {
        s.set_defer_accept(set);
        assert_eq!(s.defer_accept(), got);
    }
    assert_eq!((s.set_window_clamp(1), s.window_clamp()), (Ok(()), 1152));
    assert_eq!((s.set_congestion("reno"), s.congestion()), (Ok(()), "reno"));
    assert_eq!(s.set_congestion("bbr"), Err(Error::NotFound));
    s.set_rcvbuf(10_000, false);
    s.set_sndbuf(1, false);
    assert_eq!((s.rcvbuf(), s.sndbuf()), (20_000, 4608));
    s.set_rcvbuf(usize::MAX, false);
    assert_eq!(s.rcvbuf(), 2 * 212_992);
    s.set_rcvlowat(0);
    assert_eq!(s.rcvlowat(), 1);
    s.set_rcvlowat(-1);
    assert_eq!(s.rcvlowat(), 212_992);
}

#[test]
fn accepted_sockets_have_their_listeners_options() {
    let stack = Stack::builder().build().unwrap();
    let (_, server) = pair(&stack, |l| {
        l.set_nodelay(true);
        l.set_recv_inq(true);
    });
    assert!(server.nodelay() && server.recv_inq());
    assert_eq!(server.keepalive_parameters().0, 77);
    assert_eq!(server.set_window_clamp(0), Err(Error::Invalid));
}

#[test]
fn counts_peeks_and_truncating_receives_agree() {
    let stack = Stack::builder().build().unwrap();
    let (client, server) = pair(&stack, |_| {});
    client.send_with(b"hello, world", SendFlags::EOR).unwrap();
    assert_eq!(client.outq(), Ok(12));
    stack.poll_all(stack.now());
    assert_eq!((client.outq(), client.outq_not_sent(), server.inq()), (Ok(0), Ok(0), Ok(12)));
    let mut buf = [0; 20];
    assert_eq!((server.peek_at(7, &mut buf), &buf[..5]), (Ok(5), &b"world"[..]));
    assert_eq!((server.discard(7), server.inq_hint()), (Ok(7), 5));
    assert_eq!((server.recv(&mut buf), &buf[..5]), (Ok(5), &b"world"[..]));
    client.shutdown(Shutdown::Write).unwrap();
    assert!(!client.is_drained());
    stack.poll_all(stack.now());
    assert!(client.is_drained() && client.ready().contains(Ready::DRAINED));
    assert_eq!(server.inq_hint(), 1);
}

#[test]
fn urgent_data_is_polled_for_and_read_out_of_band() {
    let stack = Stack::builder().build().unwrap();
    let (client, server) = pair(&stack, |_| {});
    assert_eq!(server.recv_urgent(false), Err(Error::Invalid));
    client.send_with(b"ab!", SendFlags::OOB).unwrap();
    stack.poll_all(stack.now());
    assert!(server.ready().contains(Ready::PRI | Ready::IN));
    assert_eq!(server.recv_urgent(false), Ok(Some(b'!')));
    assert!(!server.ready().contains(Ready::PRI));
    let mut buf = [0; 10];
    assert_eq!((server.recv(&mut buf), server.is_at_mark()), (Ok(2), true));
    assert_eq!((server.recv(&mut buf), server.ready().contains(Ready::IN)), (Err(Error::WouldBlock), false));
}

#[test]
fn a_known_cookie_lets_the_first_data_go_with_the_syn() {
    let stack = Stack::builder().build().unwrap();
    let to = SocketAddr::from(([127, 0, 0, 1], 80));
    let listener = stack.tcp_socket();
    listener.set_fastopen(5);
    listener.bind(to).unwrap();
    listener.listen(5).unwrap();
    let mut buf = [0; 20];
    for known in [false, true, true] {
        let client = stack.tcp_socket();
        assert_eq!(client.connect_with_data(to), Ok(known));
        if known {
            assert_eq!(client.ready(), Ready::OUT);
            assert_eq!(client.send(b"hello"), Ok(5));
            assert_eq!(client.send(b"x"), Err(Error::WouldBlock));
        }
        stack.poll_all(stack.now());
        let server = listener.accept().unwrap();
        if known {
            assert_eq!((server.recv(&mut buf), &buf[..5]), (Ok(5), &b"hello"[..]));
            let info = client.info().unwrap();
            assert!(info.options.contains(tcp::TcpiOptions::SYN_DATA));
        }
        assert_eq!(client.state(), State::Established);
    }
    // By the option, connect() waits.
    let client = stack.tcp_socket();
    client.set_fastopen_connect(true);
    assert_eq!((client.connect(to), client.state()), (Ok(()), State::Closed));
    client.send_lent(vec![1; 10].into()).map_err(|e| e.0).unwrap();
    stack.poll_all(stack.now());
    let server = listener.accept().unwrap();
    assert_eq!(server.recv(&mut buf), Ok(10));
    stack.forget_cookies();
    assert_eq!(stack.tcp_socket().connect_with_data(to), Ok(false));
}
