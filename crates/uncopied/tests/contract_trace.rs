//! Z21: a line of trace says what was copied. In a program of its own: whether a line is wanted is decided for the
//! whole process.

mod common;

use common::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uncopied::Features;

/// What the stack says, as lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_trace_line_names_socket_bytes_and_reason_of_a_copy() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let mut net = Pair::with(Features::empty(), |_| {});
        let (tx, rx, _l) = net.connect();
        tx.send_lent(pattern(100_000)).unwrap();
        net.run(Duration::from_secs(1));
        assert!(drain(&rx) == pattern(100_000));
        net.run(Duration::from_secs(1));
        assert_eq!(completions(&tx).len(), 1);
    });
    let said = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let copied: Vec<&str> = said.lines().filter(|l| l.contains("lent bytes were copied")).collect();
    let [line] = copied[..] else { panic!("one call, one line: {said}") };
    let wanted = ["reason=no-scatter-gather", "bytes=100000", "first=0", "last=0"];
    assert!(wanted.iter().all(|w| line.contains(w)), "{line}");
    // The same name is on the line that says between whom the connection is.
    let socket = line.split_whitespace().find(|w| w.starts_with("socket=")).unwrap();
    assert!(
        said.lines().any(|l| l.contains(socket) && l.contains("local=") && l.contains("remote=")),
        "{said}"
    );
}
