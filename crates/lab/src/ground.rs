//! Where runs happen: on an emulated drive of their own, or in a directory of the user's.

mod directory;
mod emulated;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::Bytes;
use trimtab_core::policy::{TrimRequest, TrimScope};
use trimtab_core::stats::DriveCounters;
use trimtab_linux::SYSFS;
use trimtab_linux::block::BlockCounters;
use trimtab_linux::btrfs::discardable_bytes;
use trimtab_linux::trim::{EVERYTHING, trim};

pub use directory::{DirectoryGround, mount_of, possible_policies};
pub use emulated::{EmulatedGround, EmulatedOptions};

use crate::error::LabError;
use crate::interrupt::Interrupt;
use crate::keeping::Keeping;

/// How long a device must have done nothing to count as settled.
const QUIET: Duration = Duration::from_millis(60);
/// How often it is looked at meanwhile.
const GLANCE: Duration = Duration::from_millis(5);
/// The longest wait for a device that others keep busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest wait for btrfs's delayed discards: it leaves freed space alone for two minutes
/// (`BTRFS_DISCARD_DELAY` in fs/btrfs/discard.c) and then works through it at its own rate.
const ASYNC_PATIENCE: Duration = Duration::from_secs(240);

/// What is known at one instant.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When.
    pub at: Instant,
    /// The emulated drive's counters; none on a directory.
    pub drive: Option<DriveCounters>,
    /// The kernel's counters of the block device; none where it has none to read.
    pub kernel: Option<BlockCounters>,
}

/// Waits until the btrfs on `device` has nothing left that it means to discard, or long enough.
fn await_async_discards(device: &Path, interrupt: &Interrupt) -> Result<(), LabError> {
    let started = Instant::now();
    while discardable_bytes(Path::new(SYSFS), device).is_some_and(|bytes| bytes > Bytes::ZERO)
        && started.elapsed() < ASYNC_PATIENCE
    {
        interrupt.check()?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// A mounted file system to run a workload on.
pub trait Ground {
    /// The file system's name.
    fn file_system(&self) -> &str;

    /// The directory to work in: empty at first, and nobody else's.
    fn dir(&self) -> &Path;

    /// The kernel's counters of the block device; none where it has none to read.
    ///
    /// # Errors
    /// A device that is gone.
    fn kernel_counters(&self) -> Result<Option<BlockCounters>, LabError>;

    /// The emulated drive's counters; none on a directory.
    ///
    /// # Errors
    /// A drive that doesn't answer.
    fn drive_counters(&mut self) -> Result<Option<DriveCounters>, LabError>;

    /// The most bytes the workload may use, beside what is free on the file system.
    fn room(&self) -> Bytes;

    /// Gives the file system the idle time that its own delayed discards wait for.
    ///
    /// # Errors
    /// [`LabError::Interrupted`].
    fn idle(&mut self, interrupt: &Interrupt) -> Result<(), LabError>;

    /// The service's keeper on this file system.
    ///
    /// # Errors
    /// What it can't start for.
    fn keep(&self) -> Result<Keeping, LabError>;

    /// Unmounts and mounts again, and returns true; does nothing and returns false where the
    /// mount is the user's.
    ///
    /// # Errors
    /// What the kernel says.
    fn remount(&mut self) -> Result<bool, LabError>;

    /// All counters, now.
    ///
    /// # Errors
    /// As those of the counters.
    fn snapshot(&mut self) -> Result<Snapshot, LabError> {
        let (drive, kernel) = (self.drive_counters()?, self.kernel_counters()?);
        Ok(Snapshot { at: Instant::now(), drive, kernel })
    }

    /// Waits until the device has nothing left to do, and returns when it last did something.
    ///
    /// # Errors
    /// [`LabError::Interrupted`], or a device that is gone.
    fn settle(&mut self, interrupt: &Interrupt) -> Result<Instant, LabError> {
        let started = Instant::now();
        let (mut last, mut busy_until) = (self.kernel_counters()?, started);
        while busy_until.elapsed() < QUIET && started.elapsed() < PATIENCE {
            interrupt.check()?;
            thread::sleep(GLANCE);
            let now = self.kernel_counters()?;
            if now != last || now.is_some_and(|counters| counters.in_flight > 0) {
                (last, busy_until) = (now, Instant::now());
            }
        }
        Ok(busy_until)
    }

    /// Carries out a policy's request.
    ///
    /// # Errors
    /// What FITRIM says.
    fn trim(&mut self, request: &TrimRequest) -> Result<(), LabError> {
        let ranges = match &request.scope {
            TrimScope::Everything => vec![EVERYTHING],
            TrimScope::Within(extents) => extents.iter().collect(),
        };
        for range in ranges {
            trim(self.dir(), range, request.min_length)?;
        }
        Ok(())
    }
}
