//! Discards that disks failed.

use std::cell::RefCell;
use std::path::Path;

use trimtab_linux::block::BlockDevice;
use trimtab_linux::stack::{Machine, Stack};
use trimtab_linux::tracefs::{FailedDiscards, FreesOptions};
use trimtab_linux::trim::TrimError;

use crate::trimmer::TrimSeries;

/// Watches the kernel for failed discards, which FITRIM on ext4 and XFS doesn't report.
#[derive(Debug)]
pub(crate) struct Failures {
    machine: Machine,
    /// None if the kernel can't report them.
    failed: RefCell<Option<FailedDiscards>>,
}

impl Failures {
    /// Starts to watch.
    pub fn listen(machine: &Machine, options: &FreesOptions) -> Self {
        Self { machine: machine.clone(), failed: RefCell::new(FailedDiscards::listen(options).ok()) }
    }

    /// Returns `series`, or a failed series if a disk of `stack` failed a discard. Failures count since the
    /// last call of this or [`Self::take_below`], for any stack: the kernel doesn't report which trim a
    /// discard belonged to. `series` are trims of the file system mounted at `mount` on `stack`.
    pub fn check(&self, stack: &Stack, mount: &Path, series: TrimSeries) -> TrimSeries {
        match self.take_below(stack) {
            Some(disk) => TrimSeries::failed(TrimError::Failed { mount: mount.to_owned(), disk }),
            None => series,
        }
    }

    /// Returns the name of a disk of `stack` that failed a discard since this was last called for any stack.
    pub fn take_below(&self, stack: &Stack) -> Option<String> {
        let disks = self.failed.borrow_mut().as_mut()?.take().ok()?;
        let is_below = |number| stack.layers.iter().any(|layer| layer.number == Some(number));
        let number = disks.into_iter().find(|number| is_below(*number))?;
        BlockDevice::numbered(&self.machine.sysfs(), number).map(|disk| disk.name())
    }
}
