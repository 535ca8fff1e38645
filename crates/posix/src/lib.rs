//! Sockets as libc sees them, on the uncopied stack.
//!
//! The semantics live here once: descriptors, errno, blocking and its limits, signals, readiness, options.
//! The preload library, the C library and the packetdrill plug-in are thin layers over [`calls`].
//!
//! # Descriptors
//! A socket's descriptor is a real one: the number of a kernel socket of the same family that is never
//! connected, a placeholder. So numbers never clash, `close` by anybody else does no harm, `fstat` says
//! "socket", and a socket that turns out to be the kernel's business after all (its destination is loopback)
//! simply becomes its placeholder.
//!
//! # Sleeping
//! No call below blocks: what cannot be done now is `EAGAIN`, and this crate sleeps (`wait`) on a futex, so
//! that signals interrupt and restart calls by the kernel's own rules. `poll` and `epoll` sleep in the kernel,
//! on its descriptors and one eventfd of ours. A program with a time of its own sleeps otherwise ([`sleep`]).
//!
//! # Processes
//! The stack lives in the process that made its first socket. Children of `fork`, and other programs on the
//! same TAP, are guests of that process: their calls travel over a local socket (`remote`), their bytes are
//! copied on the way, and their lending calls say so.

pub mod calls;
pub mod config;
mod control;
pub mod embed;
mod endpoint;
mod epoll;
pub mod errno;
pub mod installed;
pub mod lent;
mod local;
mod lock;
pub mod log;
pub mod net;
mod poll;
mod remote;
pub mod sleep;
mod sockaddr;
mod socket;
mod sys;
mod table;
mod tcp_options;
mod user;
mod wait;

pub use sys::SigMask;
pub use table::is_ours;
