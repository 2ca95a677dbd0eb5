//! A block device's number, and its kin: the disk it is a partition of, its partitions, and the devices
//! above and below it.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, io};

use rustix::fs::OFlags;
use trimtab_core::{Bytes, Extent};

use super::{BlockDevice, BlockError};

/// The number that the kernel knows a device by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// The driver's number.
    pub major: u32,
    /// The device's number with that driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// Returns the number that the kernel packed for programs.
    pub(crate) fn unpack(packed: u64) -> Self {
        Self { major: rustix::fs::major(packed), minor: rustix::fs::minor(packed) }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl FromStr for DeviceNumber {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (major, minor) = text.trim().split_once(':').ok_or(())?;
        Ok(Self { major: major.parse().map_err(drop)?, minor: minor.parse().map_err(drop)? })
    }
}

impl BlockDevice {
    /// The device with the number `number`; none where there is no such device. `sysfs` is where
    /// sysfs is mounted.
    pub fn numbered(sysfs: &Path, number: DeviceNumber) -> Option<Self> {
        Self::at(&sysfs.join("dev/block").join(number.to_string()))
    }

    /// All disks, by name; `sysfs` is where sysfs is mounted.
    ///
    /// # Errors
    /// [`BlockError::Read`].
    pub fn disks(sysfs: &Path) -> Result<Vec<Self>, BlockError> {
        Self::all_in(&sysfs.join("block"))
    }

    /// The device whose directory in sysfs is `directory`, or a link to that.
    pub(crate) fn at(directory: &Path) -> Option<Self> {
        let directory = directory.canonicalize().ok().filter(|directory| directory.is_dir())?;
        let disk = if directory.join("partition").exists() {
            directory.parent()?.to_owned()
        } else {
            directory.clone()
        };
        Some(Self { directory, disk })
    }

    /// Its directory in sysfs, with all links followed.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The kernel's name for it, such as `nvme0n1p1`.
    pub fn name(&self) -> String {
        // Where a name has a slash in it, as of old RAID controllers, sysfs has an exclamation mark.
        let name = self.directory.file_name().unwrap_or_default().to_string_lossy();
        name.replace('!', "/")
    }

    /// Where it is found in `/dev`, such as `/dev/nvme0n1p1`.
    pub fn path(&self) -> PathBuf {
        Path::new("/dev").join(self.name())
    }

    /// Opens its node in `/dev` for reading, with these further flags.
    ///
    /// # Errors
    /// The kernel's error; another error where the node is another device's.
    pub(crate) fn open_node(&self, flags: OFlags) -> io::Result<File> {
        // A drive without a medium, or a tape of that name, must not be waited for.
        let flags = (flags | OFlags::NONBLOCK).bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.path())?;
        let found = file.metadata()?;
        let is_own = found.file_type().is_block_device()
            && self.number().is_ok_and(|number| number == DeviceNumber::unpack(found.rdev()));
        if is_own { Ok(file) } else { Err(io::Error::other("the node of this name is another device's")) }
    }

    /// Its number.
    ///
    /// # Errors
    /// [`BlockError::Read`] or [`BlockError::Malformed`].
    pub fn number(&self) -> Result<DeviceNumber, BlockError> {
        let text = self.read("dev")?;
        text.parse().map_err(|()| self.malformed("dev", text, "a device number"))
    }

    /// The disk it is a partition of; none where it is no partition.
    pub fn disk(&self) -> Option<Self> {
        (self.disk != self.directory).then(|| self.whole())
    }

    /// The disk it is a partition of, or itself.
    pub fn whole(&self) -> Self {
        Self { directory: self.disk.clone(), disk: self.disk.clone() }
    }

    /// The partitions of its disk, by name.
    ///
    /// # Errors
    /// [`BlockError::Read`].
    pub fn partitions(&self) -> Result<Vec<Self>, BlockError> {
        let mut partitions = Self::all_in(&self.disk)?;
        partitions.retain(|device| device.disk == self.disk && device.directory != self.disk);
        Ok(partitions)
    }

    /// The devices that are built on it, such as LVM volumes, by name.
    ///
    /// # Errors
    /// [`BlockError::Read`].
    pub fn holders(&self) -> Result<Vec<Self>, BlockError> {
        Self::all_in(&self.directory.join("holders"))
    }

    /// The devices that it is built on, by name.
    ///
    /// # Errors
    /// [`BlockError::Read`].
    pub fn slaves(&self) -> Result<Vec<Self>, BlockError> {
        match self.disk() {
            Some(_) => Ok(Vec::new()),
            None => Self::all_in(&self.directory.join("slaves")),
        }
    }

    /// Returns the name of the md container that this is a volume of; none of other devices. A container is an array of the
    /// disks of an IMSM or DDF set: it has their metadata, and no data of its own.
    pub(crate) fn container(&self) -> Option<String> {
        // `external:/md127/0`, or `external:-md127/0` while the volume may not be started.
        let version = self.read("md/metadata_version").ok()?;
        let name = version.strip_prefix("external:")?.strip_prefix(['/', '-'])?;
        Some(name.split_once('/')?.0.to_owned())
    }

    /// The block devices whose directories, or links to them, are in `path`, by name.
    fn all_in(path: &Path) -> Result<Vec<Self>, BlockError> {
        let entries =
            fs::read_dir(path).map_err(|source| BlockError::Read { path: path.to_owned(), source })?;
        let is_block = |device: &Self| device.directory.join("dev").exists();
        let mut devices: Vec<_> =
            entries.flatten().filter_map(|entry| Self::at(&entry.path())).filter(is_block).collect();
        devices.sort_by_key(Self::name);
        Ok(devices)
    }

    /// The bytes of its disk that it is.
    ///
    /// # Errors
    /// [`BlockError::Read`] or [`BlockError::Malformed`].
    pub fn extent(&self) -> Result<Extent, BlockError> {
        let start = match self.disk() {
            Some(_) => self.sectors_in("start")?,
            None => Bytes::ZERO,
        };
        Ok(Extent::at(start, self.size()?))
    }
}
