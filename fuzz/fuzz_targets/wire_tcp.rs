//! Any bytes as a TCP header. What is understood is written, and read again, the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::tcp::TcpHeader;

fuzz_target!(|bytes: &[u8]| {
    let Ok((header, len)) = TcpHeader::parse(bytes) else {
        return;
    };
    assert!((20..=60).contains(&len) && len <= bytes.len());
    let mut written = vec![0; header.header_len()];
    assert!(written.len() <= 60, "{header:?} takes {} bytes", written.len());
    header.emit(&mut written);
    assert_eq!(TcpHeader::parse(&written), Ok((header, written.len())));
});
