//! The C library: `libuncopied.so`, `libuncopied.a` and `uncopied.h`.
//!
//! Thin over `posix`: sockets with the calls' own names behind `uc_`, and what POSIX lacks (`stacks`,
//! `lending`, `owned`). The documentation of every function is its comment here, from which the header is
//! made.
//!
//! Three rules hold for all of it. *Handles* (`uc_stack`, `uc_ring`, received buffers) are numbers and are never
//! dereferenced: one that was freed, or never was, is `EBADF`. *Null* where memory is needed is `EFAULT`. *A
//! panic* ends at the boundary (`guard`), as `EIO`.
#![allow(unsafe_code, clippy::missing_safety_doc, reason = "the contract of each function is in its comment")]
#![allow(unreachable_pub, reason = "exported by name, not by path")]
#![allow(non_camel_case_types, reason = "the names are C's")]

mod callbacks;
mod config;
mod guard;
mod handles;
mod lending;
mod owned;
pub mod reason;
mod sockets;
mod stacks;
mod waits;
