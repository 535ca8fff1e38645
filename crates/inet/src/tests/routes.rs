use super::*;

#[test]
fn the_longest_prefix_wins_then_the_metric() {
    let mut inet = host();
    let route = |dst, prefix, gateway, metric| Route {
        dst: ip(dst),
        prefix,
        gateway: Some(ip(gateway)),
        ifindex: ETH,
        metric,
    };
    inet.add_route(route("192.0.2.77", 24, "10.0.0.3", 5));
    inet.add_route(route("192.0.2.0", 24, "10.0.0.4", 1));
    inet.add_route(route("192.0.2.8", 32, "10.0.0.5", 9));
    let hop = |inet: &Inet, dst| inet.route(ip(dst), None).map(|r| r.next_hop);
    assert_eq!(hop(&inet, "192.0.2.8"), Ok(ip("10.0.0.5")));
    assert_eq!(hop(&inet, "192.0.2.9"), Ok(ip("10.0.0.4")));
    assert_eq!(hop(&inet, "198.51.100.1"), Ok(ip("10.0.0.254")));
    assert_eq!(hop(&inet, "10.0.0.9"), Ok(ip("10.0.0.9")), "on the link");
    assert!(inet.remove_route(&route("192.0.2.0", 24, "10.0.0.4", 1)));
    assert_eq!(hop(&inet, "192.0.2.9"), Ok(ip("10.0.0.3")));
}

#[test]
fn what_has_no_route_is_unreachable() {
    let mut inet = Inet::new(Config::default());
    inet.add_interface(ETH, Some(OUR_MAC), 1500, false);
    inet.add_address(ETH, us(true), 24);
    assert_eq!(inet.route(ip("192.0.2.1"), None), Err(NetError::NetworkUnreachable));
    assert_eq!(inet.route(ip("::2"), None), Err(NetError::NetworkUnreachable));
    assert_eq!(inet.route(ip("0.0.0.0"), None), Err(NetError::InvalidDestination));
}

#[test]
fn a_source_must_be_ours_and_of_the_family() {
    let inet = host();
    assert_eq!(inet.route(peer(true), Some(ip("10.0.0.7"))), Err(NetError::AddressNotAvailable));
    assert_eq!(inet.route(peer(true), Some(us(false))), Err(NetError::AddressNotAvailable));
    assert_eq!(inet.route(peer(true), Some(ip("127.0.0.1"))), Err(NetError::AddressNotAvailable));
    assert_eq!(inet.route(peer(true), Some(ip("0.0.0.0"))).map(|r| r.src), Ok(us(true)));
}

#[test]
fn the_source_shares_scope_and_prefix_with_the_destination() {
    let mut inet = host();
    inet.add_address(ETH, ip("10.9.0.1"), 24);
    let src = |dst| inet.route(ip(dst), None).map(|r| r.src);
    assert_eq!(src("10.9.0.2"), Ok(ip("10.9.0.1")));
    assert_eq!(src("fe80::2"), Ok(ip("fe80::1")));
    assert_eq!(src("2001:db8:1::2"), Ok(us(false)));
    assert_eq!(src("ff02::5"), Ok(ip("fe80::1")));
}

#[test]
fn our_own_addresses_are_reached_through_the_loopback() {
    let inet = host();
    for dst in ["10.0.0.1", "127.0.0.1", "127.8.9.1", "::1", "2001:db8::1"] {
        let r = inet.route(ip(dst), None).expect("a route");
        assert_eq!((r.local, r.ifindex, r.src, r.mtu), (true, LO, ip(dst), 65_535));
    }
    assert!(inet.is_local(ip("127.255.0.1")) && !inet.is_local(peer(true)));
}

#[test]
fn an_address_that_goes_takes_its_network_along() {
    let mut inet = host();
    inet.add_address(ETH, ip("10.5.0.1"), 24);
    inet.add_address(ETH, ip("10.5.0.2"), 24);
    assert_eq!(inet.addresses().filter(|(i, ..)| *i == ETH).count(), 5);
    let before = inet.generation();
    assert!(inet.remove_address(ETH, ip("10.5.0.1")));
    assert!(inet.generation() > before);
    assert!(inet.on_link(ETH, ip("10.5.0.9")));
    assert!(inet.remove_address(ETH, ip("10.5.0.2")) && !inet.remove_address(ETH, ip("10.5.0.2")));
    assert!(!inet.on_link(ETH, ip("10.5.0.9")));
}

#[test]
fn a_path_mtu_shrinks_what_is_sent_until_it_is_forgotten() {
    for v4 in [true, false] {
        let mut inet = host();
        introduce(&mut inet, T0, v4);
        let before = ready(&mut inet, T0, v4);
        assert_eq!(inet.update_pmtu(T0, peer(v4), 1400), 1400);
        assert_ne!(inet.generation(), before.generation, "cached destinations are stale");
        let after = ready(&mut inet, T0, v4);
        assert_eq!((before.mtu, after.mtu), (1500, 1400));
        assert_eq!(inet.update_pmtu(T0, peer(v4), 1450), 1400);
        assert_eq!(inet.update_pmtu(T0, peer(v4), 9000), 1400);
        assert_eq!(inet.update_pmtu(T0, peer(v4), 40), if v4 { 552 } else { 1280 });
        let later = T0 + seconds(601);
        inet.confirm(later, peer(v4));
        assert_eq!(ready(&mut inet, later, v4).mtu, 1500);
    }
}

#[test]
fn a_removed_interface_leaves_nothing_behind() {
    let mut inet = host();
    introduce(&mut inet, T0, true);
    inet.remove_interface(ETH);
    assert_eq!(inet.route(peer(true), None), Err(NetError::NetworkUnreachable));
    assert_eq!(inet.next_timeout(), None);
}
