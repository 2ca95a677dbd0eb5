//! Trimming a mounted file system, and bringing its data to the device.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use trimtab_core::{Bytes, Extent};

use crate::block::BlockDevice;
use crate::ioctl;
use crate::mount::{open_apart, open_of};

/// The whole trim address space of a file system, however large it is.
pub const EVERYTHING: Extent = Extent { start: Bytes(0), end: Bytes(u64::MAX) };

/// Why a mounted file system can't be trimmed or synced.
#[derive(Debug, thiserror::Error)]
pub enum TrimError {
    /// The file system or the device below it takes no discards.
    #[error("{} takes no discards: its file system or its device doesn't support them", mount.display())]
    Unsupported {
        /// The mount point.
        mount: PathBuf,
    },
    /// The trim failed.
    #[error("cannot trim {}", mount.display())]
    Trim {
        /// The mount point.
        mount: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A disk failed a discard of it, which file systems keep to themselves.
    #[error("cannot trim {}: {disk} fails to discard", mount.display())]
    Failed {
        /// The mount point.
        mount: PathBuf,
        /// The disk's name.
        disk: String,
    },
    /// The kernel has not answered yet.
    #[error("cannot trim {}: the kernel doesn't answer; its drive is slow or hangs, or it is frozen (fsfreeze --unfreeze)", mount.display())]
    NoAnswer {
        /// The mount point.
        mount: PathBuf,
    },
    /// The file system can't be synced.
    #[error("cannot sync {}", mount.display())]
    Sync {
        /// The mount point.
        mount: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// A mounted file system that is about to be trimmed. Its mount point can be unmounted meanwhile, but the
/// file system itself stays until this is dropped.
#[derive(Debug)]
pub struct Trimming<'a> {
    mount: &'a Path,
    directory: File,
}

impl<'a> Trimming<'a> {
    /// The trimmer of the file system mounted at `mount` from `devices`.
    ///
    /// # Errors
    /// [`TrimError::Trim`], also where another is mounted there by now.
    pub fn begin(mount: &'a Path, devices: &[BlockDevice]) -> Result<Self, TrimError> {
        Self::of(mount, open_of(mount, devices))
    }

    fn of(mount: &'a Path, directory: io::Result<File>) -> Result<Self, TrimError> {
        let failed = |source| TrimError::Trim { mount: mount.to_owned(), source };
        Ok(Self { mount, directory: directory.map_err(failed)? })
    }

    /// Asks the file system to discard its free space within `range` of its trim address space, leaving
    /// out free pieces shorter than `minimum`. Returns what the kernel reports, which means different
    /// things: bytes discarded on ext4, bytes examined on XFS.
    ///
    /// # Errors
    /// [`TrimError::Unsupported`] or [`TrimError::Trim`].
    pub fn trim(&self, range: Extent, minimum: Bytes) -> Result<Bytes, TrimError> {
        let mount = || self.mount.to_owned();
        ioctl::fitrim(&self.directory, range, minimum).map_err(|errno| match errno {
            Errno::OPNOTSUPP | Errno::NOTTY => TrimError::Unsupported { mount: mount() },
            errno => TrimError::Trim { mount: mount(), source: errno.into() },
        })
    }
}

/// Calls FITRIM on the file system that `directory` is on, as [`Trimming::trim`] does.
///
/// # Errors
/// The kernel's error.
pub fn fitrim(directory: &File, range: Extent, minimum: Bytes) -> io::Result<Bytes> {
    Ok(ioctl::fitrim(directory, range, minimum)?)
}

/// Trims a range of whatever is mounted at `mount`, as [`Trimming::trim`] does.
///
/// # Errors
/// [`TrimError::Unsupported`] or [`TrimError::Trim`].
pub fn trim(mount: &Path, range: Extent, minimum: Bytes) -> Result<Bytes, TrimError> {
    Trimming::of(mount, open_apart(mount))?.trim(range, minimum)
}

/// Checks that the file system mounted at `mount` can be trimmed, without trimming anything.
///
/// # Errors
/// [`TrimError::Unsupported`], or [`TrimError::Trim`] such as for lack of rights.
pub fn check(mount: &Path) -> Result<(), TrimError> {
    // A range of nothing: file systems that can be trimmed find it shorter than a block.
    match trim(mount, Extent::at(Bytes::ZERO, Bytes::ZERO), Bytes::ZERO) {
        Err(TrimError::Trim { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

/// Writes everything the file system mounted at `mount` holds in memory to its device.
///
/// # Errors
/// [`TrimError::Sync`].
pub fn sync(mount: &Path) -> Result<(), TrimError> {
    let failed = |source| TrimError::Sync { mount: mount.to_owned(), source };
    let directory = File::open(mount).map_err(failed)?;
    rustix::fs::syncfs(directory).map_err(|errno| failed(errno.into()))
}
