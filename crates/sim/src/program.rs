//! One side of a connection: a program that sends one stream and reads another.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::Rng;
use rand::rngs::SmallRng;
use stack::skb::Frag;
use stack::{Error, Shutdown, TcpSocket};

use crate::buffer::{Graveyard, content, stretch};

/// How a program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Sends everything, closes, reads to the end.
    Finish,
    /// Resets the connection after so many bytes sent.
    Abort(u64),
    /// Purges the send queue after so many bytes sent, and waits for its memory.
    Purge(u64),
}

pub(crate) struct Side {
    pub(crate) socket: Option<Arc<TcpSocket>>,
    /// The stream it sends; the peer's is the other of the pair.
    stream: u64,
    peer_stream: u64,
    total: u64,
    peer_total: u64,
    sent: u64,
    read: u64,
    fate: Fate,
    /// Lending calls: whether each is complete.
    calls: BTreeMap<u32, bool>,
    shut: bool,
    ended: bool,
    /// Reads at most so much at a time; small for a slow reader.
    appetite: usize,
    pub(crate) done: bool,
    /// It or its peer gave up: streams need not be whole.
    pub(crate) cut_short: bool,
}

impl Side {
    pub(crate) fn new(streams: (u64, u64), totals: (u64, u64), fate: Fate, appetite: usize) -> Self {
        Self {
            socket: None,
            stream: streams.0,
            peer_stream: streams.1,
            total: totals.0,
            peer_total: totals.1,
            sent: 0,
            read: 0,
            fate,
            calls: BTreeMap::new(),
            shut: false,
            ended: false,
            appetite,
            done: false,
            cut_short: false,
        }
    }

    pub(crate) fn fate(&self) -> Fate {
        self.fate
    }

    /// Whether it waits for completions alone: its connection is gone.
    fn waits_for_memory(&self) -> bool {
        self.cut_short && self.socket.as_ref().is_some_and(|s| s.outstanding() > 0 || s.has_completion())
    }

    /// Does what can be done now; an error is a finding.
    pub(crate) fn step(&mut self, rng: &mut SmallRng, graveyard: &Graveyard) -> Result<(), String> {
        let Some(socket) = self.socket.clone().filter(|_| !self.done) else { return Ok(()) };
        self.read_completions(&socket)?;
        if self.cut_short {
            if !self.waits_for_memory() {
                self.finish(&socket)?;
            }
            return Ok(());
        }
        self.receive(&socket, rng)?;
        if !self.cut_short {
            self.send(&socket, rng, graveyard)?;
        }
        let all = self.shut && self.ended && socket.outstanding() == 0 && !socket.has_completion();
        if all { self.finish(&socket) } else { Ok(()) }
    }

    fn read_completions(&mut self, socket: &TcpSocket) -> Result<(), String> {
        while let Some(c) = socket.pop_completion() {
            for id in c.ids() {
                match self.calls.get_mut(&id) {
                    Some(done @ false) => *done = true,
                    Some(true) => return Err(format!("call {id} completed twice")),
                    None => return Err(format!("call {id} completed and was never made")),
                }
            }
        }
        Ok(())
    }

    fn receive(&mut self, socket: &Arc<TcpSocket>, rng: &mut SmallRng) -> Result<(), String> {
        let mut buf = vec![0; rng.random_range(1..=self.appetite)];
        for _ in 0..4 {
            let got = if rng.random_bool(0.5) {
                socket.recv(&mut buf)
            } else {
                let mut pieces: Vec<Frag> = Vec::new();
                let got = socket.recv_pieces(buf.len(), &mut pieces);
                let mut at = 0;
                for piece in &pieces {
                    piece.copy_to(0, &mut buf[at..at + piece.len()]);
                    at += piece.len();
                }
                got
            };
            match got {
                Ok(0) => {
                    if !self.ended && self.read != self.peer_total {
                        return Err(format!("the stream ended after {} of {}", self.read, self.peer_total));
                    }
                    self.ended = true;
                    return Ok(());
                }
                Ok(n) => self.check(&buf[..n])?,
                Err(Error::WouldBlock) => return Ok(()),
                Err(Error::Reset | Error::Aborted | Error::Pipe | Error::NotConnected) => {
                    self.cut_short = true;
                    return Ok(());
                }
                Err(e) => return Err(format!("recv: {e}")),
            }
        }
        Ok(())
    }

    fn check(&mut self, got: &[u8]) -> Result<(), String> {
        for byte in got {
            let expected = content(self.peer_stream, self.read);
            if *byte != expected {
                return Err(format!("byte {} of the stream is {byte:#x}, not {expected:#x}", self.read));
            }
            self.read += 1;
        }
        if self.read > self.peer_total {
            return Err(format!("{} bytes came of {}", self.read, self.peer_total));
        }
        Ok(())
    }

    fn send(
        &mut self,
        socket: &Arc<TcpSocket>,
        rng: &mut SmallRng,
        graveyard: &Graveyard,
    ) -> Result<(), String> {
        for _ in 0..4 {
            match self.fate {
                Fate::Abort(at) if self.sent >= at => {
                    socket.abort();
                    (self.cut_short, self.done) = (true, true);
                    return Ok(());
                }
                Fate::Purge(at) if self.sent >= at => {
                    // The peer may have reset it already; then there is nothing to purge.
                    let _ = socket.purge();
                    self.cut_short = true;
                    return Ok(());
                }
                _ => {}
            }
            if self.sent == self.total {
                if !self.shut && socket.shutdown(Shutdown::Write).is_ok() {
                    self.shut = true;
                }
                return Ok(());
            }
            let most = [1, 100, 5000, 70_000, 1_000_000][rng.random_range(0..5)].min(self.total - self.sent);
            let bytes = stretch(self.stream, self.sent, rng.random_range(1..=most) as usize);
            let len = bytes.len() as u64;
            let sent = if rng.random_bool(0.6) {
                socket.send_lent(graveyard.lend(bytes)).map_err(|(e, _)| e).map(|ticket| {
                    let known = self.calls.insert(ticket.id, false);
                    (len, known.is_some())
                })
            } else {
                socket.send(&bytes).map(|n| (n as u64, false))
            };
            match sent {
                Ok((_, true)) => return Err("a call's number was given twice".into()),
                Ok((n, false)) => self.sent += n,
                Err(Error::WouldBlock | Error::MemLock | Error::OptMem) => return Ok(()),
                Err(Error::Reset | Error::Aborted | Error::Pipe | Error::NotConnected) => {
                    self.cut_short = true;
                    return Ok(());
                }
                Err(e) => return Err(format!("send: {e}")),
            }
        }
        Ok(())
    }

    fn finish(&mut self, socket: &Arc<TcpSocket>) -> Result<(), String> {
        if let Some((id, _)) = self.calls.iter().find(|(_, done)| !**done) {
            return Err(format!("call {id} of {} never completed", self.calls.len()));
        }
        socket.close();
        self.done = true;
        Ok(())
    }

    pub(crate) fn progress(&self) -> String {
        let state = self.socket.as_ref().map(|s| (s.state(), s.outstanding(), s.queued(), s.info()));
        format!(
            "sent {}/{} read {}/{} shut {} ended {} cut {} {state:?}",
            self.sent, self.total, self.read, self.peer_total, self.shut, self.ended, self.cut_short
        )
    }
}
