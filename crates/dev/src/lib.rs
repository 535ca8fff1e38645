//! The devices: everything a packet can leave through and arrive from.
//!
//! # Theory of operation
//!
//! A device is two halves. The transmitting half owns each packet from [`netdev::DeviceTx::start_xmit`]
//! until the hardware (here: another thread, the kernel, a test) has read it; dropping the packet is the
//! completion of the memory it refers to. The receiving half turns what arrived into packets made of pool
//! pages. Neither half looks into payload, and neither ever copies it on behalf of the stack:
//!
//! | device | who reads the bytes | when the packet is dropped |
//! |---|---|---|
//! | [`link`] | a software NIC, whose engine copies into the peer's pages as a DMA engine does | in the sender's `reclaim_tx`, after the engine has read it |
//! | [`tap`] | the kernel, once, inside `writev` on our iovecs (noted as `Reason::Device`) | when `writev` has returned |
//! | [`reflector`] | nobody: it answers from the headers | in `start_xmit` |
//! | [`mem`] | the test or simulation that takes the packet | whenever that drops it |
//!
//! [`impair`] wraps any of them and loses, delays, reorders, repeats or damages packets.
//!
//! # Sleeping
//! A stack that has nothing to do calls `arm`, and sleeps on `wait_fd` if the answer is `true`. [`wake`]
//! holds the argument why no wake-up is lost and why none costs a system call while the stack is awake.
//!
//! # Where privileges are needed
//! Only by [`tap`], and [`netns`] gets them without being root where the machine allows user namespaces.
//! [`bare`] drives a TAP without any stack: it is the ceiling that the stack is measured against.

pub mod bare;
mod hdr;
pub mod impair;
pub mod link;
pub mod mem;
pub mod netns;
pub mod reflector;
mod sys;
pub mod tap;
pub mod wake;

pub use bare::{BareConfig, BareReport, RawTcpSender};
pub use impair::{Impair, ImpairConfig, ImpairStats, Rules};
pub use link::{Engine, EngineHandle, LinkConfig, LinkDevice};
pub use mem::{MemConfig, MemDevice, MemPort};
pub use netns::{PrivateNet, PrivateNetError, enter_private_net};
pub use reflector::{Reflector, ReflectorConfig};
pub use tap::{TapConfig, TapDevice, TapError, TapKind};
