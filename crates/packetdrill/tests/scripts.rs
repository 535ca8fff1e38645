//! Several scripts in one process, as when packetdrill is given several files; and how a script ends.

mod driver;

use std::process::Command;

use driver::tool::Tool;
use driver::{MODES, Mode, Script, calls, seg};

#[test]
fn each_script_begins_with_nothing_of_the_one_before() {
    for mode in MODES.into_iter().cycle().take(9) {
        let mut s = Script::new(mode, "");
        let (listener, fd) = s.accepted();
        s.ok(0.0, calls::write(fd, 5000));
        // Sent and never looked at; the port is free again in the next script, and no packet is left over.
        s.finish(&[listener, fd]);
    }
}

#[test]
fn flags_of_one_script_are_not_the_nexts() {
    for (flags, mss) in [("mtu=1000", 960), ("", 1460)] {
        let mut s = Script::new(Mode::Ipv4, flags);
        let listener = s.listener();
        s.inject(0.0, seg("S", 0, 0));
        s.expect(0.0, seg("S.", 0, 0).ack(1).mss(mss));
        s.finish(&[listener]);
    }
}

#[test]
fn sockets_that_a_script_leaves_open_are_gone_in_the_next() {
    let mut s = Script::new(Mode::Ipv4, "");
    let (_, fd) = s.accepted();
    drop(s);
    let mut s = Script::new(Mode::Ipv4, "");
    s.fails(0.0, calls::read(fd, 10), libc::ENOTCONN);
    s.inject(0.0, seg("S", 0, 0));
    s.expect(0.0, seg("R.", 0, 0).ack(1));
    assert_eq!(calls::close_by_libc(fd), 0, "the placeholder was left alone");
    s.finish(&[]);
}

#[test]
fn time_goes_on_between_scripts() {
    let mut s = Script::new(Mode::Ipv4, "");
    s.wait(1000.0);
    let end = s.tool.now();
    s.finish(&[]);
    let mut s = Script::new(Mode::Ipv4, "");
    assert!(s.tool.now() >= end);
    s.finish(&[]);
}

#[test]
fn a_second_connection_comes_to_the_same_listener() {
    let mut s = Script::new(Mode::Ipv4, "");
    let (listener, first) = s.accepted();
    s.ok(0.0, calls::close(first));
    s.expect(0.0, seg("F.", 1, 0).ack(1));
    s.remote.set_port(9090);
    let second = s.accept_on(listener);
    s.finish(&[listener, second]);
}

#[test]
fn no_flags_at_all_are_a_null_pointer() {
    let mut tool = Tool::new(None);
    let before = tool.now();
    assert!(tool.now() > before, "every look moves the clock");
}

#[test]
fn nothing_will_come_is_said_by_an_empty_packet() {
    let mut s = Script::new(Mode::Ipv4, "");
    let listener = s.listener();
    assert!(s.tool.netdev_receive().is_none());
    s.inject(0.0, seg("S", 0, 0));
    s.expect(0.0, seg("S.", 0, 0).ack(1));
    s.inject(0.0, seg(".", 1, 0).ack(1));
    assert!(s.tool.netdev_receive().is_none(), "a connection at rest has nothing to say");
    s.finish(&[listener]);
}

#[test]
fn parameters_are_read_when_a_socket_is_made() {
    let dir = std::env::temp_dir().join(format!("uncopied-pd-{}", std::process::id()));
    let file = dir.join("net/ipv4/tcp_timestamps");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "1\n").unwrap();
    let mut s = Script::new(Mode::Ipv4, &format!("sysctl={}", dir.display()));
    // As a script's opening command does, after the plug-in was started.
    std::fs::write(&file, "0\n").unwrap();
    let fd = s.ok(0.0, calls::socket(Mode::Ipv4));
    s.ok(0.0, calls::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK));
    s.fails(0.0, calls::connect(fd, Mode::Ipv4), libc::EINPROGRESS);
    std::fs::remove_dir_all(&dir).unwrap();
    s.expect(0.0, seg("S", 0, 0).mss(1460).sack_permitted().wscale(7));
    s.finish(&[fd]);
}

#[test]
fn scripts_take_no_real_time() {
    let began = std::time::Instant::now();
    let mut s = Script::new(Mode::Ipv4, "");
    let (listener, fd) = s.accepted();
    s.wait(3600.0);
    s.inject(0.0, seg("P.", 1, 10).ack(1));
    assert_eq!(s.ok(0.0, calls::read(fd, 10)), 10);
    s.finish(&[listener, fd]);
    assert!(began.elapsed().as_secs() < 5);
}

/// Runs one of the tests below in a process of its own, which they end.
fn in_a_child(name: &str) -> (Option<i32>, String) {
    let out = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

const CHILD: &str = "UNCOPIED_PACKETDRILL_CHILD";

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn wrong_flags_are_refused_with_a_message() {
    if is_child() {
        Tool::new(Some("mtu=none"));
    } else {
        let (status, says) = in_a_child("wrong_flags_are_refused_with_a_message");
        assert_eq!(status, Some(1), "{says}");
        assert!(says.contains("--so_flags: mtu: `none` is no MTU"), "{says}");
    }
}

#[test]
fn a_call_that_can_never_end_fails_the_script_instead_of_hanging() {
    if is_child() {
        let mut s = Script::new(Mode::Ipv4, "");
        let listener = s.listener();
        s.call(0.0, calls::accept(listener, Mode::Ipv4));
    } else {
        let (status, says) = in_a_child("a_call_that_can_never_end_fails_the_script_instead_of_hanging");
        assert_eq!(status, Some(1), "{says}");
        assert!(says.contains("what can never happen"), "{says}");
    }
}
