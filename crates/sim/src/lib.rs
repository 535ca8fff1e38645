//! The world in a seed: hosts, a network with faults, programs, and checkers, in virtual time.
//!
//! Theory of operation. A [`World`] is two to four stacks without net threads on one switch. Everything is
//! drawn from one seed: how many hosts, their devices' features, the network's faults, what the programs
//! send and how, when they give up. Time is a number that jumps to the next thing that can happen. A run is
//! therefore repeated exactly by its seed, and a simulated minute takes milliseconds.
//!
//! What is checked:
//! - *streams*: what a program reads is what its peer sent, in order, and all of it if nobody gave up;
//! - *completions*: each lending call completes exactly once, and all of them do;
//! - *lent memory*: a buffer is poisoned the moment it is given back, and the network reads packets late, as
//!   a device's DMA does, so that memory given back too early shows as a damaged stream;
//! - *conservation*: every packet taken from a device is delivered or lost for a reason that is counted;
//! - *liveness*: everything ends within a bound of virtual time, and nothing stays lent.

mod buffer;
mod net;
mod program;
mod world;

pub use net::Faults;
pub use world::{Failure, Summary, World};
