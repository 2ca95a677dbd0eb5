//! Errors of a canary.

use std::io;
use std::path::PathBuf;

use trimtab_core::Bytes;
use trimtab_linux::block::BlockError;
use trimtab_linux::stack::StackError;
use trimtab_linux::tracefs::TracefsError;
use trimtab_linux::trim::TrimError;

use trimtab_core::interrupt::Interrupted;

/// Why a canary was impossible or failed.
#[derive(Debug, thiserror::Error)]
pub enum CanaryError {
    /// The stack has no mounted file system on a device.
    #[error("{target} has no file system on a block device for a canary; name a mount point of one")]
    NoFileSystem {
        /// The target.
        target: String,
    },
    /// The target is a device that a file system is mounted from.
    #[error("{device} is mounted at {}: name that for a canary", mount.display())]
    Mounted {
        /// The device.
        device: String,
        /// Where its file system is mounted.
        mount: PathBuf,
    },
    /// This process lacks the rights.
    #[error("a canary on {} needs root", directory.display())]
    Rights {
        /// Where the file should have been.
        directory: PathBuf,
    },
    /// The file system is read-only.
    #[error("{} is read-only: a canary has to be written; remount it rw, or leave the canary out", directory.display())]
    ReadOnly {
        /// The directory.
        directory: PathBuf,
    },
    /// There is too little free space.
    #[error("{} has {free} free, but a canary here takes {needed}; free some space, or leave the canary out", directory.display())]
    Full {
        /// The directory.
        directory: PathBuf,
        /// The free space for this user.
        free: Bytes,
        /// The required space.
        needed: Bytes,
    },
    /// The file can't be written.
    #[error("cannot write a canary in {}", directory.display())]
    Write {
        /// Where it should have been.
        directory: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The file system doesn't report where the file is.
    #[error("cannot find out where the file system at {} put the canary", directory.display())]
    Place {
        /// Where the file was.
        directory: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The file is on the realtime device of an XFS.
    #[error("files in {} lie on the realtime device of the XFS, where a canary can't be followed", directory.display())]
    Realtime {
        /// Where the file was.
        directory: PathBuf,
    },
    /// The file has no extents of its own on the device.
    #[error("the file system at {} gave the canary no place of its own on the device", directory.display())]
    Nowhere {
        /// Where the file was.
        directory: PathBuf,
    },
    /// The file system can't be synced.
    #[error(transparent)]
    Sync(#[from] TrimError),
    /// The trace failed.
    #[error(transparent)]
    Tracing(#[from] TracefsError),
    /// A device's counters can't be read.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The stack can't be examined.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The canary's process can't be started.
    #[error("cannot start {} to send a canary", program.display())]
    Process {
        /// The program.
        program: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The canary's process ended without a result.
    #[error("the process that sent a canary was ended; try again")]
    Lines(#[source] io::Error),
    /// The canary's process failed; its reason came as text.
    #[error("{reason}")]
    Failed {
        /// Its reason.
        reason: String,
    },
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}
