//! Whether a file system was written while nobody watched it.
//!
//! A [`Seal`] is what a file system says of how far it has been written, by figures that only grow. Who
//! keeps one with what he knows of the file system can tell later whether that still holds: only where
//! [`Seal::follows`] finds that nothing can have been written in between. In doubt it finds that
//! something was.

mod ext4;
mod xfs;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use trimtab_core::Bytes;

use crate::block::{BlockDevice, BlockError};
use crate::device::Device;
use crate::file_system_kind::FileSystemKind;
use crate::forked;
use crate::mount::{self, Mount};
use crate::tracefs::FreeCoverage;
use crate::trim::{self, TrimError};

/// How much of a device's start holds the superblock of any file system here.
const START: usize = 4096;

/// How far a file system had been written, at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// Its identifier.
    pub uuid: [u8; 16],
    /// The device, and where on it the file system is: a copy elsewhere is another one.
    pub device: String,
    written: Written,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Written {
    Ext4(ext4::Written),
    Xfs(xfs::Written),
}

/// Why it can't be told how far a file system has been written.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The file system tells nothing that would do.
    #[error("{} is no ext4 or XFS: of others it isn't known whether they were written", device.display())]
    Unknown {
        /// The device, or what is mounted.
        device: PathBuf,
    },
    /// Something on the device isn't as it should be.
    #[error("{} doesn't show {expected}", device.display())]
    Malformed {
        /// The device.
        device: PathBuf,
        /// The expected content.
        expected: &'static str,
    },
    /// It wasn't unmounted cleanly, or is mounted now; or is an XFS that never was.
    #[error("{} was not unmounted cleanly", device.display())]
    Unclean {
        /// The device.
        device: PathBuf,
    },
    /// The kernel keeps no count of what is written to the device.
    #[error("{} counts nothing: its queue/iostats is 0", device.display())]
    Uncounted {
        /// The device.
        device: PathBuf,
    },
    /// A device or a file of sysfs can't be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The device can't be looked at.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// Data in memory can't be brought to the device.
    #[error(transparent)]
    Sync(#[from] TrimError),
}

/// Why what was known of a file system doesn't hold any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It is another one.
    #[error("it is another file system")]
    FileSystem,
    /// It is a copy, or was moved.
    #[error("it is on another device")]
    Device,
    /// Something was written in between, or may have been.
    #[error("it was written while nobody watched")]
    Written,
    /// It was mounted in between.
    #[error("it was mounted while nobody watched")]
    Mounted,
    /// It was written after it was mounted, before anybody watched.
    #[error("it was written between being mounted and being watched")]
    Early,
    /// It was mounted then and isn't now: being unmounted, it was written.
    #[error("it was unmounted while nobody watched")]
    Unmounted,
}

/// The seal of a mounted file system, after bringing all it has in memory to its device. `sysfs` is where
/// sysfs is mounted. Only its device is opened, so it can be unmounted meanwhile.
///
/// # Errors
/// [`SealError`].
pub fn seal_mounted(sysfs: &Path, mount: &Mount) -> Result<Seal, SealError> {
    trim::sync_by_device(&mount.target, &sealed_device(sysfs, mount)?)?;
    seal_just_mounted(sysfs, mount)
}

/// The seal of a file system that was mounted a moment ago, as it is on its device: if something was written to it since,
/// what was known before may not follow.
///
/// # Errors
/// [`SealError`].
pub fn seal_just_mounted(sysfs: &Path, mount: &Mount) -> Result<Seal, SealError> {
    let disk = Disk::new(sealed_device(sysfs, mount)?)?;
    let start = disk.start()?;
    if mount.fstype == "xfs" {
        let written = xfs::Written::mounted(sysfs, &disk)?;
        return Ok(disk.seal(xfs::uuid(&start), Written::Xfs(written)));
    }
    let superblock = ext4::Superblock::parse(&start).ok_or_else(|| disk.malformed("an ext4"))?;
    // After the read, which may have written the superblock.
    let written = ext4::Written::mounted(sysfs, &disk, &superblock)?;
    Ok(disk.seal(superblock.uuid, Written::Ext4(written)))
}

/// Returns the device of a file system that can be sealed.
fn sealed_device(sysfs: &Path, mount: &Mount) -> Result<BlockDevice, SealError> {
    let is_known = FileSystemKind::named(&mount.fstype).is_some_and(|kind| kind.has_seal);
    let device = BlockDevice::numbered(sysfs, mount.number).filter(|_| is_known);
    device.ok_or_else(|| SealError::Unknown { device: mount.target.clone() })
}

/// The seal of the file system on the block device at the path `device`, which isn't mounted, or by now
/// again. `sysfs` and `procfs` are where these are mounted.
///
/// # Errors
/// [`SealError`]; [`SealError::Unclean`] of one that is still being unmounted.
pub fn seal_unmounted(sysfs: &Path, procfs: &Path, device: &Path) -> Result<Seal, SealError> {
    let disk = Disk::new(BlockDevice::open(sysfs, device)?)?;
    // Until it is about to be through, an XFS that was not synced looks as it did when it was unmounted before.
    let has_log = sysfs.join("fs/xfs").join(disk.block.name()).join("log").exists();
    let number = disk.block.number()?;
    if has_log && !mount::mounts(procfs).is_ok_and(|all| all.iter().any(|mount| mount.number == number)) {
        return Err(SealError::Unclean { device: disk.path });
    }
    let start = disk.start()?;
    if let Some(superblock) = xfs::Superblock::parse(&start) {
        let written = xfs::Written::unmounted(&disk, &superblock)?;
        return Ok(disk.seal(xfs::uuid(&start), Written::Xfs(written)));
    }
    let unknown = || SealError::Unknown { device: device.to_owned() };
    let superblock = ext4::Superblock::parse(&start).ok_or_else(unknown)?;
    let written = ext4::Written::unmounted(&disk, &superblock)?;
    Ok(disk.seal(superblock.uuid, Written::Ext4(written)))
}

impl Seal {
    /// Whether what was known when `sealed` was made still holds when this was made, because nothing was
    /// written in between; `heard` says from when on it was heard what the file system gives up. This is
    /// made after that began.
    ///
    /// # Errors
    /// The [`Reason`] why it doesn't, or may not.
    pub fn follows(&self, sealed: &Self, heard: FreeCoverage) -> Result<(), Reason> {
        if self.uuid != sealed.uuid {
            return Err(Reason::FileSystem);
        }
        if self.device != sealed.device {
            return Err(Reason::Device);
        }
        match (&self.written, &sealed.written) {
            (Written::Ext4(now), Written::Ext4(then)) => now.follows(then, heard),
            (Written::Xfs(now), Written::Xfs(then)) => now.follows(then),
            _ => Err(Reason::FileSystem),
        }
    }
}

/// Opens a device for reads past the page cache.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)
}

/// A device that is read past the page cache, by processes that open it for one read each.
struct Disk {
    block: BlockDevice,
    size: Bytes,
    logical_block: Bytes,
    path: PathBuf,
}

impl Disk {
    fn new(block: BlockDevice) -> Result<Self, SealError> {
        Ok(Self { size: block.size()?, logical_block: block.logical_block()?, path: block.path(), block })
    }

    /// Its first bytes.
    fn start(&self) -> Result<[u8; START], SealError> {
        let mut start = [0; START];
        self.read(Bytes::ZERO, &mut start)?;
        Ok(start)
    }

    /// Reads the bytes from `at` on, wherever these begin and end.
    fn read(&self, at: Bytes, into: &mut [u8]) -> Result<(), SealError> {
        let block = self.logical_block.0;
        let start = at.0 / block * block;
        let end = (at.0 + into.len() as u64).next_multiple_of(block);
        // Its drive may hang. The process has none of our files.
        let around = forked::attempt(None, || {
            let device = Device::new(open(&self.path)?, self.block.clone());
            let mut around = vec![0; (end - start) as usize];
            device.map_err(io::Error::other)?.read(Bytes(start), &mut around)?;
            Ok(around)
        });
        let around = around.map_err(|source| SealError::Read { path: self.path.clone(), source })?;
        into.copy_from_slice(&around[(at.0 - start) as usize..][..into.len()]);
        Ok(())
    }

    /// Returns an attribute in sysfs of the file system on it, from a file below the directory of its kind.
    fn attribute(&self, sysfs: &Path, kind: &str, file: &str) -> Result<String, SealError> {
        let path = sysfs.join("fs").join(kind).join(self.block.name()).join(file);
        fs::read_to_string(&path).map_err(|source| SealError::Read { path, source })
    }

    fn seal(&self, uuid: [u8; 16], written: Written) -> Seal {
        let block = &self.block;
        let names =
            ["wwid", "device/wwid", "device/serial", "serial", "dm/uuid", "md/uuid", "loop/backing_file"];
        let name = names.iter().find_map(|name| block.identity(name)).unwrap_or_else(|| block.whole().name());
        let start = block.extent().map_or(Bytes::ZERO, |extent| extent.start);
        Seal { uuid, device: format!("{name} {}+{}", start.0, self.size.0), written }
    }

    fn malformed(&self, expected: &'static str) -> SealError {
        SealError::Malformed { device: self.path.clone(), expected }
    }
}
