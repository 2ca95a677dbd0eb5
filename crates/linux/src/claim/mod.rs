//! Claiming a device whose data may be destroyed: the door that everything passes before a byte is
//! written to a device.
//!
//! What a device is used for is looked up first, and every use that is found refuses it. Then it is
//! opened with `O_EXCL`, which the kernel refuses for what it uses itself, in any mount namespace.
//! From then on nothing else can mount it or build on it; so all is looked up once more.

mod contents;
mod usage;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::block::{BlockDevice, BlockError, DeviceNumber};
use crate::device::Device;
use crate::loop_device::LoopError;
use crate::mount::MountError;
use crate::{PROCFS, SYSFS};
pub use contents::Signature;
pub use usage::Use;

/// What may be destroyed, each on its own; by default nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overrides {
    /// File systems and the like on the device: `--overwrite-signatures`.
    pub signatures: bool,
    /// The partitions of the device and its partition table: `--overwrite-partitions`.
    pub partitions: bool,
    /// The device may be one partition of a disk, whose other partitions keep their data but are
    /// slowed: `--allow-partition`.
    pub partition: bool,
}

/// Why a device can't be claimed. Nothing was written to it.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// There is nothing at the path, or no way to it.
    #[error("cannot look at {}", path.display())]
    Look {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is a {found}, not a block device; name a spare drive, such as /dev/nvme1n1", path.display())]
    NotBlock {
        /// The path.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Sysfs doesn't tell what there is to know of it.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The list of mounts can't be read.
    #[error(transparent)]
    Mounts(#[from] MountError),
    /// Loop devices can't be listed.
    #[error(transparent)]
    Loops(#[from] LoopError),
    /// The list of swap can't be read.
    #[error("cannot read the list of swap {}", path.display())]
    Swaps {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// There is no medium in it, or no file behind it.
    #[error("{device} has no size: there is no medium in it, or nothing behind it")]
    Empty {
        /// The device.
        device: String,
    },
    /// Nothing can be written to it.
    #[error("{device} is read-only; make it writable first (blockdev --setrw {device}, or its switch)")]
    ReadOnly {
        /// The device.
        device: String,
    },
    /// It is in use, or a part of it, or its disk as a whole.
    #[error("{device} is in use: {node} {found}")]
    InUse {
        /// The device.
        device: String,
        /// What of it is in use.
        node: String,
        /// What it is used for.
        found: Use,
    },
    /// What it is built on is in use by others than itself.
    #[error("{device} shares its bytes with {node}, which {found}")]
    Shared {
        /// The device.
        device: String,
        /// What of the devices below it is in use.
        node: String,
        /// What that is used for.
        found: Use,
    },
    /// It is a partition, and that was not allowed.
    #[error(
        "{device} is a partition of {disk}; name a whole drive, or add --allow-partition, which loses \
         nothing outside {device} but slows what uses {disk}{others}"
    )]
    Partition {
        /// The device.
        device: String,
        /// Its disk.
        disk: String,
        /// What uses the other partitions, in brackets; empty where nothing does.
        others: String,
    },
    /// It is a partition that shares bytes with another one.
    #[error("{device} overlaps {other}, which would lose data; name a whole drive")]
    Overlap {
        /// The device.
        device: String,
        /// The other partition.
        other: String,
    },
    /// It has partitions or a partition table, and they were not given up.
    #[error("{device} has {found}; all of that will be lost if you add --overwrite-partitions")]
    Partitions {
        /// The device.
        device: String,
        /// The partitions, and what is in them.
        found: String,
    },
    /// There is something on it, and that was not given up.
    #[error("{device} holds {found}; this will be lost if you add --overwrite-signatures")]
    Signatures {
        /// The device.
        device: String,
        /// What is on it.
        found: String,
    },
    /// The program that tells what is on a device can't be run.
    #[error("cannot tell what {device} holds: the program wipefs does not run; install util-linux")]
    NoWipefs {
        /// The device.
        device: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The program that tells what is on a device failed.
    #[error("cannot tell what {device} holds: wipefs says {said:?}")]
    Wipefs {
        /// The device.
        device: String,
        /// What it said.
        said: String,
    },
    /// What the program that tells what is on a device said can't be read.
    #[error("cannot tell what {device} holds: the answer of wipefs can't be read")]
    WipefsAnswer {
        /// The device.
        device: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The kernel keeps it for another user.
    #[error(
        "{} is in use: the kernel keeps it for another user that lsblk may name, or for a mount in another \
         mount namespace (findmnt --task PID); end that first", path.display()
    )]
    Busy {
        /// The path.
        path: PathBuf,
    },
    /// It can't be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The path names another device than it did a moment ago.
    #[error("{} became another device while it was looked at; try again", path.display())]
    Changed {
        /// The path.
        path: PathBuf,
    },
}

/// A device that may be written to and erased.
#[derive(Debug)]
pub struct Claim {
    /// The device, which is open and stays claimed until the last clone of it is gone.
    pub device: Device,
    /// What that costs, a line each: `will be lost: ...` and the like.
    pub lost: Vec<String>,
}

/// A device that could be claimed.
#[derive(Debug)]
pub struct Check {
    /// What sysfs knows of it.
    pub block: BlockDevice,
    /// What claiming it would cost, as in [`Claim::lost`].
    pub lost: Vec<String>,
}

/// Claims the device at `path` for work that destroys its data. Nothing is written to it here.
///
/// # Errors
/// Why it can't be claimed; where an override would do, that is said.
pub fn claim(path: &Path, overrides: &Overrides) -> Result<Claim, ClaimError> {
    let (file, Check { block, lost }) = open(path, overrides, true)?;
    Ok(Claim { device: Device::new(file, block)?, lost })
}

/// Checks all that [`claim`] checks, and leaves the device alone.
///
/// # Errors
/// Those of [`claim`].
pub fn check(path: &Path, overrides: &Overrides) -> Result<Check, ClaimError> {
    open(path, overrides, false).map(|(_, check)| check)
}

fn open(path: &Path, overrides: &Overrides, write: bool) -> Result<(File, Check), ClaimError> {
    let number = number(path)?;
    judge(number, path, overrides)?;
    let flags = OFlags::EXCL | OFlags::DIRECT;
    let file = OpenOptions::new().read(true).write(write).custom_flags(flags.bits() as i32).open(path);
    let file = file.map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => ClaimError::Busy { path: path.to_owned() },
        Some(Errno::ROFS) => ClaimError::ReadOnly { device: path.display().to_string() },
        _ => ClaimError::Open { path: path.to_owned(), source },
    })?;
    let opened = file.metadata().map_err(|source| ClaimError::Look { path: path.to_owned(), source })?;
    if DeviceNumber::unpack(opened.rdev()) != number {
        return Err(ClaimError::Changed { path: path.to_owned() });
    }
    Ok((file, judge(number, path, overrides)?))
}

/// Looks at all that is known of the device, and says what claiming it costs.
fn judge(number: DeviceNumber, path: &Path, overrides: &Overrides) -> Result<Check, ClaimError> {
    let (sysfs, procfs) = (Path::new(SYSFS), Path::new(PROCFS));
    let block = BlockDevice::numbered(sysfs, number)
        .ok_or_else(|| BlockError::Unknown { device: path.to_owned() })?;
    let usage = usage::Usage::of(sysfs, procfs, &block)?;
    let mut lost = usage.judge(overrides)?;
    lost.extend(contents::Contents::of(&block)?.judge(overrides)?);
    Ok(Check { block, lost })
}

/// The number of the block device at `path`.
fn number(path: &Path) -> Result<DeviceNumber, ClaimError> {
    let look = |source| ClaimError::Look { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(look)?;
    let kind = metadata.file_type();
    let found = if kind.is_block_device() {
        return Ok(DeviceNumber::unpack(metadata.rdev()));
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_char_device() {
        "character device"
    } else if kind.is_file() {
        "regular file"
    } else {
        "socket or pipe"
    };
    Err(ClaimError::NotBlock { path: path.to_owned(), found })
}
