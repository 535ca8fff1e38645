"""What programs may expect of sockets, checked by one program on two stacks.

    sockets.py peer               serves the tests, on the kernel
    sockets.py ADDRESS [NAME…]    runs the tests against a peer at ADDRESS, on whatever stack it finds itself on

Run without a preload library the tests pass on Linux: that is how their expectations are known to be right.
"""
import array, ctypes, errno, fcntl, hashlib, os, select, signal, socket, struct, sys, tempfile, termios, threading, time

ECHO, DISCARD, SOURCE, RESET, STUCK, BACK = range(7001, 7007)
SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK = 0x5411, 0x894B, 0x8905
SO_ZEROCOPY, MSG_ZEROCOPY, SO_EE_ORIGIN_ZEROCOPY = 60, 0x4000000, 5
TCP_INQ = 36


# --- the peer -----------------------------------------------------------------------------------------

def serve(port, handle):
    server = socket.create_server(("", port), backlog=64)
    while True:
        conn, _ = server.accept()
        threading.Thread(target=handle, args=(conn,), daemon=True).start()


def echo(conn):
    try:
        while data := conn.recv(1 << 16):
            conn.sendall(data)
        conn.close()
    except OSError:
        pass


def discard(conn):
    while conn.recv(1 << 20):
        pass
    conn.close()


def pattern(n):
    return (b"0123456789abcdef" * (n // 16 + 1))[:n]


def source(conn):
    n, pause = struct.unpack("!II", conn.recv(8, socket.MSG_WAITALL))
    data = pattern(n)
    half = n // 2 if pause else n
    conn.sendall(data[:half])
    time.sleep(pause / 1000)
    conn.sendall(data[half:])
    conn.close()


def reset(conn):
    conn.recv(1)
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


def stuck(conn):
    time.sleep(3600)


def back(conn):
    """Connects to the port it is told, and echoes there."""
    port, = struct.unpack("!H", conn.recv(2, socket.MSG_WAITALL))
    with socket.create_connection((conn.getpeername()[0], port), timeout=10) as there:
        there.settimeout(None)
        echo(there)
    conn.close()


def peer():
    services = {ECHO: echo, DISCARD: discard, SOURCE: source, RESET: reset, STUCK: stuck, BACK: back}
    threads = [threading.Thread(target=serve, args=s, daemon=True) for s in services.items()]
    for t in threads:
        t.start()
    threads[0].join()


# --- helpers of the tests -----------------------------------------------------------------------------

HOST = None


def connect(port):
    return socket.create_connection((HOST, port))


def ask_source(n, pause=0):
    s = connect(SOURCE)
    s.sendall(struct.pack("!II", n, pause))
    return s


def ioctl_int(s, request):
    buf = array.array("i", [-1])
    fcntl.ioctl(s.fileno(), request, buf)
    return buf[0]


def fails(number, call, *args):
    try:
        result = call(*args)
    except OSError as e:
        assert e.errno == number, f"{errno.errorcode[e.errno]}, not {errno.errorcode[number]}"
    else:
        raise AssertionError(f"{errno.errorcode[number]} expected, got {result!r}")


def wait_for(condition, seconds=5):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.005)


def listener():
    """A listening socket, and a function that makes the peer connect to it."""
    s = socket.socket()
    s.bind(("0.0.0.0", 0))
    s.listen(16)
    port = s.getsockname()[1]
    assert port != 0

    def call_back():
        c = connect(BACK)
        c.sendall(struct.pack("!H", port))
        return c
    return s, call_back


libc = ctypes.CDLL(None, use_errno=True)


def raw(name, *args):
    """A call of libc's, past Python's checks: result and errno."""
    ctypes.set_errno(0)
    result = getattr(libc, name)(*args)
    return result, ctypes.get_errno()


def notifications(s):
    """All there are now: (first, last, code, reason)."""
    out = []
    while True:
        try:
            data, control, flags, _ = s.recvmsg(0, 256, socket.MSG_ERRQUEUE)
        except BlockingIOError:
            return out
        assert data == b"" and flags & socket.MSG_ERRQUEUE and not flags & socket.MSG_CTRUNC
        (level, kind, payload), = control
        assert (level, kind) == (socket.SOL_IP, 11), (level, kind)
        number, origin, zero, code, pad, info, last = struct.unpack("=IBBBBII", payload[:16])
        assert (number, origin, zero) == (0, SO_EE_ORIGIN_ZEROCOPY, 0)
        out.append((info, last, code, pad))


# --- the tests ----------------------------------------------------------------------------------------

def test_bytes_come_back():
    with connect(ECHO) as s:
        data = os.urandom(3_000_000)
        t = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        t.start()
        got = b"".join(iter(lambda: s.recv(100_000), b""))
        t.join()
        assert got == data


def test_names():
    with connect(ECHO) as s:
        assert s.getpeername() == (HOST, ECHO)
        ip, port = s.getsockname()
        assert ip != "0.0.0.0" and port > 0
    with socket.socket() as s:
        assert s.getsockname() == ("0.0.0.0", 0)
        fails(errno.ENOTCONN, s.getpeername)
        s.bind(("0.0.0.0", 0))
        assert s.getsockname()[1] > 0
        fails(errno.EINVAL, s.bind, ("0.0.0.0", 0))
    with socket.socket() as s:
        fails(errno.EADDRNOTAVAIL, s.bind, ("192.0.2.77", 0))


def test_a_name_is_cut_to_its_room():
    with connect(ECHO) as s:
        buf = ctypes.create_string_buffer(b"\xee" * 16)
        length = ctypes.c_uint(4)
        assert raw("getpeername", s.fileno(), buf, ctypes.byref(length)) == (0, 0)
        assert length.value == 16 and buf.raw[4:8] == b"\xee" * 4
        length = ctypes.c_uint(0xffffffff)
        assert raw("getpeername", s.fileno(), buf, ctypes.byref(length)) == (-1, errno.EINVAL)


def test_calls_in_the_wrong_state():
    with socket.socket() as s:
        fails(errno.ENOTCONN, s.recv, 1)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        fails(errno.EPIPE, s.send, b"x")
        fails(errno.ENOTCONN, s.shutdown, socket.SHUT_WR)
        fails(errno.EINVAL, s.accept)
    with connect(ECHO) as s:
        fails(errno.EISCONN, s.connect, (HOST, ECHO))
        fails(errno.EINVAL, s.listen, 1)
        fails(errno.EINVAL, s.accept)
        fails(errno.EINVAL, s.shutdown, 77)


def test_connect_is_refused():
    with socket.socket() as s:
        fails(errno.ECONNREFUSED, s.connect, (HOST, 9))
    with socket.socket() as s:
        s.setblocking(False)
        assert s.connect_ex((HOST, 9)) in (errno.EINPROGRESS, errno.ECONNREFUSED)
        p = select.poll()
        p.register(s, select.POLLOUT)
        (_, events), = p.poll(5000)
        assert events & select.POLLERR and events & select.POLLHUP, events
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (errno.ECONNREFUSED, 0)
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def test_connect_without_waiting():
    with socket.socket() as s:
        s.setblocking(False)
        assert s.connect_ex((HOST, ECHO)) in (0, errno.EINPROGRESS)
        _, writable, _ = select.select([], [s], [], 5)
        assert writable == [s]
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert s.connect_ex((HOST, ECHO)) in (0, errno.EISCONN)
        s.send(b"hello")
        select.select([s], [], [], 5)
        assert s.recv(10) == b"hello"


def test_listen_and_accept():
    s, call_back = listener()
    with s:
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        s.settimeout(5)
        calls = [call_back() for _ in range(3)]
        for _ in calls:
            conn, name = s.accept()
            with conn:
                assert name == conn.getpeername()
                conn.sendall(b"ping")
                assert conn.recv(4, socket.MSG_WAITALL) == b"ping"
        s.setblocking(False)
        fails(errno.EAGAIN, s.accept)
        fails(errno.EINVAL, ioctl_int, s, termios.FIONREAD)


def test_accept4_flags():
    s, call_back = listener()
    with s, call_back():
        fd, _ = raw("accept4", s.fileno(), None, None, socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        assert fd >= 0
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK and fcntl.fcntl(fd, fcntl.F_GETFD) == 1
        os.close(fd)
        assert raw("accept4", s.fileno(), None, None, 12345) == (-1, errno.EINVAL)


def test_an_address_in_use():
    with socket.socket() as a, socket.socket() as b, socket.socket() as c, socket.socket() as d:
        a.bind(("0.0.0.0", 0))
        a.listen()
        port = a.getsockname()[1]
        fails(errno.EADDRINUSE, b.bind, ("0.0.0.0", port))
        b.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        fails(errno.EADDRINUSE, b.bind, ("0.0.0.0", port))
        for s in (c, d):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        c.bind(("0.0.0.0", 0))
        d.bind(("0.0.0.0", c.getsockname()[1]))
        c.listen()
        d.listen()


def test_the_end_of_a_stream():
    with ask_source(5) as s:
        assert s.recv(10, socket.MSG_WAITALL) == b"01234"
        assert s.recv(10) == b"" and s.recv(10) == b""
        p = select.poll()
        p.register(s, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
        (_, events), = p.poll(0)
        assert events == select.POLLIN | select.POLLOUT | select.POLLRDHUP, events


def test_half_closed():
    with connect(ECHO) as s:
        s.sendall(b"abc")
        s.shutdown(socket.SHUT_WR)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        fails(errno.EPIPE, s.send, b"x")
        assert s.recv(10, socket.MSG_WAITALL) == b"abc"
        assert s.recv(10) == b""


def test_sigpipe():
    with connect(ECHO) as s:
        s.shutdown(socket.SHUT_WR)
        came = []
        signal.signal(signal.SIGPIPE, lambda *_: came.append(1))
        fails(errno.EPIPE, s.send, b"x", socket.MSG_NOSIGNAL)
        assert not came
        fails(errno.EPIPE, s.send, b"x")
        time.sleep(0)
        assert came
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def test_a_reset():
    with connect(RESET) as s:
        s.sendall(b"x")
        fails(errno.ECONNRESET, s.recv, 1)
        assert s.recv(1) == b""
    with connect(RESET) as s:
        p = select.poll()
        p.register(s, select.POLLIN)
        s.sendall(b"x")
        (_, events), = p.poll(5000)
        assert events & (select.POLLERR | select.POLLHUP) == select.POLLERR | select.POLLHUP, events
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET


def test_peek_truncate_and_all():
    with ask_source(100_000, 50) as s:
        assert s.recv(4, socket.MSG_PEEK) == b"0123"
        assert s.recv(4) == b"0123"
        assert len(s.recv(50_000 - 4, socket.MSG_WAITALL | socket.MSG_TRUNC)) == 49_996
        assert s.recv(4, socket.MSG_WAITALL) == pattern(50_004)[50_000:]
        assert len(s.recv(1 << 20, socket.MSG_WAITALL)) == 49_996
        assert s.recv(1, socket.MSG_WAITALL) == b""


def test_vectors():
    with connect(ECHO) as s:
        assert s.sendmsg([b"ab", b"", b"cde", b"f"]) == 6
        bufs = [bytearray(1), bytearray(0), bytearray(4), bytearray(10)]
        wait_for(lambda: ioctl_int(s, termios.FIONREAD) == 6)
        n, control, flags, name = s.recvmsg_into(bufs)
        assert (n, control, flags, name) == (6, [], 0, None)
        assert b"".join(bufs)[:6] == b"abcdef"
        assert os.writev(s.fileno(), [b"12", b"34"]) == 4
        wait_for(lambda: ioctl_int(s, termios.FIONREAD) == 4)
        a, b = bytearray(3), bytearray(3)
        assert os.readv(s.fileno(), [a, b]) == 4 and a + b == b"1234\0\0"


def test_null_and_nonsense():
    with connect(ECHO) as s:
        fd = s.fileno()
        assert raw("send", fd, None, 10, 0) == (-1, errno.EFAULT)
        assert raw("send", fd, None, 0, 0) == (0, 0)
        assert raw("sendmsg", fd, None, 0) == (-1, errno.EFAULT)
        assert raw("recvmsg", fd, None, 0)[1] == errno.EFAULT
        assert raw("connect", fd, b"\x02\0", 1) == (-1, errno.EINVAL)
        assert raw("setsockopt", fd, socket.SOL_SOCKET, socket.SO_KEEPALIVE, b"\1", 1) == (-1, errno.EINVAL)
        one, length = ctypes.c_int(1), ctypes.c_uint(4)
        assert raw("setsockopt", fd, socket.SOL_SOCKET, 9999, ctypes.byref(one), 4) == (-1, errno.ENOPROTOOPT)
        assert raw("getsockopt", fd, socket.SOL_SOCKET, 9999, ctypes.byref(one), ctypes.byref(length)) == (-1, errno.ENOPROTOOPT)
        assert raw("writev", fd, None, -1) == (-1, errno.EINVAL)
    fails(errno.EBADF, os.read, 987, 1)


def test_time_limits():
    with connect(ECHO) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 100_000))
        assert struct.unpack("qq", s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)) == (0, 100_000)
        begun = time.monotonic()
        fails(errno.EAGAIN, s.recv, 1)
        assert 0.08 < time.monotonic() - begun < 1
        fails(errno.EDOM, s.setsockopt, socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 1_000_000))
    with connect(STUCK) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("qq", 0, 100_000))
        total, chunk = 0, b"x" * 1_000_000
        try:
            while total < 1 << 30:
                total += s.send(chunk)
            raise AssertionError("nobody reads, and all was sent")
        except BlockingIOError:
            assert total > 0
    s, _ = listener()
    with s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 50_000))
        fails(errno.EAGAIN, s.accept)


def test_signals_interrupt():
    def interrupted(restart):
        came = []
        signal.signal(signal.SIGALRM, lambda *_: came.append(1))
        signal.siginterrupt(signal.SIGALRM, not restart)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with ask_source(2, 300) as s:
            buf = ctypes.create_string_buffer(8)
            assert s.recv(1) == b"0"
            result = raw("recv", s.fileno(), buf, 8, 0)
        assert came or not restart
        return result
    assert interrupted(False) == (-1, errno.EINTR)
    assert interrupted(True)[0] == 1


def test_without_blocking():
    with connect(STUCK) as s:
        s.setblocking(False)
        assert fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK
        fails(errno.EAGAIN, s.recv, 1)
        total = 0
        while True:
            try:
                total += s.send(b"x" * 1_000_000)
            except BlockingIOError:
                break
        assert total > 0
        assert ioctl_int(s, SIOCOUTQ) > 0 and ioctl_int(s, SIOCOUTQNSD) > 0
        assert select.select([], [s], [], 0)[1] == []
    with connect(ECHO) as s:
        fails(errno.EAGAIN, s.recv, 1, socket.MSG_DONTWAIT)
        on = array.array("i", [1])
        fcntl.ioctl(s.fileno(), termios.FIONBIO, on)
        fails(errno.EAGAIN, s.recv, 1)


def test_low_water():
    with ask_source(1000, 200) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 700)
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 700
        assert len(s.recv(2000)) >= 700


def test_queues_and_inq():
    with ask_source(1000) as s:
        wait_for(lambda: ioctl_int(s, termios.FIONREAD) == 1000)
        s.setsockopt(socket.IPPROTO_TCP, TCP_INQ, 1)
        data, control, flags, _ = s.recvmsg(400, 64)
        assert len(data) == 400
        (level, kind, payload), = control
        assert (level, kind) == (socket.IPPROTO_TCP, TCP_INQ)
        assert struct.unpack("i", payload)[0] in (600, 601), "the end may count"
        assert ioctl_int(s, SIOCOUTQ) == 0


def test_options():
    T, S = socket.IPPROTO_TCP, socket.SOL_SOCKET
    with connect(ECHO) as s:
        for level, name, value in [
            (T, socket.TCP_NODELAY, 1), (T, socket.TCP_NODELAY, 0), (T, socket.TCP_CORK, 1), (T, socket.TCP_CORK, 0),
            (T, socket.TCP_KEEPIDLE, 77), (T, socket.TCP_KEEPINTVL, 7), (T, socket.TCP_KEEPCNT, 3),
            (T, socket.TCP_USER_TIMEOUT, 12345), (T, socket.TCP_SYNCNT, 4), (T, socket.TCP_LINGER2, 30),
            (T, socket.TCP_NOTSENT_LOWAT, 65536), (S, socket.SO_KEEPALIVE, 1), (S, SO_ZEROCOPY, 1), (S, SO_ZEROCOPY, 0),
            (S, socket.SO_OOBINLINE, 1), (S, socket.SO_REUSEADDR, 1), (S, socket.SO_RCVLOWAT, 5),
        ]:
            s.setsockopt(level, name, value)
            assert s.getsockopt(level, name) == value, (level, name, value)
        for level, name, value in [(T, socket.TCP_KEEPIDLE, 0), (T, socket.TCP_KEEPCNT, 128), (T, socket.TCP_SYNCNT, 256),
                                   (T, socket.TCP_KEEPINTVL, 32768), (S, SO_ZEROCOPY, 2), (S, SO_ZEROCOPY, -1)]:
            fails(errno.EINVAL, s.setsockopt, level, name, value)
        assert s.getsockopt(S, socket.SO_TYPE) == socket.SOCK_STREAM
        assert s.getsockopt(S, socket.SO_DOMAIN) == socket.AF_INET
        assert s.getsockopt(S, socket.SO_PROTOCOL) == socket.IPPROTO_TCP
        assert s.getsockopt(S, socket.SO_ACCEPTCONN) == 0
        assert s.getsockopt(S, socket.SO_ERROR) == 0
        assert s.getsockopt(T, socket.TCP_MAXSEG) > 500
        s.setsockopt(S, socket.SO_SNDBUF, 100_000)
        assert s.getsockopt(S, socket.SO_SNDBUF) == 200_000
        s.setsockopt(S, socket.SO_RCVBUF, 100_000)
        assert s.getsockopt(S, socket.SO_RCVBUF) == 200_000
        s.setsockopt(S, socket.SO_LINGER, struct.pack("ii", 1, 5))
        assert struct.unpack("ii", s.getsockopt(S, socket.SO_LINGER, 8)) == (1, 5)
        s.setsockopt(T, socket.TCP_CONGESTION, b"reno")
        assert s.getsockopt(T, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
        fails(errno.ENOENT, s.setsockopt, T, socket.TCP_CONGESTION, b"nonesuch")
        assert s.getsockopt(S, socket.SO_BINDTODEVICE, 16) == b""
        fails(errno.ENODEV, s.setsockopt, S, socket.SO_BINDTODEVICE, b"nonesuch0\0")
        info = s.getsockopt(T, socket.TCP_INFO, 232)
        assert info[0] == 1 and len(info) == 232, "established"
        s.settimeout(None)


def test_linger():
    with connect(DISCARD) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10))
        s.sendall(b"x" * 3_000_000)
    a, call_back = listener()
    with a, call_back():
        conn, _ = a.accept()
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        conn.close()


def test_urgent():
    with connect(ECHO) as s:
        s.sendall(b"abc")
        s.send(b"!", socket.MSG_OOB)
        s.sendall(b"def")
        # The peer takes the urgent byte out of its stream.
        assert s.recv(6, socket.MSG_WAITALL) == b"abcdef"
        fails(errno.EINVAL, s.recv, 1, socket.MSG_OOB)
        assert ioctl_int(s, SIOCATMARK) == 0


def test_duplicates():
    with connect(ECHO) as s:
        fd = os.dup(s.fileno())
        other = fcntl.fcntl(s.fileno(), fcntl.F_DUPFD_CLOEXEC, 100)
        assert other >= 100
        s.close()
        os.write(fd, b"one")
        os.close(fd)
        assert os.read(other, 3) == b"one"
        target = os.open("/dev/null", os.O_RDONLY)
        os.dup2(other, target)
        os.close(other)
        os.write(target, b"two")
        assert os.read(target, 3) == b"two"
        os.dup2(os.open("/dev/null", os.O_RDONLY), target)
        assert os.read(target, 3) == b""


def test_closing_ranges():
    s, t = connect(ECHO), connect(ECHO)
    low = min(s.fileno(), t.fileno())
    raw("close_range", low, low, 0)
    fails(errno.EBADF, os.read, low, 1)
    rest = s if s.fileno() != low else t
    rest.sendall(b"alive")
    assert rest.recv(5, socket.MSG_WAITALL) == b"alive"
    (s if rest is t else t).detach()
    rest.close()


def test_poll_mixes_descriptors():
    r, w = os.pipe()
    with connect(ECHO) as s:
        p = select.poll()
        p.register(r, select.POLLIN)
        p.register(s, select.POLLIN)
        assert p.poll(20) == []
        os.write(w, b"x")
        assert p.poll(1000) == [(r, select.POLLIN)]
        s.sendall(b"y")
        wait_for(lambda: len(p.poll(0)) == 2)
        os.read(r, 1)
        assert p.poll(1000) == [(s.fileno(), select.POLLIN)]
        s.recv(1)
        threading.Timer(0.1, lambda: os.write(w, b"z")).start()
        assert p.poll(2000) == [(r, select.POLLIN)]
        threading.Timer(0.1, lambda: s.sendall(b"z")).start()
        os.read(r, 1)
        assert p.poll(2000) == [(s.fileno(), select.POLLIN)]
        assert select.select([s, r], [s], [], 1) == ([s], [s], [])


def test_epoll_level_and_edge():
    r, w = os.pipe()
    with connect(ECHO) as s, select.epoll() as e:
        e.register(r, select.EPOLLIN)
        e.register(s, select.EPOLLIN)
        fails(errno.EEXIST, e.register, s, select.EPOLLIN)
        assert e.poll(0.02) == []
        s.sendall(b"ab")
        assert e.poll(2) == [(s.fileno(), select.EPOLLIN)]
        assert e.poll(2) == [(s.fileno(), select.EPOLLIN)], "level"
        os.write(w, b"x")
        assert sorted(e.poll(2)) == sorted([(s.fileno(), select.EPOLLIN), (r, select.EPOLLIN)])
        wait_for(lambda: ioctl_int(s, termios.FIONREAD) == 2)
        os.read(r, 1)
        e.modify(s, select.EPOLLIN | select.EPOLLET)
        assert e.poll(2) == [(s.fileno(), select.EPOLLIN)]
        assert e.poll(0.02) == [], "an edge is told once"
        s.sendall(b"c")
        assert e.poll(2) == [(s.fileno(), select.EPOLLIN)], "more data is another edge"
        s.recv(10)
        e.modify(s, select.EPOLLOUT | select.EPOLLONESHOT)
        assert e.poll(2) == [(s.fileno(), select.EPOLLOUT)]
        assert e.poll(0.02) == [], "one shot"
        e.modify(s, select.EPOLLOUT | select.EPOLLONESHOT)
        assert e.poll(2) == [(s.fileno(), select.EPOLLOUT)], "armed again"
        e.unregister(s)
        fails(errno.ENOENT, e.unregister, s)
        s.sendall(b"d")
        assert e.poll(0.05) == []


def test_epoll_nested_and_closed():
    s = connect(ECHO)
    with select.epoll() as inner, select.epoll() as outer:
        inner.register(s, select.EPOLLIN)
        outer.register(inner.fileno(), select.EPOLLIN)
        assert outer.poll(0.02) == []
        s.sendall(b"x")
        assert outer.poll(2) == [(inner.fileno(), select.EPOLLIN)]
        p = select.poll()
        p.register(inner.fileno(), select.POLLIN)
        assert p.poll(1000) == [(inner.fileno(), select.POLLIN)]
        assert inner.poll(2) == [(s.fileno(), select.EPOLLIN)]
        s.close()
        assert inner.poll(0.02) == [], "a closed socket leaves the set"


def test_epoll_wakes_a_sleeper():
    s, call_back = listener()
    with s, select.epoll() as e:
        e.register(s, select.EPOLLIN | select.EPOLLET)
        t = threading.Timer(0.1, call_back)
        t.start()
        assert e.poll(5) == [(s.fileno(), select.EPOLLIN)]
        conn, _ = s.accept()
        e.register(conn, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        threading.Timer(0.05, lambda: conn.sendall(b"x")).start()
        assert e.poll(5) == [(conn.fileno(), select.EPOLLIN)]
        conn.close()


def test_sendfile_and_splice():
    with tempfile.TemporaryFile() as f:
        data = os.urandom(1_500_000)
        f.write(data)
        f.flush()
        with connect(ECHO) as s:
            def send():
                done = 0
                while done < len(data):
                    done += os.sendfile(s.fileno(), f.fileno(), done, len(data) - done)
                s.shutdown(socket.SHUT_WR)
            t = threading.Thread(target=send)
            t.start()
            got = b"".join(iter(lambda: s.recv(1 << 16), b""))
            t.join()
            assert got == data
    r, w = os.pipe()
    with connect(ECHO) as s:
        os.write(w, b"spliced")
        assert os.splice(r, s.fileno(), 100) == 7
        assert s.recv(7, socket.MSG_WAITALL | socket.MSG_PEEK) == b"spliced"
        assert os.splice(s.fileno(), w, 100) == 7
        assert os.read(r, 100) == b"spliced"


def test_stdio():
    with connect(ECHO) as s:
        fdopen, fprintf, fgets = libc.fdopen, libc.fprintf, libc.fgets
        fdopen.restype = ctypes.c_void_p
        fgets.restype = ctypes.c_char_p
        fd = os.dup(s.fileno())
        f = ctypes.c_void_p(fdopen(fd, b"r+"))
        assert f.value and libc.fileno(f) == fd
        assert fprintf(f, b"line %d\n", 7) == 7
        assert libc.fflush(f) == 0
        buf = ctypes.create_string_buffer(100)
        assert fgets(buf, 100, f) == b"line 7\n"
        assert libc.fclose(f) == 0
        fails(errno.EBADF, os.read, fd, 1)


def test_fork():
    with connect(ECHO) as s:
        s.sendall(b"from the parent")
        assert s.recv(15, socket.MSG_WAITALL) == b"from the parent"
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                s.sendall(b"from the child")
                assert s.recv(14, socket.MSG_WAITALL) == b"from the child"
                with connect(ECHO) as own:
                    big = os.urandom(500_000)
                    t = threading.Thread(target=own.sendall, args=(big,))
                    t.start()
                    assert own.recv(len(big), socket.MSG_WAITALL) == big
                    t.join()
                    p = select.poll()
                    p.register(own, select.POLLIN)
                    assert p.poll(20) == []
                    own.sendall(b"z")
                    assert p.poll(2000) == [(own.fileno(), select.POLLIN)]
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        s.sendall(b"again")
        assert s.recv(5, socket.MSG_WAITALL) == b"again"


def test_fork_and_accept():
    s, call_back = listener()
    children = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            for _ in range(5):
                conn, _ = s.accept()
                conn.sendall(b"hi")
                conn.recv(2, socket.MSG_WAITALL)
                conn.close()
            os._exit(0)
        children.append(pid)
    with s:
        for _ in range(10):
            with call_back() as c:
                c.recv(1)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0


def test_fork_while_others_are_busy():
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            with connect(ECHO) as s:
                s.sendall(b"busy")
                s.recv(4, socket.MSG_WAITALL)

    threads = [threading.Thread(target=busy) for _ in range(4)]
    for t in threads:
        t.start()
    try:
        with connect(ECHO) as s:
            for _ in range(30):
                pid = os.fork()
                if pid == 0:
                    signal.alarm(10)
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)
                    s.sendall(b"x")
                    os._exit(0 if s.recv(1) == b"x" else 1)
                assert os.waitpid(pid, 0)[1] == 0
    finally:
        stop.set()
        for t in threads:
            t.join()


def test_exec_and_vfork_leave_the_sockets_alone():
    import subprocess
    with connect(ECHO) as s:
        for close_fds in (True, False):
            assert subprocess.run(["true"], close_fds=close_fds).returncode == 0
        os.posix_spawn("/bin/true", ["true"], {})
        os.wait()
        s.sendall(b"still here")
        assert s.recv(10, socket.MSG_WAITALL) == b"still here"


def test_loopback_is_the_kernels():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as c:
        conn, _ = server.accept()
        conn.sendall(b"x")
        assert c.recv(1) == b"x"
        conn.close()


def test_disconnect_and_connect_again():
    with socket.socket() as s:
        s.connect((HOST, ECHO))
        assert raw("connect", s.fileno(), b"\0" * 16, 16) == (0, 0)
        fails(errno.ENOTCONN, s.getpeername)
        s.connect((HOST, ECHO))
        s.sendall(b"x")
        assert s.recv(1) == b"x"


def test_fast_open():
    T = socket.IPPROTO_TCP
    with socket.socket() as s:
        # Whether the peer gives cookies is its own business; the bytes arrive either way.
        assert s.sendto(b"early", socket.MSG_FASTOPEN, (HOST, ECHO)) == 5
        assert s.recv(5, socket.MSG_WAITALL) == b"early"
        fails(errno.EISCONN, s.sendto, b"x", socket.MSG_FASTOPEN, (HOST, ECHO))
    with socket.socket() as s:
        s.setsockopt(T, socket.TCP_FASTOPEN, 5)
        assert s.getsockopt(T, socket.TCP_FASTOPEN) == 5
    with socket.socket() as s:
        s.setsockopt(T, 30, 1)
        assert s.getsockopt(T, 30) == 1
        s.connect((HOST, ECHO))
        s.sendall(b"x")
        assert s.recv(1) == b"x"


def test_zerocopy():
    with connect(DISCARD) as s:
        buf = bytearray(b"x" * 100_000)
        assert s.send(buf, MSG_ZEROCOPY) == len(buf)
        assert notifications(s) == [], "the flag counts only with the option"
        s.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        for n in range(3):
            s.sendall(b"plain")
            assert s.send(buf, MSG_ZEROCOPY) == len(buf)
        seen, p = [], select.poll()
        p.register(s, 0)
        while sum(last - first + 1 for first, last, _, _ in seen) < 3:
            (_, events), = p.poll(5000)
            assert events & select.POLLERR, "whether it was asked for or not"
            seen += notifications(s)
        assert sorted(n for first, last, _, _ in seen for n in range(first, last + 1)) == [0, 1, 2]
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert p.poll(0) == []
        assert s.send(b"", MSG_ZEROCOPY) == 0
        assert s.send(buf, MSG_ZEROCOPY) == len(buf)
        wait_for(lambda: p.poll(0))
        fails(errno.EAGAIN, s.recv, 1, socket.MSG_DONTWAIT)
        assert notifications(s)[0][:2] == (3, 3), "an empty call takes no number"


def test_zerocopy_notifications_are_edges():
    with connect(DISCARD) as s, select.epoll() as e:
        s.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        e.register(s, select.EPOLLET)
        e.poll(0)
        for _ in range(3):
            s.send(b"y" * 10_000, MSG_ZEROCOPY)
            assert e.poll(5) == [(s.fileno(), select.EPOLLERR)]
            assert notifications(s) != []


def test_zerocopy_control_room():
    with connect(DISCARD) as s:
        s.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        s.send(b"z" * 10_000, MSG_ZEROCOPY)
        p = select.poll()
        p.register(s, 0)
        assert p.poll(5000)
        data, control, flags, _ = s.recvmsg(0, 24, socket.MSG_ERRQUEUE)
        assert flags & socket.MSG_CTRUNC and flags & socket.MSG_ERRQUEUE


def test_many_descriptors():
    with select.epoll() as e:
        sockets = [connect(ECHO) for _ in range(200)]
        for s in sockets:
            e.register(s, select.EPOLLIN)
        for s in sockets[::20]:
            s.sendall(b"x")
        ready = set()
        wait_for(lambda: ready.update(fd for fd, _ in e.poll(1)) or len(ready) == 10)
        for s in sockets:
            s.close()


# --- running them -------------------------------------------------------------------------------------

def out_of_time(*_):
    raise TimeoutError("20 seconds are over")


def main():
    global HOST
    if sys.argv[1] == "peer":
        return peer()
    HOST = sys.argv[1]
    tests = {n.removeprefix("test_"): f for n, f in globals().items() if n.startswith("test_")}
    failed = 0
    for name in sys.argv[2:] or tests:
        signal.signal(signal.SIGALRM, out_of_time)
        signal.siginterrupt(signal.SIGALRM, True)
        signal.alarm(20)
        try:
            tests[name]()
            print("ok", name, flush=True)
        except BaseException as e:
            import traceback
            traceback.print_exc()
            print("FAILED", name, repr(e), flush=True)
            failed += 1
    signal.alarm(0)
    sys.exit(1 if failed else 0)


main()
