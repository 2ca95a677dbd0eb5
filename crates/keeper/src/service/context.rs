//! The state that all managed file systems share.

use std::path::PathBuf;

use trimtab_linux::stack::Machine;

use crate::failures::Failures;
use crate::state::Store;

/// The machine, the saved states and the failed discards.
pub(super) struct Context {
    pub machine: Machine,
    /// The saved states, kept over reboots.
    pub store: Store,
    /// The directory of files that are kept until the next boot.
    pub run: PathBuf,
    /// The directory of the logs of decisions; none if they are not logged.
    pub decisions: Option<PathBuf>,
    /// The discards that disks failed.
    pub failures: Failures,
    /// The speed of the service's clock: more than 1 beside a drive that is emulated faster than real time.
    pub speed: f64,
}
