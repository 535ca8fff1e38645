//! What stands behind the descriptors of a stack that is gone: nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use stack::skb::Completion;
use stack::{Ready, Reuse, Shutdown};

use crate::endpoint::{Counts, Endpoint, RecvHow};
use crate::errno::{Errno, Result};
use crate::user::{RecvBuf, SendBuf};

/// Every call is `ENETDOWN`, and at once.
pub(super) struct Gone;

impl Endpoint for Gone {
    fn bind(&self, _: SocketAddr, _: Reuse) -> Result<()> {
        Err(Errno::NETDOWN)
    }

    fn listen(&self, _: usize) -> Result<()> {
        Err(Errno::NETDOWN)
    }

    fn accept(&self) -> Result<Arc<dyn Endpoint>> {
        Err(Errno::NETDOWN)
    }

    fn connect(&self, _: SocketAddr) -> Result<()> {
        Err(Errno::NETDOWN)
    }

    fn disconnect(&self) -> Result<()> {
        Err(Errno::NETDOWN)
    }

    fn send(&self, _: &mut SendBuf) -> Result<usize> {
        Err(Errno::NETDOWN)
    }

    fn recv(&self, _: &mut RecvBuf, _: RecvHow) -> Result<usize> {
        Err(Errno::NETDOWN)
    }

    fn completion(&self) -> Option<Completion> {
        None
    }

    fn shutdown(&self, _: Shutdown) -> Result<()> {
        Err(Errno::NETDOWN)
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        None
    }

    fn set_option(&self, _: i32, _: i32, _: &[u8]) -> Result<()> {
        Err(Errno::NETDOWN)
    }

    fn option(&self, _: i32, _: i32) -> Result<Vec<u8>> {
        Err(Errno::NETDOWN)
    }

    fn counts(&self) -> Result<Counts> {
        Err(Errno::NETDOWN)
    }

    fn recv_urgent(&self, _: bool) -> Result<Option<u8>> {
        Err(Errno::NETDOWN)
    }

    fn set_linger(&self, _: Option<Duration>) {}

    fn is_drained(&self) -> bool {
        true
    }

    /// Ready for everything, so that nobody waits for it.
    fn ready(&self) -> Ready {
        Ready::all()
    }

    fn register(&self, _: Ready, waker: &Waker) {
        waker.wake_by_ref();
    }

    fn deregister(&self, _: &Waker) {}
}
