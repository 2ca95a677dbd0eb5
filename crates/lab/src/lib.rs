//! Experiments: the bench of a device, and workloads on real file systems, where they run, and the
//! comparison of policies.

pub mod bench;
pub mod compare;
mod content;
pub mod doctor;
pub mod error;
pub mod foreground;
pub mod fs;
pub mod guest;
pub mod interrupt;
pub mod listener;
mod program;
pub mod progress;
pub mod record;
pub mod simulate;
pub mod survey;
pub mod testbed;
pub mod watch;
mod work;
pub mod workload;

pub use error::LabError;
