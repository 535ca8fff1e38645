//! Data in the SYN (RFC 7413).

use wire::tcp::Cookie;

use super::*;

const KEY: [u8; 16] = [9; 16];

fn server() -> Config {
    Config { fastopen_queue: 5, fastopen_key: KEY, ..config() }
}

fn ends() -> (std::net::SocketAddr, std::net::SocketAddr) {
    ("10.0.0.1:80".parse().unwrap(), "10.0.0.2:1000".parse().unwrap())
}

fn cookie() -> Cookie {
    let (l, r) = ends();
    fast_open_cookie(&KEY, r.ip(), l.ip())
}

fn client(known: Option<Cookie>, data: usize) -> Tcb {
    let mut a = Tcb::connect(config(), 1000, 80, SeqNum(u32::MAX), 7, Instant::from_secs(100));
    a.fast_open(known.map(|c| (c, 1460)));
    if data > 0 {
        write(&mut a, data);
    }
    a
}

fn listen(cfg: Config, syn: &mut SegmentIn, pending: usize) -> ListenVerdict {
    let now = Instant::from_secs(100);
    Listen::new(cfg, [3; 16]).segment_arrives(now, ends(), syn, 1460, SeqNum(5), 99, (false, pending))
}

#[test]
fn cookies_are_linuxs() {
    let key = |words: [u32; 4]| -> [u8; 16] {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes.try_into().unwrap()
    };
    let a = key([0xa1a1a1a1, 0xb2b2b2b2, 0xc3c3c3c3, 0xd4d4d4d4]);
    let made = |key, c: &str, s: &str| {
        let cookie = fast_open_cookie(&key, c.parse().unwrap(), s.parse().unwrap());
        cookie.iter().map(|b| format!("{b:02x}")).collect::<String>()
    };
    assert_eq!(made(a, "192.0.2.1", "192.168.0.1"), "3021b9d889017eeb");
    assert_eq!(made(a, "fd3d:fa7b:d17d::1", "fd3d:a0b:17d6::1"), "c1d1e9742a47a9bc");
    let b = key([0xa0bf63f7, 0xed803d81, 0xcd641d30, 0xcebc4a90]);
    assert_eq!(made(b, "10.248.0.2", "192.168.0.2"), "00abaaabe8e954c2");
}

#[test]
fn a_cookie_is_asked_for_and_given() {
    let mut a = client(None, 0);
    let now = Instant::from_secs(100);
    let mut syn = parse(a.next_segment(now).unwrap());
    assert_eq!(syn.header.options.fast_open, Some(Cookie::new()));
    let ListenVerdict::Spawn(mut b) = listen(server(), &mut syn, 0) else { panic!() };
    let answer = parse(b.next_segment(now).unwrap());
    let o = a.segment_arrives(now, answer, &mut Released::default());
    assert!(o.contains(Outcome::CONNECTED));
    assert_eq!(a.take_cookie(), Some((cookie(), 1460)));
    assert_eq!(a.take_cookie(), None);
}

#[test]
fn a_cookie_saves_a_round_trip_in_both_directions() {
    let now = Instant::from_secs(100);
    let mut a = client(Some(cookie()), 0);
    assert_eq!(a.send_room(), 1420);
    write(&mut a, 1000);
    let mut syn = parse(a.next_segment(now).unwrap());
    assert_eq!((syn.payload.len(), syn.header.flags), (1000, TcpFlags::SYN));
    let ListenVerdict::Open(b) = listen(server(), &mut syn, 0) else { panic!() };
    let mut w = World::over(now, a, 1, (0, 0, 0));
    w.ends[1] = *b;
    assert_eq!((w.ends[1].state(), w.ends[1].readable()), (State::SynReceived, 1000));
    write(&mut w.ends[1], 3000);
    w.transmit();
    let flags: Vec<_> = w.log.iter().map(|l| (l.1.flags.contains(TcpFlags::SYN), l.2)).collect();
    assert_eq!(flags, [(true, 0), (false, 1448), (false, 1448), (false, 104)], "the answer does not wait");
    w.run_for(Duration::from_millis(50));
    assert_eq!(w.states(), [State::Established; 2]);
    assert_eq!(w.read(0).len(), 3000);
    assert!(w.ends.iter().all(|e| e.info(w.now).options.contains(TcpiOptions::SYN_DATA)));
    assert_eq!(w.read(1), (0..1000).map(byte).collect::<Vec<_>>());
    w.transfer(100_000);
}

#[test]
fn data_that_the_syn_ack_does_not_take_is_sent_again() {
    let now = Instant::from_secs(100);
    let wrong: Cookie = [1; 8].into_iter().collect();
    for (known, expect) in [(wrong.clone(), Some(cookie())), (cookie(), None)] {
        let mut a = client(Some(known.clone()), 1000);
        let mut syn = parse(a.next_segment(now).unwrap());
        // A cookie that is wrong, or a server that does not do it.
        let cfg = if known == wrong { server() } else { config() };
        let ListenVerdict::Spawn(b) = listen(cfg, &mut syn, 0) else { panic!() };
        let mut w = World::over(now, a, 1, (0, 0, 0));
        w.ends[1] = *b;
        w.run_for(Duration::from_millis(50));
        assert_eq!(w.read(1), (0..1000).map(byte).collect::<Vec<_>>());
        assert_eq!(w.ends[0].take_cookie().map(|c| c.0), expect);
        assert!(!w.ends[0].info(w.now).options.contains(TcpiOptions::SYN_DATA));
        w.transfer(50_000);
    }
}

#[test]
fn a_syn_that_is_lost_is_followed_by_a_plain_one() {
    let now = Instant::from_secs(100);
    let mut a = client(Some(cookie()), 1000);
    assert_eq!(parse(a.next_segment(now).unwrap()).payload.len(), 1000);
    let now = now + Duration::from_secs(1);
    let _ = a.on_timeout(now, &mut Released::default());
    let mut syn = parse(a.next_segment(now).unwrap());
    assert_eq!((syn.payload.len(), syn.header.options.fast_open.clone()), (0, None));
    let ListenVerdict::Spawn(b) = listen(server(), &mut syn, 0) else { panic!() };
    let mut w = World::over(now, a, 1, (0, 0, 0));
    w.ends[1] = *b;
    w.run_for(Duration::from_millis(50));
    assert_eq!(w.read(1).len(), 1000);
}

#[test]
fn a_full_queue_of_unconfirmed_connections_takes_no_data() {
    let now = Instant::from_secs(100);
    let mut syn = parse(client(Some(cookie()), 1000).next_segment(now).unwrap());
    assert!(matches!(listen(server(), &mut syn, 5), ListenVerdict::Spawn(_)));
    let mut syn = parse(client(Some(cookie()), 1000).next_segment(now).unwrap());
    let cfg = Config { fastopen_no_cookie: true, ..server() };
    syn.header.options.fast_open = None;
    assert!(matches!(listen(cfg, &mut syn, 0), ListenVerdict::Open(_)));
}

#[test]
fn lent_bytes_in_a_syn_are_copied_and_say_so() {
    struct Quiet;
    impl skb::Notify for Quiet {
        fn error_queued(&self) {}
        fn calls_completed(&self, done: skb::Completion, _: u64) {
            let reason = done.reason();
            assert_eq!(reason, Some(skb::Reason::SynData));
        }
        fn lent_bytes_changed(&self, _: skb::Change) {}
    }
    let errors =
        skb::ErrorQueue::new(1 << 20, std::sync::Arc::new(skb::MemLock::new(1 << 20)), Box::new(Quiet));
    let mut a = client(Some(cookie()), 0);
    let mut buffer = Some(vec![7; 500].into());
    a.append(Frag::from_lent(&errors, &mut buffer, false).unwrap());
    a.push();
    let syn = parse(a.next_segment(Instant::from_secs(100)).unwrap());
    assert_eq!(syn.payload.to_vec(), [7; 500]);
    assert!(!syn.payload.has_lent());
    let mut released = Released::default();
    a.abort(&mut released);
    drop(released);
    assert!(errors.pop().is_some());
}
