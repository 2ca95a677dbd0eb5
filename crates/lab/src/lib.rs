//! Experiments: workloads on real file systems, the comparison of policies in virtual time or on the real
//! clock, and the replay of traces on the flash model.

pub mod arena;
pub mod compare;
pub mod drive_profile;
pub mod error;
pub mod fs;
pub mod guest;
mod ledger;
mod mkfs;
mod processors;
mod program;
pub mod progress;
pub mod reproduce;
mod share;
pub mod simulate;
mod space;
pub mod stage;
pub mod sweep;
pub mod testbed;
mod work;
pub mod workload;

pub use error::LabError;
