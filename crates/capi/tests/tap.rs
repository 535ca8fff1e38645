//! C programs on a TAP in a private network, against the kernel. Where the machine forbids that, they say so
//! and pass.

#[allow(dead_code, reason = "shared with the other tests")]
mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use common::{Installed, installed, said};
use dev::netns::enter_private_net;
use dev::tap::TapConfig;

const TAP: &str = "capi0";
const KERNEL: &str = "10.77.0.1";
const OURS: &str = "10.77.0.2";
const OURS_WITH_PREFIX: &str = "10.77.0.2/24";

/// Runs `test` on a thread in a private network with a TAP for the program to open.
fn with_tap(name: &'static str, test: impl FnOnce(&Installed) + Send + 'static) {
    let Some(library) = installed() else { return };
    let thread = std::thread::spawn(move || {
        let net = match enter_private_net() {
            Ok(net) => net,
            Err(e) => return eprintln!("SKIPPED {name}: {e}"),
        };
        let config = TapConfig { name: TAP.to_owned(), ..TapConfig::default() };
        match net.tap(config, &[(KERNEL.parse().unwrap(), 24)]) {
            // It stays when this descriptor is closed, and goes with the namespace.
            Ok(tap) => tap.persist_for_owner().unwrap(),
            Err(e) => return eprintln!("SKIPPED {name}: {e}"),
        }
        test(library);
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// An echo server of the kernel's; its port.
fn echo_server() -> String {
    let listener = TcpListener::bind((KERNEL, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    port.to_string()
}

#[test]
fn a_client_lends_to_an_ordinary_peer() {
    with_tap("client", |library| {
        let program = library.compile("examples/tap_echo.c", false);
        let arguments = [TAP, OURS_WITH_PREFIX, "client", KERNEL, &echo_server()];
        let said = said(library.command(program).args(arguments));
        // The kernel reads our memory once, which is not a copy of the stack's.
        assert!(
            said.starts_with("4194304 bytes there and back") && said.ends_with(" 0 copied (device)\n"),
            "{said}"
        );
    });
}

#[test]
fn a_server_echoes_to_ordinary_peers() {
    with_tap("server", |library| {
        let program = library.compile("examples/tap_echo.c", false);
        let mut server = library
            .command(program)
            .args([TAP, OURS_WITH_PREFIX, "server", "7000", "2"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        server.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        assert_eq!(&first, b"listening\n");
        for n in 0..2u8 {
            let mut peer = TcpStream::connect((OURS, 7000)).unwrap();
            peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let sent: Vec<u8> = (0..500_000u32).map(|i| (i % 251) as u8 ^ n).collect();
            let writer = std::thread::spawn({
                let (mut peer, sent) = (peer.try_clone().unwrap(), sent.clone());
                move || {
                    peer.write_all(&sent).unwrap();
                    peer.shutdown(Shutdown::Write).unwrap();
                }
            });
            let mut back = Vec::new();
            peer.read_to_end(&mut back).unwrap();
            writer.join().unwrap();
            assert!(back == sent, "{} of {} bytes, or others", back.len(), sent.len());
        }
        assert!(server.wait().unwrap().success());
    });
}

#[test]
fn a_configured_process_shares_its_stack_with_its_children() {
    with_tap("configured", |library| {
        let program = library.compile("tests/c/configured.c", false);
        let arguments = [TAP, OURS_WITH_PREFIX, KERNEL, &echo_server()];
        let said = said(library.command(program).args(arguments));
        assert_eq!(said, "ok\n");
    });
}
