//! `poll` and `epoll`, with time-outs in virtual time, over sockets of the stack's and descriptors of the kernel's.

mod driver;

use driver::tool::Outcome;
use driver::{Mode, Script, calls, seg};
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLOUT, POLLIN, POLLOUT};

const V4: Mode = Mode::Ipv4;
const DATA: u64 = 0xdead_beef_0123_4567;

fn revents(o: &Outcome) -> Vec<i16> {
    o.out.chunks_exact(2).map(|c| i16::from_ne_bytes([c[0], c[1]])).collect()
}

/// The first event's bits and data.
fn event(o: &Outcome) -> (u32, u64) {
    (u32::from_ne_bytes(o.out[..4].try_into().unwrap()), u64::from_ne_bytes(o.out[4..].try_into().unwrap()))
}

#[test]
fn poll_writes_every_revents() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    let pipe = s.call(0.0, calls::pipe());
    let reader = i32::from_ne_bytes(pipe.out[..4].try_into().unwrap());
    let all = [(listener, POLLIN), (fd, POLLIN | POLLOUT), (reader, POLLIN), (-1, POLLIN)];
    let o = s.call(0.0, calls::poll(&all, 0));
    assert_eq!((o.result, revents(&o)), (1, vec![0, POLLOUT, 0, 0]));
    s.inject(0.1, seg("P.", 1, 10).ack(1));
    let o = s.call(0.0, calls::poll(&all, 0));
    assert_eq!((o.result, revents(&o)), (1, vec![0, POLLIN | POLLOUT, 0, 0]));
    s.finish(&[listener, fd]);
}

#[test]
fn poll_sleeps_until_the_data_comes() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    let polling = s.begin(0.0, calls::poll(&[(fd, POLLIN)], -1));
    s.inject(0.3, seg("P.", 1, 10).ack(1));
    let o = s.ends(polling, 0.3);
    assert_eq!((o.result, revents(&o)), (1, vec![POLLIN]));
    s.finish(&[listener, fd]);
}

#[test]
fn poll_times_out_by_the_scripts_clock() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    let polling = s.begin(0.0, calls::poll(&[(fd, POLLIN)], 300));
    s.inject(0.5, seg("P.", 1, 10).ack(1));
    let o = s.ends(polling, 0.3);
    assert_eq!((o.result, revents(&o)), (0, vec![0]));
    // On the main thread, and with nothing of ours in the set.
    let at = s.tool.now();
    let pipe = s.call(0.0, calls::pipe());
    let reader = i32::from_ne_bytes(pipe.out[..4].try_into().unwrap());
    let o = s.call(0.0, calls::poll(&[(reader, POLLIN)], 2000));
    assert_eq!((o.result, revents(&o)), (0, vec![0]));
    assert!((2_000_000..2_010_000).contains(&(s.tool.now() - at)));
    s.finish(&[listener, fd]);
}

#[test]
fn epoll_reports_data_as_registered_and_leaves_the_rest_alone() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    let ep = s.ok(0.0, calls::epoll_create());
    s.ok(0.0, calls::epoll_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN as u32, DATA));
    s.fails(0.0, calls::epoll_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN as u32, DATA), libc::EEXIST);
    let o = s.call(0.0, calls::epoll_wait(ep, 0));
    assert_eq!((o.result, event(&o)), (0, (0, 0)));
    let waiting = s.begin(0.0, calls::epoll_wait(ep, -1));
    s.inject(0.2, seg("P.", 1, 10).ack(1));
    let o = s.ends(waiting, 0.2);
    assert_eq!((o.result, event(&o)), (1, (EPOLLIN as u32, DATA)));
    s.ok(0.0, calls::epoll_ctl(ep, EPOLL_CTL_MOD, fd, (EPOLLIN | EPOLLOUT | EPOLLET) as u32, 7));
    let o = s.call(0.0, calls::epoll_wait(ep, 0));
    assert_eq!((o.result, event(&o)), (1, ((EPOLLIN | EPOLLOUT) as u32, 7)));
    let o = s.call(0.0, calls::epoll_wait(ep, 0));
    assert_eq!((o.result, event(&o)), (0, (0, 0)), "an edge is reported once");
    s.inject(0.1, seg("P.", 11, 10).ack(1));
    let o = s.call(0.0, calls::epoll_wait(ep, 0));
    assert_eq!((o.result, event(&o).1), (1, 7), "and the next one again");
    s.ok(0.0, calls::epoll_ctl(ep, EPOLL_CTL_DEL, fd, 0, 0));
    s.ok(0.0, calls::close(ep));
    s.finish(&[listener, fd]);
}

#[test]
fn epoll_times_out_by_the_scripts_clock() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    let ep = s.ok(0.0, calls::epoll_create());
    for watched in [false, true] {
        if watched {
            s.ok(0.0, calls::epoll_ctl(ep, EPOLL_CTL_ADD, fd, EPOLLIN as u32, DATA));
        }
        let waiting = s.begin(0.0, calls::epoll_wait(ep, 250));
        let o = s.ends(waiting, 0.25);
        assert_eq!((o.result, event(&o)), (0, (0, 0)));
        let at = s.tool.now();
        assert_eq!(s.call(0.0, calls::epoll_wait(ep, 1000)).result, 0);
        assert!((1_000_000..1_010_000).contains(&(s.tool.now() - at)));
    }
    s.ok(0.0, calls::close(ep));
    s.finish(&[listener, fd]);
}
