//! Why a device can't be claimed.

use std::fmt;
use std::io;
use std::path::PathBuf;

use trimtab_core::shell::quoted;

use super::{Overrides, Use};
use crate::block::BlockError;
use crate::loop_device::{self, LoopError};
use crate::mount::MountError;

/// Whether a device shares its bytes with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// It does.
    Certain,
    /// It can't be told.
    Possible,
    /// Both have the same WWID: they are two paths to one drive, or drives whose firmware gives it twice.
    SameWwid,
}

impl Sharing {
    /// Returns another step that may help; empty, or a clause that begins with a semicolon.
    fn advice(self) -> &'static str {
        match self {
            Self::Certain | Self::Possible => "",
            Self::SameWwid => {
                "; if their serial numbers show that they are two drives (lsblk -o NAME,WWN,SERIAL), detach the other"
            }
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Certain => "shares",
            Self::Possible => "may share",
            Self::SameWwid => "has the same WWID and so may share",
        })
    }
}

/// Why a device can't be claimed. Nothing was written to it.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// There is nothing at the path, or no way to it.
    #[error("cannot look at {}", path.display())]
    Look {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is a {found}, not a block device; name a spare drive, such as /dev/nvme1n1", path.display())]
    NotBlock {
        /// The path.
        path: PathBuf,
        /// Its kind.
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
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The list of md arrays can't be read.
    #[error("cannot read the list of md arrays {}", path.display())]
    Arrays {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The table of a device of the device mapper can't be read.
    #[error(
        "cannot tell what {device} is built on: its table cannot be read; check that /dev/mapper/control is there"
    )]
    Table {
        /// The device of the device mapper.
        device: String,
    },
    /// The source of a mount does not answer.
    #[error(
        "cannot tell which device is mounted on {}: the file system that holds its source {} does not answer; unmount it \
         first (umount -l {})", target.display(), path.display(), quoted(target.display())
    )]
    Source {
        /// The path of the source.
        path: PathBuf,
        /// The mount point.
        target: PathBuf,
    },
    /// A disk has other identifiers than the kernel knows.
    #[error(
        "cannot tell which drives are in use: {node} is another drive by now than the kernel takes it for; let it look \
         again (echo 1 > {}/rescan), and unmount what was mounted of the one before", unit.display()
    )]
    Remapped {
        /// Its node.
        node: String,
        /// Its directory in sysfs.
        unit: PathBuf,
    },
    /// A disk in use is offline.
    #[error(
        "cannot tell which drives are in use: {node} is in use, but offline, and so may be another drive by now than the \
         kernel takes it for; end its use, or bring it back (echo running > {}/state)", unit.display()
    )]
    Offline {
        /// Its node.
        node: String,
        /// Its directory in sysfs.
        unit: PathBuf,
    },
    /// A disk does not say which one it is.
    #[error(
        "cannot tell which drives are in use: {node} does not answer when it is asked for its identifiers; detach it \
         first (echo 1 > {}/delete)", unit.display()
    )]
    NoIdentifiers {
        /// Its node.
        node: String,
        /// Its directory in sysfs.
        unit: PathBuf,
    },
    /// A device that has to be read does not answer.
    #[error(
        "cannot read {}: it does not answer, as a layer below it may wait for a drive that is gone; take it down first",
        node.display()
    )]
    Silent {
        /// The device.
        node: PathBuf,
    },
    /// The root directory of a process does not answer.
    #[error(
        "cannot tell what uses devices: the file system of process {process}'s root directory does not answer; end that \
         process first"
    )]
    Root {
        /// The process.
        process: u32,
    },
    /// A device that has to be read is suspended.
    #[error("cannot read {}: it is suspended; resume it first (dmsetup resume {name})", node.display())]
    Suspended {
        /// The device of the device mapper.
        node: PathBuf,
        /// The name that the device mapper has of it.
        name: String,
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
        /// The part of it that is in use.
        node: String,
        /// Its use.
        found: Use,
    },
    /// The layers below it are in use by others than itself.
    #[error("{device} {how} its bytes with {node}, which {found}{}", how.advice())]
    Shared {
        /// The device.
        device: String,
        /// Whether that is certain.
        how: Sharing,
        /// The device below it that is in use.
        node: String,
        /// The use of that.
        found: Use,
    },
    /// The kernel keeps what shares its bytes for another user.
    #[error(
        "{device} {how} its bytes with {node}, which the kernel keeps for another user that lsblk may name, or \
         for a mount in another mount namespace (findmnt --task PID); end that first{}", how.advice()
    )]
    Kept {
        /// The device.
        device: String,
        /// Whether that is certain.
        how: Sharing,
        /// The device that shares its bytes.
        node: String,
    },
    /// The device that shares its bytes can't be kept from being used.
    #[error("{device} {how} its bytes with {node}, which cannot be opened")]
    Guard {
        /// The device.
        device: String,
        /// Whether that is certain.
        how: Sharing,
        /// The device that shares its bytes.
        node: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A device that shares its bytes came while it was looked at.
    #[error("{device} {how} its bytes with {node}, which appeared while it was looked at; try again")]
    Appeared {
        /// The device.
        device: String,
        /// Whether that is certain.
        how: Sharing,
        /// The device that appeared.
        node: String,
    },
    /// Its data is kept somewhere on this machine, where that can't be told.
    #[error(
        "{device} cannot be proven unused: {node} is served by {server}, which may keep its data in a file or drive \
         that is in use; name the drive itself, or a loop device over the file (losetup)"
    )]
    Served {
        /// The device.
        device: String,
        /// The disk that is served.
        node: String,
        /// Its server.
        server: &'static str,
    },
    /// The file below it may be kept in another file, which can't be told.
    #[error(
        "{device} cannot be proven unused: {}, the file below it, is on {file_system}, which may keep its bytes in another \
         file; use one on ext4, XFS or btrfs instead",
        path.display()
    )]
    Stacked {
        /// The device.
        device: String,
        /// The path that the kernel has of the file.
        path: PathBuf,
        /// The file system that the file is on.
        file_system: String,
    },
    /// A process may write to it.
    #[error(
        "{device} is in use: process {process} ({name}) has {node} open for writing; end that process first"
    )]
    Written {
        /// The device.
        device: String,
        /// The process.
        process: u32,
        /// The name of the process.
        name: String,
        /// The device, or what shares its bytes.
        node: String,
    },
    /// Only root sees what others use.
    #[error("cannot see what uses {}: other users' processes can be looked at by root alone; run this as root", path.display())]
    NotRoot {
        /// The path.
        path: PathBuf,
    },
    /// The lists of devices, processes or swap are not the kernel's own.
    #[error(
        "cannot tell what uses devices: {} is not the kernel's {expected}; run this where it is mounted \
         (mount -t {expected} {expected} {})", path.display(), path.display()
    )]
    NoLists {
        /// The directory.
        path: PathBuf,
        /// The file system that should be there.
        expected: &'static str,
    },
    /// The list of processes is not complete.
    #[error(
        "cannot tell what uses devices: /proc hides the processes of others (its mount option hidepid); run this with \
         CAP_SYS_PTRACE, or mount /proc without that option (mount -o remount,hidepid=0 /proc)"
    )]
    HiddenProcesses,
    /// The settings of what the kernel serves to others can't be read.
    #[error(
        "cannot tell which devices the kernel serves to others: configfs cannot be mounted; mount it in its usual place \
         (mount -t configfs configfs /sys/kernel/config), or run this outside of the container"
    )]
    NoConfig {
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// Something is mounted over the kernel's lists.
    #[error(
        "cannot tell what uses devices: {fstype}, mounted on {}, hides what the kernel lists there; unmount it \
         (umount {}), or run this outside of the container", path.display(), quoted(path.display())
    )]
    Covered {
        /// Its mount point.
        path: PathBuf,
        /// Its file system's name.
        fstype: String,
    },
    /// It is a part of a drive, and that was not allowed.
    #[error(
        "{device} is a part of {whole}{others}; name a whole drive, or add --allow-part, which slows what uses the rest, \
         and by which you vouch that nothing else relies on bytes of {device} (see bench --help)"
    )]
    Part {
        /// The device.
        device: String,
        /// The drive, volume or file system that it is a part of.
        whole: String,
        /// The uses of other parts, in brackets; empty where there is none.
        others: String,
    },
    /// A partition before it is in use, and may have been longer when that began.
    #[error(
        "{device} may share bytes with {node}, which lies before it on the disk and may have been longer when its use \
         began: it {found}"
    )]
    Unbounded {
        /// The device.
        device: String,
        /// The other partition.
        node: String,
        /// The use.
        found: Use,
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
        /// Its contents.
        found: String,
    },
    /// A process has an io_uring that may write to files or devices which can't be told.
    #[error(
        "cannot tell which files process {process} ({name}) writes to by its io_uring; end that process first"
    )]
    UnknownRing {
        /// The process.
        process: u32,
        /// Its name.
        name: String,
    },
    /// A process does not show what it has mapped.
    #[error(
        "cannot tell what process {process} ({name}) has mapped, as it waits, for example for a file system that does not \
         answer; end that process first"
    )]
    SilentProcess {
        /// The process.
        process: u32,
        /// Its name.
        name: String,
    },
    /// The contents of a device can't be read.
    #[error("cannot tell what {device} holds: it cannot be read")]
    Read {
        /// The device.
        device: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The program that tells what is on a device can't be run.
    #[error("cannot tell what {device} holds: the program wipefs does not run; install util-linux")]
    NoWipefs {
        /// The device.
        device: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The program that tells what is on a device failed.
    #[error("cannot tell what {device} holds: wipefs says {said:?}")]
    Wipefs {
        /// The device.
        device: String,
        /// Its message.
        said: String,
    },
    /// The answer of the program that lists a device's contents can't be read.
    #[error("cannot tell what {device} holds: the answer of wipefs can't be read")]
    WipefsAnswer {
        /// The device.
        device: String,
        /// The reason.
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
        /// The kernel's error.
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

impl ClaimError {
    /// Sets the override that allows what this refuses; returns whether there is one.
    pub(super) fn lift(&self, overrides: &mut Overrides) -> bool {
        match self {
            Self::Part { .. } => overrides.part = true,
            Self::Partitions { .. } => overrides.partitions = true,
            Self::Signatures { .. } => overrides.signatures = true,
            _ => return false,
        }
        true
    }

    /// Whether this is about a device that came or went meanwhile, so that too little of it was seen.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Appeared { how, .. }
            | Self::Shared { how, .. }
            | Self::Kept { how, .. }
            | Self::Guard { how, .. } => *how == Sharing::Possible,
            // One that is being attached or detached.
            Self::Loops(LoopError::Status { source, .. }) => loop_device::is_nothing(source),
            _ => false,
        }
    }
}
