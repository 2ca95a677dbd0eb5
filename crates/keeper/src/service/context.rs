//! Where the service works: what its file systems have in common.

use std::path::PathBuf;

use trimtab_linux::stack::Machine;

use crate::failures::Failures;
use crate::state::Store;

/// The machine, what is kept there, and what it tells all file systems alike.
pub(super) struct Context {
    pub machine: Machine,
    /// What is kept over reboots.
    pub store: Store,
    /// The directory of what is kept until the next boot.
    pub run: PathBuf,
    pub failures: Failures,
    /// Seconds by the service's clock per second of this machine's: more than 1 on a drive that is emulated
    /// that much faster.
    pub speed: f64,
}
