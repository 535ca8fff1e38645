//! Data and its timers: retransmission, windows, selective and delayed acknowledgments.

mod driver;

use driver::{MODES, Mode, Script, calls, seg};

const V4: Mode = Mode::Ipv4;

#[test]
fn data_flows_both_ways_in_every_mode() {
    for mode in MODES {
        let mut s = Script::new(mode, "");
        let (listener, fd) = s.accepted();
        s.inject(0.1, seg("P.", 1, 1000).ack(1));
        s.expect(0.0, seg(".", 1, 0).ack(1001));
        assert_eq!(s.ok(0.0, calls::read(fd, 2000)), 1000);
        assert_eq!(s.ok(0.0, calls::write(fd, 4000)), 4000);
        s.expect(0.0, seg("P.", 1, 4000).ack(1001));
        s.inject(0.1, seg(".", 1001, 0).ack(4001));
        s.finish(&[listener, fd]);
    }
}

#[test]
fn retransmissions_come_after_the_timeout_and_then_after_twice_that() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::write(fd, 1000));
    s.expect(0.0, seg("P.", 1, 1000).ack(1));
    // The handshake took 100 ms, so the timeout is 300: the smoothed round trip and four times its deviation,
    // which is half of it.
    s.expect(0.3, seg("P.", 1, 1000).ack(1));
    s.expect(0.6, seg("P.", 1, 1000).ack(1));
    s.expect(1.2, seg("P.", 1, 1000).ack(1));
    s.inject(0.1, seg(".", 1, 0).ack(1001));
    s.finish(&[listener, fd]);
}

#[test]
fn the_least_timeout_is_a_parameter() {
    for (flags, timeout) in [("", 0.2), ("tcp_rto_min_us=1000000", 1.0)] {
        let mut s = Script::new(V4, flags);
        let listener = s.listener();
        s.inject(0.0, seg("S", 0, 0).mss(1000));
        s.expect(0.0, seg("S.", 0, 0).ack(1));
        s.inject(0.0, seg(".", 1, 0).ack(1));
        let fd = s.ok(0.0, calls::accept(listener, V4));
        s.ok(0.0, calls::write(fd, 1000));
        s.expect(0.0, seg("P.", 1, 1000).ack(1));
        s.expect(timeout, seg("P.", 1, 1000).ack(1));
        s.inject(0.0, seg(".", 1, 0).ack(1001));
        s.finish(&[listener, fd]);
    }
}

#[test]
fn no_more_is_sent_than_the_window_takes() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.0, seg(".", 1, 0).ack(1).win(3000));
    s.ok(0.0, calls::write(fd, 5000));
    s.expect(0.0, seg(".", 1, 3000).ack(1));
    s.inject(0.1, seg(".", 1, 0).ack(3001).win(3000));
    s.expect(0.0, seg("P.", 3001, 2000).ack(1));
    s.inject(0.1, seg(".", 1, 0).ack(5001).win(3000));
    s.finish(&[listener, fd]);
}

#[test]
fn a_closed_window_is_probed() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.0, seg(".", 1, 0).ack(1).win(0));
    s.ok(0.0, calls::write(fd, 500));
    let before = s.tool.now();
    let (at, packet) = s.tool.netdev_receive().expect("a probe");
    assert!((before + 200_000..before + 1_000_000).contains(&at));
    assert!(s.tool.now() - at < 10, "the script's time is the packet's");
    let (_, _, probe) = driver::packet::parse(&packet);
    assert!(probe.len <= 1, "{probe:?}");
    s.inject(0.05, seg(".", 1, 0).ack(1).win(1000));
    let (_, packet) = s.tool.netdev_receive().expect("the data");
    assert!(driver::packet::parse(&packet).2.len >= 499);
    s.finish(&[listener, fd]);
}

#[test]
fn the_initial_window_is_ten_segments_or_what_a_flag_says() {
    for (flags, bytes) in [("", 10_000), ("initcwnd=4", 4000)] {
        let mut s = Script::new(V4, flags);
        let (listener, fd) = s.accepted();
        s.ok(0.0, calls::write(fd, 20_000));
        s.expect(0.0, seg(".", 1, bytes).ack(1));
        let before = s.tool.now();
        let (at, _) = s.tool.netdev_receive().expect("a retransmission or probe");
        assert!(at > before + 100_000, "no more until something is acknowledged");
        s.finish(&[listener, fd]);
    }
}

#[test]
fn a_hole_is_reported_with_a_selective_acknowledgment() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.1, seg(".", 1001, 1000).ack(1));
    s.expect(0.0, seg(".", 1, 0).ack(1).sack(1001, 2001));
    s.inject(0.0, seg(".", 3001, 1000).ack(1));
    s.expect(0.0, seg(".", 1, 0).ack(1).sack(3001, 4001).sack(1001, 2001));
    s.inject(0.0, seg(".", 1, 1000).ack(1));
    s.expect(0.0, seg(".", 1, 0).ack(2001).sack(3001, 4001));
    s.inject(0.0, seg(".", 2001, 1000).ack(1));
    s.expect(0.0, seg(".", 1, 0).ack(4001).bare());
    assert_eq!(s.ok(0.0, calls::read(fd, 9000)), 4000);
    s.finish(&[listener, fd]);
}

#[test]
fn selective_acknowledgments_bring_a_fast_retransmission() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::write(fd, 5000));
    s.expect(0.0, seg("P.", 1, 5000).ack(1));
    s.inject(0.1, seg(".", 1, 0).ack(1).sack(1001, 2001));
    s.inject(0.0, seg(".", 1, 0).ack(1).sack(1001, 3001));
    s.inject(0.0, seg(".", 1, 0).ack(1).sack(1001, 4001));
    s.expect(0.0, seg(".", 1, 1000).ack(1));
    s.inject(0.1, seg(".", 1, 0).ack(5001));
    s.finish(&[listener, fd]);
}

#[test]
fn a_packet_larger_than_the_mtu_is_taken() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.1, seg("P.", 1, 10_000).ack(1));
    s.expect(0.0, seg(".", 1, 0).ack(10_001));
    assert_eq!(s.ok(0.0, calls::read(fd, 20_000)), 10_000);
    s.finish(&[listener, fd]);
}

#[test]
fn large_writes_leave_as_segments_or_whole_as_a_flag_says() {
    for (flags, first) in [("", 1000), ("gso=1", 4000)] {
        let mut s = Script::new(V4, flags);
        let (listener, fd) = s.accepted();
        s.ok(0.0, calls::write(fd, 4000));
        let (_, packet) = s.tool.netdev_receive().unwrap();
        assert_eq!(driver::packet::parse(&packet).2.len, first);
        s.finish(&[listener, fd]);
    }
}

#[test]
fn timestamps_echo_the_peers() {
    let mut s = Script::new(V4, "");
    let listener = s.listener();
    s.inject(0.0, seg("S", 0, 0).mss(1000).ts(500));
    s.expect(0.0, seg("S.", 0, 0).ack(1).mss(1460).ts(0));
    assert_eq!(s.last.options.timestamps.map(|t| t.ecr), Some(500));
    s.inject(0.1, seg(".", 1, 0).ack(1).ts(600));
    let fd = s.ok(0.0, calls::accept(listener, V4));
    s.ok(0.0, calls::write(fd, 100));
    s.expect(0.0, seg("P.", 1, 100).ack(1).ts(0));
    assert_eq!(s.last.options.timestamps.map(|t| t.ecr), Some(600));
    s.finish(&[listener, fd]);
}

#[test]
fn a_refused_path_tells_the_sender_by_icmp() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::write(fd, 1000));
    let (_, sent) = s.tool.netdev_receive().unwrap();
    // Fragmentation needed, next hop 600: the quoted header is the packet's own, as packetdrill makes it.
    let mut icmp = vec![3, 4, 0, 0, 0, 0, 0x02, 0x58];
    icmp.extend_from_slice(&sent[..28]);
    let sum = wire::checksum::finish(wire::checksum::sum(&icmp));
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let packet = driver::packet::ip_packet(s.remote.ip(), s.local.ip(), 1, &icmp);
    assert_eq!(s.tool.netdev_send(&packet), 0);
    let (_, again) = s.tool.netdev_receive().unwrap();
    assert!(again.len() <= 600, "{} bytes", again.len());
    s.finish(&[listener, fd]);
}

#[test]
fn an_acknowledgment_is_delayed_as_long_as_a_flag_says() {
    for (flags, delay) in [("", 0.04), ("delack_ms=100", 0.1)] {
        let mut s = Script::new(V4, flags);
        let (listener, fd) = s.accepted();
        s.ok(0.0, calls::set_number(fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK, 0, 4));
        s.inject(0.1, seg("P.", 1, 100).ack(1));
        s.expect(delay, seg(".", 1, 0).ack(101));
        s.finish(&[listener, fd]);
    }
}

#[test]
fn the_time_of_a_packet_is_when_it_was_sent_not_when_it_is_fetched() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::write(fd, 1000));
    s.expect(0.0, seg("P.", 1, 1000).ack(1));
    let sent = s.tool.now();
    s.wait(2.0);
    for due in [300_000, 900_000] {
        let (at, _) = s.tool.netdev_receive().unwrap();
        assert!((sent + due..sent + due + 4000).contains(&at), "{}", at - sent);
    }
    s.finish(&[listener, fd]);
}

#[test]
fn keepalive_probes_after_two_hours_of_the_scripts_time() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::set_number(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1, 4));
    s.expect(7200.0, seg(".", 0, 0).ack(1));
    s.expect(75.0, seg(".", 0, 0).ack(1));
    s.inject(0.1, seg(".", 1, 0).ack(1));
    s.finish(&[listener, fd]);
    let mut s = Script::new(V4, "patience=100");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::set_number(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1, 4));
    assert!(s.tool.netdev_receive().is_none(), "too long for this script");
    s.finish(&[listener, fd]);
}

#[test]
fn timestamps_tick_by_the_scripts_clock() {
    let mut s = Script::new(V4, "");
    let listener = s.listener();
    s.inject(0.0, seg("S", 0, 0).mss(1000).ts(500));
    s.expect(0.0, seg("S.", 0, 0).ack(1).mss(1460).ts(0));
    let first = s.ts_recent;
    s.inject(0.1, seg(".", 1, 0).ack(1).ts(600));
    let fd = s.ok(0.4, calls::accept(listener, V4));
    s.ok(0.0, calls::write(fd, 100));
    s.expect(0.0, seg("P.", 1, 100).ack(1).ts(0));
    let passed = s.ts_recent.wrapping_sub(first);
    assert!((499..=501).contains(&passed), "{passed} ms");
    s.finish(&[listener, fd]);
}
