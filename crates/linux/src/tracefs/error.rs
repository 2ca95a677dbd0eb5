//! Why the kernel can't be recorded.

use std::io;
use std::path::PathBuf;

use trimtab_core::Bytes;

use crate::block::BlockError;
use crate::mount::MountError;

/// Why a recording can't begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum TracefsError {
    /// There is no tracefs.
    #[error("there is no tracefs at {}; mount it (mount -t tracefs tracefs /sys/kernel/tracing), or use a kernel with CONFIG_EVENT_TRACING", tracefs.display())]
    NoTracefs {
        /// Where it was looked for.
        tracefs: PathBuf,
        /// Why it couldn't be mounted there.
        #[source]
        source: Option<io::Error>,
    },
    /// The user has no right to trace.
    #[error("no right to use tracefs at {}; run as root", path.display())]
    Denied {
        /// What was refused.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel is locked down, as under secure boot, and gives out no traces even to root.
    #[error("the kernel is locked down and doesn't let {} be used; boot with lockdown=none (and without secure boot) to record", path.display())]
    LockedDown {
        /// What was refused.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// No event that was asked for is in this kernel.
    #[error("this kernel tells of nothing that was asked for: {missing}")]
    NoEvents {
        /// What is missing, in sentences.
        missing: String,
    },
    /// The kernel has no room for the buffers.
    #[error("the kernel gives no buffers of {buffer} for each processor; ask for another size")]
    NoBuffer {
        /// How much was asked for.
        buffer: Bytes,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A file of tracefs can't be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A file or directory of tracefs doesn't take what it should.
    #[error("cannot set {} to {value:?}", path.display())]
    Set {
        /// The file or directory.
        path: PathBuf,
        /// What it should hold.
        value: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A file of tracefs doesn't hold what it should.
    #[error("{} doesn't describe {expected}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it should describe.
        expected: String,
    },
    /// The kernel's buffer holds what the format doesn't allow.
    #[error("the trace of processor {cpu} is damaged: {what}")]
    Damaged {
        /// The processor.
        cpu: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The kernel doesn't let events be waited for.
    #[error("cannot wait for events")]
    Wait(#[source] io::Error),
    /// A device can't be looked at.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The mounts can't be looked at.
    #[error(transparent)]
    Mounts(#[from] MountError),
}
