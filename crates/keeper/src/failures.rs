//! Discards that disks failed.

use std::cell::RefCell;
use std::path::Path;

use trimtab_linux::block::{BlockDevice, DeviceNumber};
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
    counts: RefCell<FailureCounts>,
}

/// The disks that failed discards, each with how often it was seen to.
#[derive(Debug, Clone, Default)]
pub(crate) struct FailureCounts(Vec<(DeviceNumber, u64)>);

impl FailureCounts {
    fn of(&self, disk: DeviceNumber) -> u64 {
        self.0.iter().find(|(number, _)| *number == disk).map_or(0, |(_, count)| *count)
    }

    fn add(&mut self, disk: DeviceNumber) {
        match self.0.iter_mut().find(|(number, _)| *number == disk) {
            Some((_, count)) => *count += 1,
            None => self.0.push((disk, 1)),
        }
    }
}

impl Failures {
    /// Starts to watch.
    pub fn listen(machine: &Machine, options: &FreesOptions) -> Self {
        let failed = RefCell::new(FailedDiscards::listen(options).ok());
        Self { machine: machine.clone(), failed, counts: RefCell::default() }
    }

    /// Returns the failures until now.
    pub fn counts(&self) -> FailureCounts {
        let failed = self.failed.borrow_mut().as_mut().and_then(|failed| failed.take().ok());
        let mut counts = self.counts.borrow_mut();
        failed.into_iter().flatten().for_each(|disk| counts.add(disk));
        counts.clone()
    }

    /// Returns `series`, or a failed series if a disk of `stack` failed a discard since there were the failures
    /// `before`: the kernel doesn't report which trim a discard belonged to. `series` are trims of the file system
    /// mounted at `mount` on `stack`.
    pub fn check(
        &self,
        stack: &Stack,
        mount: &Path,
        before: &FailureCounts,
        series: TrimSeries,
    ) -> TrimSeries {
        let now = self.counts();
        let mut below = stack.layers.iter().filter_map(|layer| layer.number);
        match below.find(|disk| now.of(*disk) > before.of(*disk)) {
            Some(number) => {
                let disk = BlockDevice::numbered(&self.machine.sysfs(), number);
                let disk = disk.map_or_else(|| number.to_string(), |disk| disk.name());
                TrimSeries::failed(TrimError::Failed { mount: mount.to_owned(), disk })
            }
            None => series,
        }
    }
}
