//! A block device's counters, queue limits and relatives, from sysfs.

mod counting;
mod drive;
mod named;
mod relatives;

use std::fs::File;
use std::ops::AddAssign;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use trimtab_core::document::KernelCounters;

pub(crate) use drive::{children, is_of_scsi_debug, number};
pub use named::{NamedError, disks};
pub use relatives::DeviceNumber;
use trimtab_core::{Bytes, SECTOR};

/// Room for more counters than the kernel has, of 20 digits at most.
const STAT: usize = 512;

/// Why a device's counters or limits can't be read or set.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// Sysfs doesn't know the device.
    #[error("{} is not a block device that sysfs knows", device.display())]
    Unknown {
        /// The device's path.
        device: PathBuf,
    },
    /// An attribute can't be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The attribute's file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// An attribute doesn't hold what it should.
    #[error("{} holds {found:?}, not {expected}", path.display())]
    Malformed {
        /// The attribute's file.
        path: PathBuf,
        /// The value that it holds.
        found: String,
        /// The value that it should hold.
        expected: &'static str,
    },
    /// The kernel refused a new value.
    #[error("cannot write {value:?} to {}", path.display())]
    Write {
        /// The attribute's file.
        path: PathBuf,
        /// The value.
        value: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// A block device in sysfs: a whole disk, or a partition, which shares its disk's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    directory: PathBuf,
    /// The directory of the whole disk.
    disk: PathBuf,
}

/// A device's totals since it appeared, from `/sys/block/*/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockCounters {
    /// Read requests completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: Bytes,
    /// How long reads took, all together: the sum of their latencies, in whole milliseconds.
    pub read_time: Duration,
    /// Write requests completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: Bytes,
    /// How long writes took, all together.
    pub write_time: Duration,
    /// Discard requests completed.
    pub discards: u64,
    /// Bytes discarded.
    pub discard_bytes: Bytes,
    /// Flush requests completed; unknown before Linux 5.5.
    pub flushes: Option<u64>,
    /// Requests issued and not completed.
    pub in_flight: u64,
    /// How long requests of any kind were in flight, in whole milliseconds. Since Linux 5.0 it is counted in ticks of
    /// the timer: a short request counts as none, or as a whole one.
    pub busy_time: Duration,
}

/// The sum over two devices.
impl AddAssign for BlockCounters {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.read_time += other.read_time;
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
        self.write_time += other.write_time;
        self.discards += other.discards;
        self.discard_bytes += other.discard_bytes;
        self.flushes = self.flushes.into_iter().chain(other.flushes).reduce(|sum, flushes| sum + flushes);
        self.in_flight += other.in_flight;
        self.busy_time += other.busy_time;
    }
}

impl BlockCounters {
    /// Returns the counts after `earlier` was read from the same device, as documents keep them.
    pub fn since(&self, earlier: &Self) -> KernelCounters {
        KernelCounters {
            discards: self.discards.saturating_sub(earlier.discards),
            discard_bytes: self.discard_bytes.saturating_sub(earlier.discard_bytes),
            writes: self.writes.saturating_sub(earlier.writes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
        }
    }
}

/// The limits of a device's queue for discards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiscardLimits {
    /// The smallest discard worth sending; zero where the device takes none.
    pub granularity: Bytes,
    /// How far the device starts after a multiple of the granularity.
    pub alignment: Bytes,
    /// The longest discard the kernel sends as one command.
    pub max: Bytes,
    /// The longest the device takes.
    pub max_hardware: Bytes,
    /// The longest "write zeroes" command; zero where the device has no such command.
    pub write_zeroes_max: Bytes,
}

impl BlockDevice {
    /// The device at the path `device`, such as `/dev/loop0`, a link to it, as LVM makes them, or another
    /// node of its number; by its name where there is no such path in `/dev`, as in a container or a captured
    /// machine. `sysfs` is where sysfs is mounted.
    ///
    /// # Errors
    /// [`BlockError::Unknown`].
    pub fn open(sysfs: &Path, device: &Path) -> Result<Self, BlockError> {
        let found = match fs::metadata(device) {
            Ok(node) if node.file_type().is_block_device() => {
                Self::numbered(sysfs, DeviceNumber::unpack(node.rdev()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::called(sysfs, device),
            _ => None,
        };
        found.ok_or_else(|| BlockError::Unknown { device: device.to_owned() })
    }

    /// Returns the device whose node the kernel would make at the path `node`, be it there or not.
    fn called(sysfs: &Path, node: &Path) -> Option<Self> {
        let captured = sysfs.with_file_name("dev");
        let name = node.strip_prefix("/dev").or_else(|_| node.strip_prefix(captured)).ok()?.to_str()?;
        Self::at(&sysfs.join("class/block").join(name.replace('/', "!")))
    }

    /// Whether nothing can be written to it.
    ///
    /// # Errors
    /// [`BlockError::Read`] or [`BlockError::Malformed`].
    pub fn is_read_only(&self) -> Result<bool, BlockError> {
        Ok(self.number_in("ro")? != 0)
    }

    /// Returns whether the medium of the disk can be taken out, as a card reader's.
    pub fn is_removable(&self) -> bool {
        let is_card = self.identity("device/type").is_some_and(|kind| kind == "SD");
        is_card || self.number_in("removable").is_ok_and(|removable| removable != 0)
    }

    /// The device's totals.
    ///
    /// # Errors
    /// [`BlockError::Read`] or [`BlockError::Malformed`].
    pub fn counters(&self) -> Result<BlockCounters, BlockError> {
        self.stat()?.read()
    }

    /// The file of its totals, open to be read again and again.
    ///
    /// # Errors
    /// [`BlockError::Read`].
    pub fn stat(&self) -> Result<StatFile<'_>, BlockError> {
        let path = self.attribute("stat");
        match File::open(&path) {
            Ok(file) => Ok(StatFile { device: self, file }),
            Err(source) => Err(BlockError::Read { path, source }),
        }
    }

    /// The device's size.
    ///
    /// # Errors
    /// [`BlockError::Read`] or [`BlockError::Malformed`].
    pub fn size(&self) -> Result<Bytes, BlockError> {
        self.sectors_in("size")
    }

    /// Its logical block: the unit of addresses and lengths.
    ///
    /// # Errors
    /// [`BlockError::Read`] or [`BlockError::Malformed`].
    pub fn logical_block(&self) -> Result<Bytes, BlockError> {
        Ok(Bytes(self.number_in("queue/logical_block_size")?))
    }

    /// The limits of its discards.
    ///
    /// # Errors
    /// [`BlockError::Read`] or [`BlockError::Malformed`].
    pub fn discard_limits(&self) -> Result<DiscardLimits, BlockError> {
        Ok(DiscardLimits {
            granularity: Bytes(self.number_in("queue/discard_granularity")?),
            alignment: Bytes(self.number_in("discard_alignment")?),
            max: Bytes(self.number_in("queue/discard_max_bytes")?),
            max_hardware: Bytes(self.number_in("queue/discard_max_hw_bytes")?),
            write_zeroes_max: Bytes(self.number_in("queue/write_zeroes_max_bytes")?),
        })
    }

    /// Sets the longest discard the kernel sends as one command; longer ones are split.
    ///
    /// # Errors
    /// [`BlockError::Write`].
    pub fn set_discard_max(&self, max: Bytes) -> Result<(), BlockError> {
        self.write("queue/discard_max_bytes", &max.0.to_string())
    }

    /// How many requests its queue holds.
    ///
    /// # Errors
    /// [`BlockError::Read`] or [`BlockError::Malformed`].
    pub fn queue_requests(&self) -> Result<u32, BlockError> {
        Ok(self.number_in("queue/nr_requests")? as u32)
    }

    /// Sets how many requests its queue holds.
    ///
    /// # Errors
    /// [`BlockError::Write`], where the driver takes fewer.
    pub fn set_queue_requests(&self, requests: u32) -> Result<(), BlockError> {
        self.write("queue/nr_requests", &requests.to_string())
    }

    /// Turns off the merging of adjacent requests: each reaches the driver as it was submitted.
    ///
    /// # Errors
    /// [`BlockError::Write`].
    pub fn turn_merges_off(&self) -> Result<(), BlockError> {
        self.write("queue/nomerges", "2")
    }

    /// The I/O scheduler in use, such as `none` or `mq-deadline`.
    ///
    /// # Errors
    /// [`BlockError::Read`].
    pub fn scheduler(&self) -> Result<String, BlockError> {
        let text = self.read("queue/scheduler")?;
        let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Ok(chosen.map_or(text.trim(), |(name, _)| name).to_owned())
    }

    fn read(&self, attribute: &str) -> Result<String, BlockError> {
        let path = self.attribute(attribute);
        fs::read_to_string(&path).map_err(|source| BlockError::Read { path, source })
    }

    /// The file of an attribute: one of the queue is the disk's.
    pub(crate) fn attribute(&self, name: &str) -> PathBuf {
        if name.starts_with("queue/") { self.disk.join(name) } else { self.directory.join(name) }
    }

    pub(crate) fn number_in(&self, attribute: &str) -> Result<u64, BlockError> {
        let text = self.read(attribute)?;
        text.trim().parse().map_err(|_| self.malformed(attribute, text, "a number"))
    }

    /// A length or an address that sysfs has in sectors.
    pub(crate) fn sectors_in(&self, attribute: &str) -> Result<Bytes, BlockError> {
        let text = self.read(attribute)?;
        // All that the kernel addresses is below the largest offset of a file.
        let bytes = text.trim().parse().ok().and_then(|sectors: u64| sectors.checked_mul(SECTOR.0));
        let bytes = bytes.filter(|bytes| *bytes <= i64::MAX as u64).map(Bytes);
        bytes.ok_or_else(|| self.malformed(attribute, text, "a number of sectors"))
    }

    fn write(&self, attribute: &str, value: &str) -> Result<(), BlockError> {
        let path = self.attribute(attribute);
        fs::write(&path, value).map_err(|source| BlockError::Write { path, value: value.to_owned(), source })
    }

    fn malformed(&self, attribute: &str, found: String, expected: &'static str) -> BlockError {
        BlockError::Malformed { path: self.attribute(attribute), found, expected }
    }
}

/// The file of a device's totals, open.
#[derive(Debug)]
pub struct StatFile<'a> {
    device: &'a BlockDevice,
    file: File,
}

impl StatFile<'_> {
    /// The totals now.
    ///
    /// # Errors
    /// [`BlockError::Read`], such as of a device that is gone, or [`BlockError::Malformed`].
    pub fn read(&self) -> Result<BlockCounters, BlockError> {
        let mut text = [0; STAT];
        let length = self.file.read_at(&mut text, 0);
        let length =
            length.map_err(|source| BlockError::Read { path: self.device.attribute("stat"), source })?;
        let text = String::from_utf8_lossy(&text[..length]);
        let fields: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
        // Documentation/block/stat.rst: four figures for each of reads and writes, three for the
        // queue, four for discards, and since Linux 5.5 two for flushes.
        match fields.as_deref() {
            Ok(
                &[
                    reads,
                    _,
                    read_sectors,
                    read_time,
                    writes,
                    _,
                    write_sectors,
                    write_time,
                    in_flight,
                    busy_time,
                    _,
                    discards,
                    _,
                    discard_sectors,
                    _,
                    ref since_5_5 @ ..,
                ],
            ) => Ok(BlockCounters {
                reads,
                read_bytes: Bytes(read_sectors * SECTOR.0),
                read_time: Duration::from_millis(read_time),
                writes,
                write_bytes: Bytes(write_sectors * SECTOR.0),
                write_time: Duration::from_millis(write_time),
                discards,
                discard_bytes: Bytes(discard_sectors * SECTOR.0),
                flushes: since_5_5.first().copied(),
                in_flight,
                busy_time: Duration::from_millis(busy_time),
            }),
            _ => Err(self.device.malformed("stat", text.into_owned(), "at least 15 counters")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sysfs with one device whose files hold these.
    fn captured(files: &[(&str, &str)]) -> (tempfile::TempDir, BlockDevice) {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("class/block/loop0");
        fs::create_dir_all(directory.join("queue")).unwrap();
        files.iter().for_each(|(name, text)| fs::write(directory.join(name), text).unwrap());
        // Where this machine has the node, it is known by its number.
        fs::create_dir_all(root.path().join("dev/block")).unwrap();
        std::os::unix::fs::symlink(&directory, root.path().join("dev/block/7:0")).unwrap();
        let device = BlockDevice::open(root.path(), Path::new("/dev/loop0")).unwrap();
        (root, device)
    }

    #[test]
    fn counters_are_read_in_bytes() {
        let stat = "  10 1 80 5 20 2 160 6 0 7 8 30 3 2048 9 4 11\n";
        let (_root, device) = captured(&[("stat", stat)]);
        let counters = device.counters().unwrap();
        let expected = BlockCounters {
            reads: 10,
            read_bytes: Bytes(80 * 512),
            read_time: Duration::from_millis(5),
            writes: 20,
            write_bytes: Bytes(160 * 512),
            write_time: Duration::from_millis(6),
            discards: 30,
            discard_bytes: Bytes(2048 * 512),
            flushes: Some(4),
            in_flight: 0,
            busy_time: Duration::from_millis(7),
        };
        assert_eq!(counters, expected);
        let (_root, old_kernel) = captured(&[("stat", "10 1 80 5 20 2 160 6 3 7 8 30 3 2048 9\n")]);
        let expected = BlockCounters { flushes: None, in_flight: 3, ..expected };
        assert_eq!(old_kernel.counters().unwrap(), expected);
        assert_eq!(counters.since(&BlockCounters::default()).discard_bytes, Bytes(1 << 20));
    }

    #[test]
    fn limits_and_scheduler_are_read() {
        let (_root, device) = captured(&[
            ("queue/discard_granularity", "4096\n"),
            ("discard_alignment", "512\n"),
            ("queue/discard_max_bytes", "0\n"),
            ("queue/discard_max_hw_bytes", "2199023255040\n"),
            ("queue/write_zeroes_max_bytes", "0\n"),
            ("queue/scheduler", "none [mq-deadline] bfq\n"),
        ]);
        device.set_discard_max(Bytes(2 << 30)).unwrap();
        let limits = device.discard_limits().unwrap();
        assert_eq!((limits.granularity, limits.max), (Bytes(4096), Bytes(2 << 30)));
        assert_eq!(limits.alignment, Bytes(512));
        assert_eq!(device.scheduler().unwrap(), "mq-deadline");
    }

    #[test]
    fn missing_or_odd_attribute_is_named() {
        let (root, device) = captured(&[("stat", "1 2 3\n")]);
        assert!(device.counters().unwrap_err().to_string().contains("loop0/stat holds \"1 2 3\\n\""));
        assert!(device.size().unwrap_err().to_string().contains("cannot read"));
        let unknown = BlockDevice::open(root.path(), Path::new("/dev/sdz")).unwrap_err();
        assert_eq!(unknown.to_string(), "/dev/sdz is not a block device that sysfs knows");
    }

    #[test]
    fn file_named_like_a_device_is_refused() {
        let (root, _) = captured(&[]);
        let path = root.path().join("loop0");
        fs::write(&path, "").unwrap();
        assert!(BlockDevice::open(root.path(), &path).is_err());
    }

    #[test]
    fn missing_node_is_known_by_its_name_in_dev_alone() {
        let (root, _) = captured(&[]);
        let disks = root.path().join("sys/class/block");
        for name in ["sdzz", "cciss!c0d0"] {
            fs::create_dir_all(disks.join(name)).unwrap();
        }
        let sysfs = root.path().join("sys");
        let opened = |path: &str| BlockDevice::open(&sysfs, Path::new(path)).ok().map(|device| device.name());
        assert_eq!(opened("/dev/sdzz").as_deref(), Some("sdzz"));
        assert_eq!(opened("/dev/cciss/c0d0").as_deref(), Some("cciss/c0d0"));
        assert_eq!(opened(root.path().join("dev/sdzz").to_str().unwrap()).as_deref(), Some("sdzz"));
        for path in ["/srv/sdzz", "//server/sdzz", "/dev/disk/by-id/sdzz", "sdzz"] {
            assert_eq!(opened(path), None, "{path}");
        }
    }
}
