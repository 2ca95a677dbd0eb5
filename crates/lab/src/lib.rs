//! Experiments: workloads on real file systems, the comparison of policies in virtual time or on the real clock, and published
//! experiments anew.

pub mod compare;
pub mod error;
pub mod fs;
mod ledger;
mod mkfs;
pub mod progress;
pub mod reproduce;
mod share;
mod space;
pub mod stage;
pub mod testbed;
mod work;
pub mod workload;

pub use error::LabError;
