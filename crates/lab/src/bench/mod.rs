//! What a device does with discards: the bench of one device.

pub mod error;
pub mod target;
