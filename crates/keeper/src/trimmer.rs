//! Trims of one mounted file system, and the counters of its devices.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use trimtab_core::policy::LONGEST_TRIM;
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::{BlockCounters, BlockDevice, BlockError, StatFile};
use trimtab_linux::btrfs::{self, chunks};
use trimtab_linux::ext4::groups;
use trimtab_linux::mount::open_of;
use trimtab_linux::trim::{TrimError, Trimming};

use crate::free_space::FreeSpace;

/// How often the counters are read until all discards are done.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
/// Without a completed discard for this long, the remaining I/O in flight is that of others. A slow drive
/// needs half of it for one discard.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Once a discard has completed, so many times the longest wait for one are enough, but no less than this.
const SETTLE_FACTOR: u32 = 4;
const SHORTEST_SETTLE: Duration = Duration::from_millis(50);

/// The longest gap between two extents whose free space is read by one query: a group of ext4.
const QUERY_GAP: Bytes = Bytes(128 << 20);

/// The magic numbers of ext4 and XFS (include/uapi/linux/magic.h).
const EXT4: i64 = 0xef53;
const XFS: i64 = 0x5846_5342;

/// The result of several trims in a row.
#[derive(Debug)]
pub struct TrimSeries {
    /// The ranges that were trimmed.
    pub trimmed: ExtentSet,
    /// How long the devices were busy with them.
    pub took: Duration,
    /// The error that ended the series, if any. Part of the range that failed may have been discarded.
    pub outcome: Result<(), TrimError>,
}

impl TrimSeries {
    /// Calls `trim`, which returns how long the devices were busy, for each of `ranges` in order of address,
    /// until it fails or the series has taken too long.
    pub fn of(ranges: &ExtentSet, mut trim: impl FnMut(Extent) -> Result<Duration, TrimError>) -> Self {
        let begun = Instant::now();
        let mut series = Self { trimmed: ExtentSet::new(), took: Duration::ZERO, outcome: Ok(()) };
        for range in ranges.iter() {
            match trim(range) {
                Ok(took) => {
                    series.trimmed.insert(range);
                    series.took += took;
                }
                Err(error) => return Self { outcome: Err(error), ..series },
            }
            if series.took.max(begun.elapsed()) >= LONGEST_TRIM {
                break;
            }
        }
        series
    }

    /// A series that failed with `error` and trimmed nothing.
    pub fn failed(error: TrimError) -> Self {
        Self { trimmed: ExtentSet::new(), took: Duration::ZERO, outcome: Err(error) }
    }
}

/// The counters of a file system's devices, each the sum over several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The counters of the devices that the file system is directly on: its own discards.
    pub own: BlockCounters,
    /// The counters of the whole disks that these are on: the load that everyone makes.
    pub disks: BlockCounters,
}

/// Trims a file system and reads the counters of its devices. Tests implement it to
/// inject faults.
pub trait Trimmer {
    /// Asks the file system to discard its free extents of at least `minimum` within each of `ranges` (trim
    /// addresses), and waits each time until the devices have done so.
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> TrimSeries;

    /// Widens `extents` to the ranges that FITRIM must be given; everything in the result is discarded. btrfs
    /// skips a chunk if a range begins inside it, so whole chunks are needed. ext4 continues to the end of
    /// the free extent in which a range ends, so one trim covers all of that extent.
    ///
    /// # Errors
    /// [`TrimError::Trim`].
    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError>;

    /// Returns the counters of the file system's devices.
    ///
    /// # Errors
    /// [`BlockError`], for example if a device is gone.
    fn counters(&mut self) -> Result<Counters, BlockError>;

    /// Returns the free bytes of the file system; zero if unknown.
    fn free(&mut self) -> Bytes;

    /// Takes over a trim that `earlier`, which trimmed the same file system, has begun and that has not ended.
    fn take_over(&mut self, _earlier: &mut Self)
    where
        Self: Sized,
    {
    }

    /// Returns the parts of `extents` that are still free; none if the file system doesn't tell.
    fn free_within(&mut self, _extents: &ExtentSet) -> Option<ExtentSet> {
        None
    }
}

/// Trims with FITRIM and reads `/sys/block/*/stat`.
#[derive(Debug, Clone)]
pub struct MountedTrimmer {
    mount: PathBuf,
    devices: Vec<BlockDevice>,
    disks: Vec<BlockDevice>,
}

impl MountedTrimmer {
    /// A trimmer of the file system on `devices` that is mounted at `mount`.
    pub fn new(mount: PathBuf, devices: Vec<BlockDevice>) -> Self {
        let mut disks: Vec<BlockDevice> = Vec::new();
        for disk in devices.iter().map(BlockDevice::whole) {
            if !disks.contains(&disk) {
                disks.push(disk);
            }
        }
        Self { mount, devices, disks }
    }

    /// The mount point.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    /// The magic number of the file system.
    fn kind(&self) -> io::Result<i64> {
        Ok(rustix::fs::statfs(&self.mount)?.f_type)
    }

    fn reach(&self, mut extents: ExtentSet) -> io::Result<ExtentSet> {
        match (self.kind()?, self.devices.as_slice()) {
            (btrfs::MAGIC, _) => {
                let root = open_of(&self.mount, &self.devices)?;
                for chunk in chunks(&root)?.into_iter().map(|chunk| chunk.extent) {
                    if extents.inside(chunk).next().is_some() {
                        extents.insert(chunk);
                    }
                }
            }
            (EXT4, [device]) => {
                let root = open_of(&self.mount, &self.devices)?;
                // The service may lack the right to read the device.
                let known = device.number().ok().zip(groups(&device.path()).ok().flatten());
                let around = |(number, groups)| FreeSpace::around(&extents, &root, number, groups).ok();
                if let Some(free) = known.and_then(around) {
                    return Ok(free.reached_from(&extents));
                }
            }
            _ => {}
        }
        Ok(extents)
    }

    /// Reads which parts of `extents` are free, with one query for those that are close to each other.
    fn read_free(&self, extents: &ExtentSet) -> Option<ExtentSet> {
        let ([device], EXT4 | XFS) = (self.devices.as_slice(), self.kind().ok()?) else { return None };
        let (root, number) = (open_of(&self.mount, &self.devices).ok()?, device.number().ok()?);
        let mut ranges: Vec<Extent> = Vec::new();
        for extent in extents.iter() {
            match ranges.last_mut() {
                Some(last) if extent.start.saturating_sub(last.end) <= QUERY_GAP => last.end = extent.end,
                _ => ranges.push(extent),
            }
        }
        let mut free = ExtentSet::new();
        for range in ranges {
            let found = FreeSpace::on_device(&root, number, range).ok()?;
            found.extents().iter().for_each(|extent| free.insert(extent.intersect(range)));
        }
        Some(free.intersect(extents))
    }

    /// Opens the counters of its devices and disks.
    fn open_counters(&self) -> Result<OpenCounters<'_>, BlockError> {
        let parts = self.devices.iter().filter(|device| !self.disks.contains(device));
        let counted = parts.chain(&self.disks).map(|device| {
            Ok(DeviceCounters {
                stat: device.stat()?,
                is_own: self.devices.contains(device),
                is_disk: self.disks.contains(device),
            })
        });
        counted.collect::<Result<_, _>>().map(OpenCounters)
    }
}

/// The open counters of several devices.
struct OpenCounters<'a>(Vec<DeviceCounters<'a>>);

struct DeviceCounters<'a> {
    stat: StatFile<'a>,
    /// Whether the file system is directly on it.
    is_own: bool,
    /// Whether it is a whole disk.
    is_disk: bool,
}

impl OpenCounters<'_> {
    fn read(&self) -> Result<Counters, BlockError> {
        let mut all = Counters::default();
        for DeviceCounters { stat, is_own, is_disk } in &self.0 {
            let counters = stat.read()?;
            if *is_own {
                all.own += counters;
            }
            if *is_disk {
                all.disks += counters;
            }
        }
        Ok(all)
    }

    /// Waits until no discard is in flight; returns when the last one ended. The counters tell discards in
    /// flight from other commands only by their completion.
    fn settle(&self) -> Result<Instant, BlockError> {
        let mut counters = self.read()?;
        let mut changed = Instant::now();
        let mut timeout = SETTLE_TIMEOUT;
        let mut longest = Duration::ZERO;
        while counters.disks.in_flight > 0 && changed.elapsed() < timeout {
            thread::sleep(POLL_INTERVAL);
            let now = self.read()?;
            if now.own.discards != counters.own.discards || now.disks.in_flight == 0 {
                longest = longest.max(changed.elapsed());
                timeout = (longest * SETTLE_FACTOR).clamp(SHORTEST_SETTLE, SETTLE_TIMEOUT);
                changed = Instant::now();
            }
            counters = now;
        }
        Ok(changed)
    }
}

impl Trimmer for MountedTrimmer {
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> TrimSeries {
        let unreadable =
            |error| TrimError::Trim { mount: self.mount.clone(), source: io::Error::other(error) };
        let open =
            || Ok((Trimming::begin(&self.mount, &self.devices)?, self.open_counters().map_err(unreadable)?));
        let (trimming, counters) = match open() {
            Ok(open) => open,
            Err(error) => return TrimSeries::failed(error),
        };
        // ext4 and btrfs wait for the discards that they send; XFS doesn't.
        let waits = self.kind().is_ok_and(|kind| matches!(kind, EXT4 | btrfs::MAGIC));
        TrimSeries::of(&ranges, |range| {
            let begun = Instant::now();
            trimming.trim(range, minimum)?;
            if waits {
                return Ok(begun.elapsed());
            }
            let ended = counters.settle().map_err(unreadable)?;
            Ok(ended.duration_since(begun))
        })
    }

    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
        self.reach(extents).map_err(|source| TrimError::Trim { mount: self.mount.clone(), source })
    }

    fn counters(&mut self) -> Result<Counters, BlockError> {
        self.open_counters()?.read()
    }

    fn free(&mut self) -> Bytes {
        let found = rustix::fs::statvfs(&self.mount);
        found.map_or(Bytes::ZERO, |found| Bytes(found.f_bfree * found.f_frsize))
    }

    fn free_within(&mut self, extents: &ExtentSet) -> Option<ExtentSet> {
        self.read_free(extents)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A sysfs with two disks of which each was busy for 1 s, wrote 1 MiB in one request and discarded 2 MiB in two.
    fn two_disks() -> (tempfile::TempDir, Vec<BlockDevice>) {
        let root = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let directory = root.path().join("class/block").join(name);
            fs::create_dir_all(directory.join("queue")).unwrap();
            fs::write(directory.join("stat"), "0 0 0 0 1 0 2048 1000 1 1000 1000 2 0 4096 500\n").unwrap();
            BlockDevice::open(root.path(), &Path::new("/dev").join(name)).unwrap()
        };
        let disks = ["trimtab-test-a", "trimtab-test-b"].map(open).into();
        (root, disks)
    }

    #[test]
    fn counters_of_several_disks_are_their_sum() {
        let (_root, disks) = two_disks();
        let Counters { own, disks } = MountedTrimmer::new("/".into(), disks).counters().unwrap();
        assert_eq!((disks.writes, disks.write_bytes, disks.in_flight), (2, Bytes(2 << 20), 2));
        assert_eq!(disks.busy_time, Duration::from_secs(2), "each byte has as much busy time as on one disk");
        assert_eq!((own.discards, own.discard_bytes), (4, Bytes(4 << 20)));
    }
}
