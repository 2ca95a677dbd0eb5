//! Why a drive can't be had.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_linux::block::BlockError;
use trimtab_linux::environment::EnvironmentError;
use trimtab_linux::holder::Holder;
use trimtab_linux::loop_device::LoopError;
use trimtab_linux::mount::MountError;

/// Why a drive can't be created, reached or removed.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// Mounting and attaching take root.
    #[error("emulated drives need root; run it with sudo")]
    NotRoot,
    /// The kernel has no FUSE, or it can't be used here.
    #[error("cannot open /dev/fuse; load the fuse module (modprobe fuse)")]
    NoFuse(#[source] io::Error),
    /// The name can't be a drive's.
    #[error(
        "{name:?} cannot be a drive's name; use 1 to 32 letters, digits, dashes and underscores, the first no dash"
    )]
    BadName {
        /// The value that was given.
        name: String,
    },
    /// The size can't be a drive's.
    #[error("{size} cannot be a drive's size; use a multiple of {multiple}, at least one")]
    BadSize {
        /// The value that was given.
        size: Bytes,
        /// The size must be a whole multiple of this.
        multiple: Bytes,
    },
    /// The block layer has no discards of this granularity.
    #[error(
        "no block device can have a discard.advertised_granularity of {granularity}; use a power of two, or a \
         small multiple of one"
    )]
    BadGranularity {
        /// The value in the profile.
        granularity: Bytes,
    },
    /// Real time can't run at this speed.
    #[error("{speed} cannot be a speed; use a number from 0.001 to 1000000")]
    BadSpeed {
        /// The value that was given.
        speed: f64,
    },
    /// There is a drive of this name.
    #[error("there is a drive {name:?} already; remove it (trimtab drive rm {name}) or choose another name")]
    Exists {
        /// The name.
        name: String,
    },
    /// There is no drive of this name.
    #[error("there is no drive {name:?}{}", known(drives))]
    Unknown {
        /// The value that was given.
        name: String,
        /// The drives there are.
        drives: Vec<String>,
    },
    /// The data file is there already; a drive never overwrites one.
    #[error("the data file {} exists; remove it or name another", path.display())]
    DataExists {
        /// The file.
        path: PathBuf,
    },
    /// The data can outgrow what holds it.
    #[error("a drive of {size} needs as much room for its data, and {place} has {available}; {advice}")]
    NoRoom {
        /// The drive's size.
        size: Bytes,
        /// The storage that would hold the data.
        place: String,
        /// The space that is left there.
        available: Bytes,
        /// Advice for the user.
        advice: &'static str,
    },
    /// A file or directory of the drive can't be used.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The action that failed.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The serving process can't be started.
    #[error("cannot start the drive's server {}", executable.display())]
    Start {
        /// The executable.
        executable: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The serving process refused; its reason came as text.
    #[error("{reason}")]
    Refused {
        /// Its reason.
        reason: String,
    },
    /// The serving process can't be talked to.
    #[error("the server of drive {name:?} does not answer")]
    NoAnswer {
        /// The drive's name.
        name: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel's loop driver can't do without "write zeroes".
    #[error(
        "this kernel's loop driver keeps \"write zeroes\" on a device that refuses it; Linux 6.11 or later is needed"
    )]
    WriteZeroes,
    /// Something is mounted from the drive.
    #[error("drive {name:?} ({}) is mounted on {}; unmount it first", device.display(), target.display())]
    Mounted {
        /// The drive's name.
        name: String,
        /// Its block device.
        device: PathBuf,
        /// The mount point.
        target: PathBuf,
    },
    /// Something other than a mount that this process sees claims the drive.
    #[error("drive {name:?} ({}) is in use: {}", device.display(), used(holder.as_ref()))]
    InUse {
        /// The drive's name.
        name: String,
        /// Its block device.
        device: PathBuf,
        /// The process that uses it; `None` if none was found.
        holder: Option<Holder>,
    },
    /// The drive was removed while a program had it open.
    #[error(
        "drive {name:?} is removed, but {} still has its block device open; its server ends when that closes it",
        titled(holder.as_ref())
    )]
    Lingers {
        /// The drive's name.
        name: String,
        /// The program; `None` if none was found.
        holder: Option<Holder>,
    },
    /// The path of the data file leads to another file, or nobody knows which file it was.
    #[error(
        "drive {name:?} is removed, but {} is not the file that held its data: it is kept; where that was \
         moved, delete it yourself",
        path.display()
    )]
    DataReplaced {
        /// The name.
        name: String,
        /// The path.
        path: PathBuf,
    },
    /// The server does not answer in time.
    #[error("the server of drive {name:?} (process {server}) {why}")]
    Silent {
        /// The drive's name.
        name: String,
        /// The process.
        server: i32,
        /// The known facts about it, and the next step.
        why: Silence,
    },
    /// No loop device is behind the drive.
    #[error("drive {name:?} has lost its block device; remove it (trimtab drive rm {name})")]
    Detached {
        /// The drive's name.
        name: String,
    },
    /// A loop device failed.
    #[error(transparent)]
    Loop(#[from] LoopError),
    /// A mount failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A queue limit failed.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The machine can't be looked at.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

/// Why a server does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// A signal stopped it.
    #[error("is stopped; continue it with kill -CONT")]
    Stopped,
    /// It may be busy, or stuck.
    #[error("has not answered for {} s; try again, or end it with kill -KILL", .0.as_secs())]
    Waiting(Duration),
}

impl DriveError {
    /// For `map_err`: `action` on `path` failed.
    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}

fn used(holder: Option<&Holder>) -> String {
    let unknown = || "by swap, a device above it, or a process out of sight; end that first".to_owned();
    holder.map_or_else(unknown, Holder::to_string)
}

fn titled(holder: Option<&Holder>) -> String {
    holder.map_or_else(
        || "a program".to_owned(),
        |Holder { process, name, .. }| format!("{name} (process {process})"),
    )
}

fn known(drives: &[String]) -> String {
    match drives {
        [] => "; create one with trimtab drive create".to_owned(),
        drives => format!("; there are {}", drives.join(", ")),
    }
}
