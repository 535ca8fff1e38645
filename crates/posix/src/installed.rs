//! A stack that the program made itself and hands in, instead of one that the configuration describes.

use std::sync::Arc;

use stack::{Stack, TcpSocket};

use crate::endpoint::Endpoint;
use crate::local::Local;
use crate::net::{self, Net};
use crate::table;

/// Prepares a new socket: its parameters are set here before anybody uses it.
pub type Prepare = Box<dyn Fn(&Arc<TcpSocket>) + Send + Sync>;

/// The stack, and what is done to its new sockets.
pub(crate) struct Installed {
    stack: Stack,
    prepare: Prepare,
}

impl Installed {
    pub(crate) fn stack(&self) -> Stack {
        self.stack.clone()
    }

    pub(crate) fn tcp_socket(&self) -> Arc<dyn Endpoint> {
        let socket = self.stack.tcp_socket();
        (self.prepare)(&socket);
        Local::open(socket)
    }
}

/// Sockets of this process are `stack`'s from the next one on. Whoever installs it polls it.
pub fn install(stack: Stack, prepare: Prepare) {
    net::replace(Some(Arc::new(Net::Installed(Installed { stack, prepare }))));
}

/// Takes the stack away and forgets all its sockets, which closes them. Their placeholders stay open: the
/// numbers may be somebody else's by now.
pub fn uninstall() {
    for (fd, _) in table::all() {
        table::remove(fd);
    }
    net::replace(None);
}
