//! Waiting for a socket.

use std::sync::Arc;
use std::time::Duration;

use stack::{Error, Ready, Stack, TcpSocket};

/// A socket that can be waited for.
pub(crate) trait Waits {
    fn ready(&self) -> Ready;
    /// With a net thread: sleeps; false if `timeout` ran out first.
    fn sleep(&self, interest: Ready, timeout: Option<Duration>) -> bool;
}

macro_rules! waits {
    ($($socket:ty),*) => {
        $(impl Waits for $socket {
            fn ready(&self) -> Ready {
                (**self).ready()
            }
            fn sleep(&self, interest: Ready, timeout: Option<Duration>) -> bool {
                (**self).wait(interest, timeout)
            }
        })*
    };
}

waits!(Arc<TcpSocket>, Arc<stack::UdpSocket>);

/// Sleeps until `socket` is ready for `interest`; without a net thread it runs the stack meanwhile.
pub(crate) fn wait(
    stack: &Stack,
    socket: &impl Waits,
    interest: Ready,
    timeout: Option<Duration>,
) -> Result<(), Error> {
    if stack.is_threaded() {
        return if socket.sleep(interest, timeout) { Ok(()) } else { Err(Error::TimedOutHere) };
    }
    let deadline = timeout.map(|t| stack.now() + t);
    loop {
        let next = stack.poll_all(stack.now());
        if socket.ready().intersects(interest) {
            return Ok(());
        }
        let now = stack.now();
        if deadline.is_some_and(|d| now >= d) {
            return Err(Error::TimedOutHere);
        }
        let until = [next, deadline].into_iter().flatten().min();
        stack.sleep(until.map(|u| u - now));
    }
}
