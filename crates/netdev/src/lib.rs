//! Interfaces: devices, and what the stack does between a packet and a device.
//!
//! # Theory of operation
//!
//! A [`Device`] is two halves and a sheet of facts. The stack keeps the receiving half; the transmitting
//! half goes into an [`Interface`], where any number of contexts send.
//!
//! *Down.* [`Interface::xmit`] first makes the packet conform ([`validate_xmit`], which is the one place
//! that decides): taps get a private copy, a large packet is cut ([`gso`]) if the device cannot do it,
//! fragments are joined and checksums finished if the device cannot do that. Each of these is done to this
//! packet only, and lent memory that had to be copied learns why. Then the packet goes to the device at
//! once if nobody is in the way, and into a short queue ([`Fifo`]) otherwise. A device that is full gives
//! the packet back as a value; nothing is lost silently: every drop is counted by [`DropReason`].
//!
//! *Up.* What a device delivers in one batch goes through [`Gro`], which merges what segmentation would
//! restore. Segmentation and aggregation are each other's inverse, and a property test says so.
//!
//! *Locks.* The device, then the queue. The queue's lock is held for moving pointers only. Packets are
//! dropped under the device's lock (by the device), so whatever a dropped packet completes must not send.

#![forbid(unsafe_code)]

mod device;
mod drops;
mod features;
mod gro;
pub mod gso;
mod interface;
mod qdisc;
mod stats;
mod tap;
mod turn;
mod xmit;

#[cfg(test)]
mod testing;

pub use device::{Device, DeviceInfo, DeviceRx, DeviceTx, Features, LinkKind, TxDone, TxPending, Xmit};
pub use drops::{DropCounters, DropReason};
pub use features::{DroppedFeature, fix_features};
pub use gro::Gro;
pub use interface::Interface;
pub use qdisc::{Fifo, Limits};
pub use stats::{TxSnapshot, TxStats};
pub use tap::{Direction, Tap, TapId, Taps};
pub use xmit::{Conforming, Validated, validate_xmit};
