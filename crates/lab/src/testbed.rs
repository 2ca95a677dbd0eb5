//! Testbeds: the mounted file systems that workloads run on.

mod directory;
mod emulated;
mod filled;

use std::path::{Path, PathBuf};

use trimtab_core::Bytes;
use trimtab_drive::DriveFigures;
use trimtab_linux::block::{BlockCounters, BlockDevice};

pub use directory::{DirectoryTestbed, mount_of, possible_policies};
pub use emulated::{EmulatedOptions, EmulatedTestbed, LARGEST_KEPT, room_of};

use crate::error::LabError;
use crate::fs::FileSystem;

/// A mounted file system to run a workload on.
pub trait Testbed {
    /// The file system's name.
    fn file_system(&self) -> &str;

    /// The directory to work in: empty at first, and used by nobody else.
    fn dir(&self) -> &Path;

    /// Where the file system is mounted.
    fn mount_point(&self) -> &Path;

    /// The path of the device below the file system, as the mount names it.
    fn source(&self) -> PathBuf;

    /// The block device below the file system; `None` if the kernel counts no commands for it.
    fn block(&self) -> Option<&BlockDevice>;

    /// The emulated drive's figures; none in a directory of the user's.
    ///
    /// # Errors
    /// A drive that doesn't answer.
    fn drive(&mut self) -> Result<Option<DriveFigures>, LabError>;

    /// The most bytes the workload may use, beside the limit of the free space.
    fn room(&self) -> Bytes;

    /// Unmounts the file system for programs that work on its device.
    ///
    /// # Errors
    /// [`LabError::MountIsUsers`], or [`LabError::Mount`].
    fn take_offline(&mut self) -> Result<(), LabError>;

    /// Mounts it again.
    ///
    /// # Errors
    /// [`LabError::Mount`].
    fn bring_online(&mut self) -> Result<(), LabError>;

    /// The file system for programs that make, check and grow it, and whether its policy has it discard by itself.
    ///
    /// # Errors
    /// [`LabError::MountIsUsers`].
    fn own(&self) -> Result<(FileSystem, bool), LabError>;

    /// Unmounts and mounts again, and returns true; does nothing and returns false if the
    /// mount is the user's.
    ///
    /// # Errors
    /// [`LabError::Mount`].
    fn remount(&mut self) -> Result<bool, LabError>;

    /// The kernel's counters of the block device; `None` if it has none to read.
    ///
    /// # Errors
    /// A device that is gone.
    fn kernel_counters(&self) -> Result<Option<BlockCounters>, LabError> {
        Ok(self.block().map(BlockDevice::counters).transpose()?)
    }
}
