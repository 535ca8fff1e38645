//! Connections made from both sides, in the three modes that packetdrill runs scripts in.

mod driver;

use driver::{MODES, Script, calls, seg};

#[test]
fn a_listener_answers_in_every_mode() {
    for mode in MODES {
        let mut s = Script::new(mode, "");
        let listener = s.listener();
        s.inject(0.0, seg("S", 0, 0).win(32792).mss(1000).sack_permitted().wscale(7));
        s.expect(0.0, seg("S.", 0, 0).ack(1).mss(1460).sack_permitted().wscale(7));
        s.inject(0.1, seg(".", 1, 0).ack(1).win(257));
        let accepted = s.call(0.0, calls::accept(listener, mode));
        assert!(accepted.result > 0);
        assert_eq!(accepted.out, calls::name(s.remote, mode));
        s.ok(0.0, calls::write(accepted.result, 1000));
        s.expect(0.0, seg("P.", 1, 1000).ack(1));
        s.inject(0.1, seg(".", 1, 0).ack(1001).win(257));
        s.finish(&[listener, accepted.result]);
    }
}

#[test]
fn a_socket_connects_without_blocking_in_every_mode() {
    for mode in MODES {
        let mut s = Script::new(mode, "");
        let fd = s.ok(0.0, calls::socket(mode));
        assert_eq!(s.ok(0.0, calls::fcntl(fd, libc::F_GETFL, 0)), libc::O_RDWR);
        s.ok(0.0, calls::fcntl(fd, libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK));
        s.fails(0.0, calls::connect(fd, mode), libc::EINPROGRESS);
        s.expect(0.0, seg("S", 0, 0).mss(1460).sack_permitted().wscale(7).ts(0));
        s.inject(0.1, seg("S.", 0, 0).ack(1).win(5792).mss(1460).sack_permitted().wscale(7).ts(700));
        s.expect(0.0, seg(".", 1, 0).ack(1).ts(0));
        let error = s.call(0.0, calls::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, 4));
        assert_eq!((error.result, error.out), (0, vec![0; 4]));
        s.finish(&[fd]);
    }
}

#[test]
fn a_blocking_connect_ends_when_the_peer_answers() {
    for mode in MODES {
        let mut s = Script::new(mode, "tcp_timestamps=0");
        let fd = s.ok(0.0, calls::socket(mode));
        let connecting = s.begin(0.2, calls::connect(fd, mode));
        s.expect(0.0, seg("S", 0, 0).mss(1460).sack_permitted().wscale(7));
        s.inject(0.1, seg("S.", 0, 0).ack(1).win(5792).mss(1460).sack_permitted().wscale(7));
        s.expect(0.0, seg(".", 1, 0).ack(1).bare());
        assert_eq!(s.ends(connecting, 0.1).result, 0);
        s.finish(&[fd]);
    }
}

#[test]
fn a_refused_connection_says_so() {
    for mode in MODES {
        let mut s = Script::new(mode, "");
        let fd = s.ok(0.0, calls::socket(mode));
        let connecting = s.begin(0.0, calls::connect(fd, mode));
        s.expect(0.0, seg("S", 0, 0));
        s.inject(0.05, seg("R.", 0, 0).ack(1));
        let o = s.ends(connecting, 0.05);
        assert_eq!((o.result, o.errno), (-1, libc::ECONNREFUSED));
        s.finish(&[fd]);
    }
}

#[test]
fn syns_go_out_again_until_the_connection_is_given_up() {
    let mode = driver::Mode::Ipv4;
    let mut s = Script::new(mode, "tcp_syn_retries=2");
    let fd = s.ok(0.0, calls::socket(mode));
    let connecting = s.begin(0.0, calls::connect(fd, mode));
    s.expect(0.0, seg("S", 0, 0));
    s.expect(1.0, seg("S", 0, 0));
    s.expect(2.0, seg("S", 0, 0));
    // Nobody moves the clock but the call itself.
    let o = s.ends(connecting, 7.0);
    assert_eq!((o.result, o.errno), (-1, libc::ETIMEDOUT));
    s.finish(&[fd]);
}

#[test]
fn a_script_may_bind_to_any_address() {
    let mode = driver::Mode::Ipv4;
    let mut s = Script::new(mode, "");
    s.local = "192.168.77.5:8080".parse().unwrap();
    let fd = s.ok(0.0, calls::socket(mode));
    s.ok(0.0, calls::bind(fd, s.local, mode));
    s.ok(0.0, calls::listen(fd, 1));
    s.inject(0.0, seg("S", 0, 0).mss(1000));
    s.expect(0.0, seg("S.", 0, 0).ack(1).mss(1460));
    s.finish(&[fd]);
}

#[test]
fn flags_set_addresses_and_mtu() {
    let mode = driver::Mode::Ipv4;
    let mut s = Script::new(mode, "local=10.9.8.7,mtu4=1000");
    let fd = s.ok(0.0, calls::socket(mode));
    s.ok(0.0, calls::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK));
    s.fails(0.0, calls::connect(fd, mode), libc::EINPROGRESS);
    s.expect(0.0, seg("S", 0, 0).mss(960).sack_permitted().wscale(7).ts(0));
    assert_eq!(s.local.ip().to_string(), "10.9.8.7");
    s.finish(&[fd]);
    let mut s = Script::new(mode, "remote=10.0.0.0/8");
    let fd = s.ok(0.0, calls::socket(mode));
    s.fails(0.0, calls::connect(fd, mode), libc::ENETUNREACH);
    s.finish(&[fd]);
}

#[test]
fn ecn_is_a_parameter() {
    let mode = driver::Mode::Ipv4;
    for (flags, syn, answer) in
        [("tcp_ecn=0", "S", "S."), ("tcp_ecn=1", "SEW", "S.E"), ("tcp_ecn=2", "S", "S.E")]
    {
        let mut s = Script::new(mode, flags);
        let listener = s.listener();
        s.inject(0.0, seg("SEW", 0, 0).mss(1000));
        s.expect(0.0, seg(answer, 0, 0).ack(1));
        s.finish(&[listener]);
        let mut s = Script::new(mode, flags);
        let fd = s.ok(0.0, calls::socket(mode));
        s.ok(0.0, calls::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK));
        s.fails(0.0, calls::connect(fd, mode), libc::EINPROGRESS);
        s.expect(0.0, seg(syn, 0, 0));
        s.finish(&[fd]);
    }
}
