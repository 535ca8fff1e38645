//! Calls that block: they end at the script's time of what ended them, on the clock that the script sees.

mod driver;

use driver::{MODES, Mode, Script, calls, seg};

const V4: Mode = Mode::Ipv4;

#[test]
fn accept_ends_with_the_handshake_in_every_mode() {
    for mode in MODES {
        let mut s = Script::new(mode, "");
        let listener = s.listener();
        let accepting = s.begin(0.0, calls::accept(listener, mode));
        s.inject(0.1, seg("S", 0, 0).win(1000).mss(1000));
        s.expect(0.0, seg("S.", 0, 0).ack(1).mss(1460));
        s.inject(0.2, seg(".", 1, 0).ack(1));
        let o = s.ends(accepting, 0.3);
        assert!(o.result > 0);
        assert_eq!(o.out, calls::name(s.remote, mode));
        s.finish(&[listener, o.result]);
    }
}

#[test]
fn read_ends_with_the_data_and_not_before() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    let reading = s.begin(0.0, calls::read(fd, 2000));
    s.wait(0.3);
    assert!(!s.tool.has_ended());
    s.inject(0.2, seg("P.", 1, 1000).ack(1));
    assert_eq!(s.ends(reading, 0.5).result, 1000);
    s.expect(0.0, seg(".", 1, 0).ack(1001));
    s.finish(&[listener, fd]);
}

#[test]
fn a_call_that_need_not_block_ends_at_once() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.1, seg("P.", 1, 1000).ack(1));
    let reading = s.begin(0.1, calls::read(fd, 2000));
    assert_eq!(s.ends(reading, 0.0).result, 1000);
    s.finish(&[listener, fd]);
}

#[test]
fn read_ends_with_the_end_of_the_stream_and_with_a_reset() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    let reading = s.begin(0.0, calls::read(fd, 2000));
    s.inject(0.1, seg("F.", 1, 0).ack(1));
    assert_eq!(s.ends(reading, 0.1).result, 0);
    s.expect(0.0, seg(".", 1, 0).ack(2));
    s.finish(&[listener, fd]);

    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    let reading = s.begin(0.0, calls::read(fd, 2000));
    s.inject(0.1, seg("R.", 1, 0).ack(1));
    let o = s.ends(reading, 0.1);
    assert_eq!((o.result, o.errno), (-1, libc::ECONNRESET));
    s.finish(&[listener, fd]);
}

#[test]
fn write_ends_when_there_is_room_for_all() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::set_number(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 10_000, 4));
    s.begin(0.0, calls::write(fd, 50_000));
    s.expect(0.0, seg(".", 1, 10_000).ack(1));
    s.wait(0.05);
    assert!(!s.tool.has_ended(), "the buffer is full");
    s.inject(0.05, seg(".", 1, 0).ack(10_001));
    s.wait(0.01);
    assert!(!s.tool.has_ended(), "a part is not enough");
    let mut acknowledged = 10_001;
    while acknowledged < 50_001 {
        // Whatever was sent is acknowledged, until the call has ended.
        let Some((_, packet)) = s.tool.netdev_receive() else { panic!("nothing more is sent") };
        let (_, _, got) = driver::packet::parse(&packet);
        acknowledged += got.len as u32;
        s.inject(0.0, seg(".", 1, 0).ack(acknowledged));
    }
    assert_eq!(s.tool.join().result, 50_000);
    s.finish(&[listener, fd]);
}

#[test]
fn a_receive_timeout_ends_the_call_while_the_main_thread_waits_for_it() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::timeout(fd, libc::SO_RCVTIMEO, 400_000));
    let reading = s.begin(0.1, calls::read(fd, 100));
    // Nobody moves the clock but the sleeper.
    let o = s.ends(reading, 0.4);
    assert_eq!((o.result, o.errno), (-1, libc::EAGAIN));
    s.finish(&[listener, fd]);
}

#[test]
fn a_receive_timeout_ends_the_call_while_the_script_goes_on() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::timeout(fd, libc::SO_RCVTIMEO, 400_000));
    let reading = s.begin(0.0, calls::read(fd, 100));
    s.inject(1.0, seg("P.", 1, 1000).ack(1));
    let o = s.ends(reading, 0.4);
    assert_eq!((o.result, o.errno), (-1, libc::EAGAIN));
    assert_eq!(s.ok(0.0, calls::read(fd, 1000)), 1000);
    s.finish(&[listener, fd]);
}

#[test]
fn a_call_on_the_main_thread_blocks_until_the_stacks_own_timer_ends_it() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::timeout(fd, libc::SO_RCVTIMEO, 5_000_000));
    let began = std::time::Instant::now();
    let at = s.tool.now();
    s.fails(0.0, calls::read(fd, 100), libc::EAGAIN);
    let took = s.tool.now() - at;
    assert!((5_000_000..5_010_000).contains(&took), "{took}");
    assert!(began.elapsed().as_secs() < 2, "of real time");
    s.finish(&[listener, fd]);
}

#[test]
fn a_send_timeout_ends_a_blocked_write() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::set_number(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 5000, 4));
    s.ok(0.0, calls::timeout(fd, libc::SO_SNDTIMEO, 100_000));
    let writing = s.begin(0.0, calls::write(fd, 50_000));
    let o = s.ends(writing, 0.1);
    assert!((5000..50_000).contains(&o.result), "{o:?}");
    s.finish(&[listener, fd]);
}

#[test]
fn a_shell_command_does_not_move_the_clock() {
    let mut s = Script::new(V4, "idle_ms=60");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::timeout(fd, libc::SO_RCVTIMEO, 400_000));
    let reading = s.begin(0.0, calls::read(fd, 100));
    assert!(std::process::Command::new("sleep").arg("0.2").status().unwrap().success());
    assert!(!s.tool.has_ended(), "the script's time stood still");
    s.inject(0.1, seg("P.", 1, 50).ack(1));
    assert_eq!(s.ends(reading, 0.1).result, 50);
    s.finish(&[listener, fd]);
}

#[test]
fn a_busy_main_thread_does_not_move_the_clock() {
    let mut s = Script::new(V4, "idle_ms=20");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::timeout(fd, libc::SO_RCVTIMEO, 400_000));
    let reading = s.begin(0.0, calls::read(fd, 100));
    let began = std::time::Instant::now();
    while began.elapsed().as_millis() < 150 {
        std::hint::spin_loop();
    }
    s.inject(0.1, seg("P.", 1, 50).ack(1));
    assert_eq!(s.ends(reading, 0.1).result, 50);
    s.finish(&[listener, fd]);
}
