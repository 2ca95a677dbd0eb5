//! Disks that fail to discard.

use std::cell::RefCell;
use std::path::Path;

use trimtab_linux::block::BlockDevice;
use trimtab_linux::stack::{Machine, Stack};
use trimtab_linux::tracefs::{FailedDiscards, FreesOptions};
use trimtab_linux::trim::TrimError;

use crate::trims::Series;

/// Tells of disks that fail to discard, where the kernel does: trims of ext4 and XFS don't.
#[derive(Debug)]
pub(crate) struct Failures {
    machine: Machine,
    /// None where the kernel doesn't tell.
    heard: RefCell<Option<FailedDiscards>>,
}

impl Failures {
    /// Hears of them from now on.
    pub fn listen(machine: &Machine, options: &FreesOptions) -> Self {
        Self { machine: machine.clone(), heard: RefCell::new(FailedDiscards::listen(options).ok()) }
    }

    /// Takes a series of trims of the file system mounted at `mount` on `stack` for one that failed where a disk
    /// failed a discard since this or [`Self::below`] was last called for any stack: nobody tells of which.
    pub fn heed(&self, stack: &Stack, mount: &Path, series: Series) -> Series {
        match self.below(stack) {
            Some(disk) => Series::refused(TrimError::Failed { mount: mount.to_owned(), disk }),
            None => series,
        }
    }

    /// The name of a disk of `stack` that failed a discard since this was last called for any stack.
    pub fn below(&self, stack: &Stack) -> Option<String> {
        let disks = self.heard.borrow_mut().as_mut()?.take().ok()?;
        let is_below = |number| stack.layers.iter().any(|layer| layer.number == Some(number));
        let number = disks.into_iter().find(|number| is_below(*number))?;
        BlockDevice::numbered(&self.machine.sysfs(), number).map(|disk| disk.name())
    }
}
