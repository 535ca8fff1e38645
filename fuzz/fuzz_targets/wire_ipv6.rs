//! Any bytes as an IPv6 header and as a chain of extension headers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::ipv6::{self, Chain, Ipv6Header};

fuzz_target!(|bytes: &[u8]| {
    if let Some((next, chain)) = bytes.split_first() {
        match ipv6::walk(*next, chain) {
            Ok(Chain::Upper { proto, len }) => {
                assert!(len <= chain.len() && !ipv6::is_extension(proto));
            }
            Ok(Chain::Fragment { header, len }) => {
                assert!(len <= chain.len() && header.offset % 8 == 0);
                let mut written = [0; ipv6::FRAGMENT_HEADER_LEN];
                header.emit(&mut written);
                assert_eq!(ipv6::walk(ipv6::NEXT_FRAGMENT, &written), Ok(Chain::Fragment { header, len: 8 }));
            }
            Err(_) => {}
        }
    }
    let Ok(header) = Ipv6Header::parse(bytes) else {
        return;
    };
    let mut written = vec![0; 40 + usize::from(header.payload_len)];
    header.emit(&mut written);
    assert_eq!(Ipv6Header::parse(&written), Ok(header));
});
