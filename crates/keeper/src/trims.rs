//! Trimming one mounted file system, and seeing what that does.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::{BlockCounters, BlockDevice, BlockError, StatFile};
use trimtab_linux::btrfs::chunks;
use trimtab_linux::ext4::groups;
use trimtab_linux::mount::open_of;
use trimtab_linux::trim::{TrimError, Trimming};

use crate::free_space::FreeSpace;

/// How often the devices are looked at until their discards are done.
const GLANCE: Duration = Duration::from_micros(500);
/// How long no discard completes where others keep the devices busy and none of ours is left: slow
/// drives take half of it for one.
const STANDSTILL: Duration = Duration::from_secs(1);

/// How long a series of trims goes on before what is left of it waits for the next: the drive may be slower
/// than whoever asks believes, and he may have other things to do.
const LONGEST_SERIES: Duration = Duration::from_millis(500);

/// The magic numbers of btrfs and ext4 (include/uapi/linux/magic.h).
const BTRFS: u64 = 0x9123_683e;
const EXT4: u64 = 0xef53;

/// Trims one after the other, and how they ended.
#[derive(Debug)]
pub struct Series {
    /// The ranges that were trimmed.
    pub trimmed: ExtentSet,
    /// How long that held the devices.
    pub took: Duration,
    /// Why it ended before all was trimmed, if not for the time that it took. Some of the range that was
    /// refused may have been discarded.
    pub outcome: Result<(), TrimError>,
}

impl Series {
    /// Calls `trim`, which returns how long that held the devices, for each of `ranges` in order of address,
    /// until it fails or that has taken too long.
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
            if series.took.max(begun.elapsed()) >= LONGEST_SERIES {
                break;
            }
        }
        series
    }

    /// One of which nothing counts as trimmed, for this reason.
    pub fn refused(error: TrimError) -> Self {
        Self { trimmed: ExtentSet::new(), took: Duration::ZERO, outcome: Err(error) }
    }
}

/// A file system that can be trimmed, and what its devices count. Faults are other implementations.
pub trait Trims {
    /// Asks the file system to discard its free space within each of `ranges` of its trim address space,
    /// leaving out free pieces shorter than `minimum`, and waits each time until the devices have done so.
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> Series;

    /// What has to be named for a trim to reach `extents`, and what that then reaches. btrfs passes over a
    /// chunk that a range begins inside of, so that it takes whole ones; ext4 goes on to the end of the free
    /// extent that a range ends inside of, so that one trim takes all that is in it.
    ///
    /// # Errors
    /// [`TrimError::Trim`].
    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
        Ok(extents)
    }

    /// What the file system's own devices have discarded so far, and what was read from and written to
    /// the whole disks they are on.
    ///
    /// # Errors
    /// [`BlockError`], such as of a device that is gone.
    fn counters(&mut self) -> Result<BlockCounters, BlockError>;

    /// How much of the file system is free; zero where it doesn't say.
    fn free(&mut self) -> Bytes;
}

/// The real ones: FITRIM, and `/sys/block/*/stat`.
#[derive(Debug, Clone)]
pub struct MountedTrims {
    mount: PathBuf,
    devices: Vec<BlockDevice>,
    disks: Vec<BlockDevice>,
}

impl MountedTrims {
    /// Those of the file system that is mounted at `mount` from `devices`.
    pub fn new(mount: PathBuf, devices: Vec<BlockDevice>) -> Self {
        let mut disks: Vec<BlockDevice> = Vec::new();
        for disk in devices.iter().map(BlockDevice::whole) {
            if !disks.contains(&disk) {
                disks.push(disk);
            }
        }
        Self { mount, devices, disks }
    }

    /// Where the file system is mounted.
    pub fn mount(&self) -> &Path {
        &self.mount
    }

    fn reach(&self, mut extents: ExtentSet) -> io::Result<ExtentSet> {
        match (rustix::fs::statfs(&self.mount)?.f_type as u64, self.devices.as_slice()) {
            (BTRFS, _) => {
                let root = open_of(&self.mount, &self.devices)?;
                for chunk in chunks(&root)?.into_iter().map(|chunk| chunk.extent) {
                    if extents.inside(chunk).next().is_some() {
                        extents.insert(chunk);
                    }
                }
            }
            (EXT4, [device]) => {
                let root = open_of(&self.mount, &self.devices)?;
                // A service may trim a file system whose device it may not read.
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

    /// Its devices' and disks' counters, open.
    fn counting(&self) -> Result<Counting<'_>, BlockError> {
        let parts = self.devices.iter().filter(|device| !self.disks.contains(device));
        let counted = parts.chain(&self.disks).map(|device| {
            Ok(Counted {
                stat: device.stat()?,
                is_own: self.devices.contains(device),
                is_disk: self.disks.contains(device),
            })
        });
        counted.collect::<Result<_, _>>().map(Counting)
    }
}

/// The counters of devices, open to be read again and again.
struct Counting<'a>(Vec<Counted<'a>>);

struct Counted<'a> {
    stat: StatFile<'a>,
    /// Whether the file system is on it.
    is_own: bool,
    /// Whether it is a whole disk.
    is_disk: bool,
}

impl Counting<'_> {
    fn read(&self) -> Result<BlockCounters, BlockError> {
        let mut all = BlockCounters::default();
        for Counted { stat, is_own, is_disk } in &self.0 {
            let counters = stat.read()?;
            if *is_own {
                all.discards += counters.discards;
                all.discard_bytes += counters.discard_bytes;
            }
            if *is_disk {
                all.reads += counters.reads;
                all.read_bytes += counters.read_bytes;
                all.read_time += counters.read_time;
                all.writes += counters.writes;
                all.write_bytes += counters.write_bytes;
                all.write_time += counters.write_time;
                all.in_flight += counters.in_flight;
            }
        }
        Ok(all)
    }

    /// Waits until no discard is under way; returns when the last one ended. XFS sends discards and doesn't
    /// wait for them.
    fn settle(&self) -> Result<Instant, BlockError> {
        let mut counters = self.read()?;
        let mut changed = Instant::now();
        while counters.in_flight > 0 && changed.elapsed() < STANDSTILL {
            thread::sleep(GLANCE);
            let now = self.read()?;
            if now.discards != counters.discards || now.in_flight == 0 {
                changed = Instant::now();
            }
            counters = now;
        }
        Ok(changed)
    }
}

impl Trims for MountedTrims {
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> Series {
        let lost = |error| TrimError::Trim { mount: self.mount.clone(), source: io::Error::other(error) };
        let open = || Ok((Trimming::begin(&self.mount, &self.devices)?, self.counting().map_err(lost)?));
        let (trimming, counting) = match open() {
            Ok(open) => open,
            Err(error) => return Series::refused(error),
        };
        Series::of(&ranges, |range| {
            let begun = Instant::now();
            trimming.trim(range, minimum)?;
            let ended = counting.settle().map_err(lost)?;
            Ok(ended.duration_since(begun))
        })
    }

    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
        self.reach(extents).map_err(|source| TrimError::Trim { mount: self.mount.clone(), source })
    }

    fn counters(&mut self) -> Result<BlockCounters, BlockError> {
        self.counting()?.read()
    }

    fn free(&mut self) -> Bytes {
        let found = rustix::fs::statvfs(&self.mount);
        found.map_or(Bytes::ZERO, |found| Bytes(found.f_bfree * found.f_frsize))
    }
}
