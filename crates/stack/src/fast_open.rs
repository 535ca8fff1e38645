//! Data in the SYN (RFC 7413): cookies of peers, and connecting that waits for the first data.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use wire::tcp::Cookie;

use crate::completion;
use crate::error::Error;
use crate::tcp_socket::{Core, Role, TcpSocket};

/// Peers whose cookies are kept; one more, and all are asked for theirs again.
const MOST: usize = 4096;

/// Cookies by peer, with the MSS it announced.
#[derive(Default)]
pub(crate) struct CookieCache(Mutex<HashMap<IpAddr, (Cookie, u16)>>);

impl CookieCache {
    pub(crate) fn get(&self, peer: IpAddr) -> Option<(Cookie, u16)> {
        self.0.lock().get(&peer).cloned()
    }

    pub(crate) fn insert(&self, peer: IpAddr, cookie: (Cookie, u16)) {
        let mut known = self.0.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(peer, cookie);
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

impl TcpSocket {
    /// Connects with the first data in the SYN (`MSG_FASTOPEN`, RFC 7413). `Ok(true)`: the peer's cookie is
    /// known, nothing was sent yet, and the next send call sends the SYN with as much as fits. `Ok(false)`:
    /// connecting has begun and asks for a cookie; data has to wait for the connection.
    pub fn connect_with_data(self: &Arc<Self>, remote: SocketAddr) -> Result<bool, Error> {
        let remote = crate::tcp_calls::canonical(remote);
        completion::with_lock(self, |core, fx| {
            if core.deferred.is_some() {
                return Err(Error::IsConnected);
            }
            let known = core.config.fastopen_no_cookie || self.shared.cookies.get(remote.ip()).is_some();
            if known && matches!(core.role, Role::Idle) {
                core.deferred = Some(Box::new(remote));
                return Ok(true);
            }
            self.begin(core, fx, remote, Some(None))?;
            Ok(false)
        })
    }

    /// Connecting that waited for data begins: the caller is about to append it.
    pub(crate) fn begin_deferred(
        self: &Arc<Self>,
        core: &mut Core,
        fx: &mut completion::Effects,
    ) -> Result<(), Error> {
        let Some(remote) = core.deferred.take() else { return Ok(()) };
        let none = || core.config.fastopen_no_cookie.then(|| (Cookie::new(), 536));
        let known = self.shared.cookies.get(remote.ip()).or_else(none);
        self.begin(core, fx, *remote, Some(known))
    }

    /// `TCP_FASTOPEN` on a listener: how many connections may be made by a SYN with a cookie and wait for the
    /// end of their handshake; 0 for no Fast Open.
    pub fn set_fastopen(self: &Arc<Self>, queue: u32) {
        self.configure(|c| c.fastopen_queue = queue);
    }

    /// Reads `TCP_FASTOPEN` back.
    pub fn fastopen(&self) -> u32 {
        self.config().fastopen_queue
    }

    /// `TCP_FASTOPEN_CONNECT`: connecting waits for the first data where the peer's cookie is known.
    pub fn set_fastopen_connect(self: &Arc<Self>, on: bool) {
        self.configure(|c| c.fastopen_connect = on);
    }

    /// Reads `TCP_FASTOPEN_CONNECT` back.
    pub fn fastopen_connect(&self) -> bool {
        self.config().fastopen_connect
    }

    /// `TCP_FASTOPEN_NO_COOKIE`: data in a SYN needs none.
    pub fn set_fastopen_no_cookie(self: &Arc<Self>, on: bool) {
        self.configure(|c| c.fastopen_no_cookie = on);
    }

    /// Reads `TCP_FASTOPEN_NO_COOKIE` back.
    pub fn fastopen_no_cookie(&self) -> bool {
        self.config().fastopen_no_cookie
    }

    /// `TCP_FASTOPEN_KEY`: the key of a listener's cookies.
    pub fn set_fastopen_key(self: &Arc<Self>, key: [u8; 16]) {
        self.configure(|c| c.fastopen_key = key);
    }
}

/// Connections of a listener that were made by a cookie, and whose handshake is not over.
#[derive(Default)]
pub(crate) struct Unconfirmed(Mutex<Vec<Arc<AtomicBool>>>);

impl Unconfirmed {
    pub(crate) fn len(&self) -> usize {
        let mut all = self.0.lock();
        all.retain(|waits| waits.load(Ordering::Relaxed));
        all.len()
    }

    pub(crate) fn add(&self) -> Arc<AtomicBool> {
        let waits = Arc::new(AtomicBool::new(true));
        self.0.lock().push(waits.clone());
        waits
    }
}
