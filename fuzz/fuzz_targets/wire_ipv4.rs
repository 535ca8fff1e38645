//! Any bytes as an IPv4 header, whole or as an ICMP error quotes it, with what such a packet may carry.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::ipv4::{self, Ipv4Header};
use wire::udp::UdpHeader;

fuzz_target!(|bytes: &[u8]| {
    let _ = ipv4::check_options(bytes);
    if let Ok(udp) = UdpHeader::parse(bytes) {
        let mut written = [0; 8];
        udp.emit(&mut written);
        assert_eq!(UdpHeader::parse(&written), Ok(udp));
    }
    if let Ok((_, len)) = Ipv4Header::parse_quoted(bytes) {
        assert!(len <= bytes.len());
    }
    let Ok((header, len)) = Ipv4Header::parse(bytes) else {
        return;
    };
    assert!((20..=60).contains(&len) && len <= bytes.len());
    let _ = header.is_fragment();
    // Options are not kept, so the header written is the shortest.
    let mut written = vec![0; usize::from(header.total_len).max(20)];
    header.emit(&mut written);
    assert_eq!(Ipv4Header::parse(&written), Ok((header, 20)));
});
