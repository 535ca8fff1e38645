//! What scripts of the "bad argument" kind pass: null buffers, impossible lengths, descriptors of others.

mod driver;

use std::os::fd::AsRawFd;

use driver::{Mode, Script, calls, seg};

const V4: Mode = Mode::Ipv4;

#[test]
fn null_buffers_are_faults() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.1, seg("P.", 1, 100).ack(1));
    for call in ["read", "recv", "recvfrom", "readv", "write", "send", "sendto", "writev"] {
        s.fails(0.0, calls::null_buffer(fd, 100, call), libc::EFAULT);
    }
    assert_eq!(s.ok(0.0, calls::read(fd, 200)), 100, "nothing was lost");
    s.finish(&[listener, fd]);
}

#[test]
fn option_lengths_are_believed_only_as_far_as_there_are_bytes() {
    let mut s = Script::new(V4, "");
    let fd = s.ok(0.0, calls::socket(V4));
    let nodelay = |len| calls::set_number(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1, len);
    for len in [0, 1, 3, -1, i32::MIN] {
        s.fails(0.0, nodelay(len), libc::EINVAL);
    }
    for len in [4, 8, 100, i32::MAX] {
        s.ok(0.0, nodelay(len));
    }
    let o = s.call(0.0, calls::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 4));
    assert_eq!((o.result, o.out), (0, 1i32.to_ne_bytes().to_vec()));
    s.fails(0.0, calls::set_number(fd, libc::IPPROTO_TCP, 9999, 1, 4), libc::ENOPROTOOPT);
    s.ok(0.0, calls::set_bytes(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, b"reno\0".to_vec()));
    let o = s.call(0.0, calls::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, 16));
    assert_eq!(&o.out[..5], b"reno\0");
    s.finish(&[fd]);
}

#[test]
fn an_address_of_no_family_disconnects_whatever_its_length() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.ok(0.0, calls::disconnect(fd));
    s.expect(0.0, seg("R.", 1, 0).ack(1));
    s.finish(&[listener, fd]);
}

#[test]
fn ioctl_counts_what_is_in_the_queues() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.1, seg("P.", 1, 700).ack(1));
    let o = s.call(0.0, calls::ioctl(fd, libc::FIONREAD as i32));
    assert_eq!((o.result, o.out), (0, 700i32.to_ne_bytes().to_vec()));
    s.ok(0.0, calls::write(fd, 900));
    let o = s.call(0.0, calls::ioctl(fd, libc::TIOCOUTQ as i32));
    assert_eq!((o.result, o.out), (0, 900i32.to_ne_bytes().to_vec()));
    s.finish(&[listener, fd]);
}

#[test]
fn flags_of_a_descriptor_are_kept() {
    let mut s = Script::new(V4, "");
    let fd = s.ok(0.0, calls::socket(V4));
    s.ok(0.0, calls::fcntl(fd, libc::F_SETFL, libc::O_RDWR | libc::O_NONBLOCK));
    assert_eq!(s.ok(0.0, calls::fcntl(fd, libc::F_GETFL, 0)), libc::O_RDWR | libc::O_NONBLOCK);
    s.finish(&[fd]);
}

#[test]
fn descriptors_of_others_are_the_kernels() {
    let mut s = Script::new(V4, "");
    let file = std::fs::File::open("/dev/zero").unwrap();
    assert_eq!(s.ok(0.0, calls::read(file.as_raw_fd(), 10)), 10);
    let fd = std::os::fd::IntoRawFd::into_raw_fd(file);
    s.ok(0.0, calls::close(fd));
    s.fails(0.0, calls::close(fd), libc::EBADF);
    s.fails(0.0, calls::write(fd, 10), libc::EBADF);
    s.fails(0.0, calls::listen(fd, 1), libc::EBADF);
    s.finish(&[]);
}

#[test]
fn a_marked_read_on_a_pipe_waits_in_the_kernel_and_lets_the_script_go_on() {
    let mut s = Script::new(V4, "");
    let o = s.call(0.0, calls::pipe());
    let [reader, writer] = [0, 4].map(|at| i32::from_ne_bytes(o.out[at..at + 4].try_into().unwrap()));
    s.begin(0.0, calls::read(reader, 10));
    s.wait(0.1);
    assert_eq!(s.tool.call_meanwhile(calls::write(writer, 5)).result, 5);
    assert_eq!(s.tool.join().result, 5);
    s.finish(&[reader, writer]);
}

#[test]
fn splice_takes_a_pointer_to_zero_for_no_offset() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    let o = s.call(0.0, calls::pipe());
    let [reader, writer] = [0, 4].map(|at| i32::from_ne_bytes(o.out[at..at + 4].try_into().unwrap()));
    s.inject(0.1, seg("P.", 1, 500).ack(1));
    s.expect(0.0, seg(".", 1, 0).ack(501));
    assert_eq!(s.ok(0.0, calls::splice(fd, writer, 1000)), 500);
    assert_eq!(s.ok(0.0, calls::splice(reader, fd, 1000)), 500);
    s.expect(0.0, seg("P.", 1, 500).ack(501));
    s.finish(&[listener, fd, reader, writer]);
}

#[test]
fn sockets_that_are_not_connected_say_so() {
    let mut s = Script::new(V4, "");
    let fd = s.ok(0.0, calls::socket(V4));
    s.fails(0.0, calls::read(fd, 10), libc::ENOTCONN);
    s.fails(0.0, calls::shutdown(fd, libc::SHUT_WR), libc::ENOTCONN);
    s.fails(0.0, calls::accept(fd, V4), libc::EINVAL);
    s.finish(&[fd]);
}

#[test]
fn peeking_leaves_the_bytes() {
    let mut s = Script::new(V4, "");
    let (listener, fd) = s.accepted();
    s.inject(0.1, seg("P.", 1, 100).ack(1));
    assert_eq!(s.ok(0.0, calls::recv(fd, 60, libc::MSG_PEEK)), 60);
    assert_eq!(s.ok(0.0, calls::recv(fd, 100, 0)), 100);
    s.fails(0.0, calls::recv(fd, 100, libc::MSG_DONTWAIT), libc::EAGAIN);
    s.finish(&[listener, fd]);
}
