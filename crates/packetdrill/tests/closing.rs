//! Ends of connections, from both sides.

mod driver;

use driver::{MODES, Mode, Script, calls, seg};

const V4: Mode = Mode::Ipv4;

#[test]
fn closing_first_ends_in_time_wait() {
    for mode in MODES {
        let mut s = Script::new(mode, "time_wait=5");
        let (listener, fd) = s.accepted();
        s.ok(0.1, calls::close(fd));
        s.expect(0.0, seg("F.", 1, 0).ack(1));
        s.inject(0.1, seg(".", 1, 0).ack(2));
        s.inject(0.1, seg("F.", 1, 0).ack(2));
        s.expect(0.0, seg(".", 2, 0).ack(2));
        // The peer's FIN again is acknowledged again, and starts the wait anew.
        s.inject(1.0, seg("F.", 1, 0).ack(2));
        s.expect(0.0, seg(".", 2, 0).ack(2));
        // When it is over nobody knows the connection any more.
        s.inject(6.0, seg("F.", 1, 0).ack(2));
        let (_, packet) = s.tool.netdev_receive().expect("a reset");
        let reset = driver::packet::parse(&packet).2;
        assert!(reset.flags.contains(wire::tcp::TcpFlags::RST));
        s.finish(&[listener]);
    }
}

#[test]
fn closing_second_ends_with_the_last_acknowledgment() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.1, seg("F.", 1, 0).ack(1));
    s.expect(0.0, seg(".", 1, 0).ack(2));
    assert_eq!(s.ok(0.0, calls::read(fd, 10)), 0);
    s.ok(0.1, calls::close(fd));
    s.expect(0.0, seg("F.", 1, 0).ack(2));
    s.inject(0.1, seg(".", 2, 0).ack(2));
    s.finish(&[listener]);
}

#[test]
fn a_fin_without_an_answer_is_sent_again() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::shutdown(fd, libc::SHUT_WR));
    s.expect(0.0, seg("F.", 1, 0).ack(1));
    s.expect(0.3, seg("F.", 1, 0).ack(1));
    s.inject(0.0, seg(".", 1, 0).ack(2));
    s.inject(0.1, seg("P.", 1, 100).ack(2));
    assert_eq!(s.ok(0.0, calls::read(fd, 200)), 100, "the other direction is open");
    s.fails(0.0, calls::write(fd, 1), libc::EPIPE);
    s.finish(&[listener, fd]);
}

#[test]
fn unread_data_makes_a_close_a_reset() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.1, seg("P.", 1, 1000).ack(1));
    s.expect(0.0, seg(".", 1, 0).ack(1001));
    s.ok(0.1, calls::close(fd));
    s.expect(0.0, seg("R.", 1, 0).ack(1001));
    s.finish(&[listener]);
}

#[test]
fn a_reset_is_reported_once() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.1, seg("R.", 1, 0).ack(1));
    s.fails(0.0, calls::read(fd, 10), libc::ECONNRESET);
    assert_eq!(s.ok(0.0, calls::read(fd, 10)), 0);
    s.fails(0.0, calls::write(fd, 10), libc::EPIPE);
    s.finish(&[listener, fd]);
}

#[test]
fn lingering_waits_for_the_acknowledgment_by_the_scripts_clock() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::linger(fd, 5));
    s.ok(0.0, calls::write(fd, 1000));
    s.expect(0.0, seg("P.", 1, 1000).ack(1));
    let closing = s.begin(0.0, calls::close(fd));
    s.expect(0.0, seg("F.", 1001, 0).ack(1));
    s.inject(0.2, seg(".", 1, 0).ack(1002));
    assert_eq!(s.ends(closing, 0.2).result, 0);
    s.finish(&[listener]);
}

#[test]
fn a_segment_for_nobody_is_reset() {
    let mut s = Script::new(V4, "");
    s.inject(0.1, seg("S", 0, 0).mss(1000));
    s.expect(0.0, seg("R.", 0, 0).ack(1));
    s.finish(&[]);
}
