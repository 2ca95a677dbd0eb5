//! Where the service works: what its file systems have in common.

use std::cell::RefCell;
use std::path::PathBuf;

use trimtab_linux::block::BlockDevice;
use trimtab_linux::stack::{Machine, Stack};
use trimtab_linux::tracing::FailedDiscards;

use crate::state::Store;

/// The machine, what is kept there, and what it tells all file systems alike.
pub(super) struct Site {
    pub machine: Machine,
    /// What is kept over reboots.
    pub store: Store,
    /// The directory of what is kept until the next boot.
    pub run: PathBuf,
    /// None where the kernel doesn't tell.
    failed: RefCell<Option<FailedDiscards>>,
}

impl Site {
    pub fn new(machine: Machine, store: Store, run: PathBuf, failed: Option<FailedDiscards>) -> Self {
        Self { machine, store, run, failed: RefCell::new(failed) }
    }

    /// The name of a disk below `stack` that failed a discard since this was last called for any.
    pub fn failed_disk(&self, stack: &Stack) -> Option<String> {
        let disks = self.failed.borrow_mut().as_mut()?.take().ok()?;
        let is_below = |number| stack.layers.iter().any(|layer| layer.number == Some(number));
        let number = disks.into_iter().find(|number| is_below(*number))?;
        BlockDevice::numbered(&self.machine.sysfs(), number).map(|disk| disk.name())
    }
}
