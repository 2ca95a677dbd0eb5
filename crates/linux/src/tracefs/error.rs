//! Errors of recording kernel events.

use std::io;
use std::path::PathBuf;

use trimtab_core::Bytes;

use crate::block::BlockError;
use crate::mount::MountError;

/// Why a recording cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum TracefsError {
    /// There is no tracefs.
    #[error("there is no tracefs at {}; mount it (mount -t tracefs tracefs /sys/kernel/tracing), or use a kernel with CONFIG_EVENT_TRACING", tracefs.display())]
    NoTracefs {
        /// The expected directory.
        tracefs: PathBuf,
        /// Why it couldn't be mounted there.
        #[source]
        source: Option<io::Error>,
    },
    /// The user has no right to trace.
    #[error("no right to use tracefs at {}; run as root", path.display())]
    Denied {
        /// The path that was refused.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel is locked down, as under secure boot, and gives out no traces even to root.
    #[error("the kernel is locked down and forbids the use of {}; boot with lockdown=none (and without secure boot) to record", path.display())]
    LockedDown {
        /// The path that was refused.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// This kernel has none of the requested events.
    #[error("this kernel has none of the requested events: {missing}")]
    NoEvents {
        /// The missing parts, in sentences.
        missing: String,
    },
    /// The drive of a file system hangs, or is very slow.
    #[error("the drive of {} does not answer", mount.display())]
    NoAnswer {
        /// The mount point.
        mount: PathBuf,
    },
    /// The kernel has no room for the buffers.
    #[error("the kernel cannot allocate a buffer of {buffer} for each processor; choose a smaller one")]
    NoBuffer {
        /// The requested size.
        buffer: Bytes,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A file of tracefs can't be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A file or directory of tracefs refuses a value.
    #[error("cannot set {} to {value:?}", path.display())]
    Set {
        /// The file or directory.
        path: PathBuf,
        /// The value that it should hold.
        value: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A file of tracefs has unexpected contents.
    #[error("{} doesn't describe {expected}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The content that it should describe.
        expected: String,
    },
    /// The kernel's buffer doesn't have the expected format.
    #[error("the trace of processor {cpu} is damaged: {what}")]
    Damaged {
        /// The processor.
        cpu: usize,
        /// The problem.
        what: &'static str,
    },
    /// There can be no thread that waits for events.
    #[error("cannot start a thread that waits for events")]
    Thread {
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Waiting for events failed.
    #[error("cannot wait for events")]
    Wait(#[source] io::Error),
    /// A device cannot be examined.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The mounts cannot be listed.
    #[error(transparent)]
    Mounts(#[from] MountError),
}
