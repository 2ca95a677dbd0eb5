//! Trims of one mounted file system, and the counters of its devices.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use trimtab_core::policy::LONGEST_TRIM;
use trimtab_core::{Bytes, DiscardUnits, Extent, ExtentSet};
use trimtab_linux::block::{BlockDevice, BlockError};
use trimtab_linux::btrfs::{self, Chunk, chunks};
use trimtab_linux::ext4::MAGIC as EXT4;
use trimtab_linux::forked::{Ender, has_closed};
use trimtab_linux::trim::{Done, EVERYTHING, TrimError, TrimProcess};

use crate::free_space::windows::{self, Freshness, Windows};
use crate::free_space::{Division, FreeSpace, Opener};
use chunk_limits::{DiscardCost, LONGEST_CALL, NotNow};
use pieces::{Cuts, Cutter, Piece, PieceLength};

mod chunk_limits;
mod counters;
mod pieces;
mod series;
mod units;

pub use counters::Counters;
use counters::{DeviceCounters, OpenCounters};
use series::Called;
pub use series::TrimSeries;
pub use units::units_of;

/// After a call of FITRIM that took so long, the next one waits for a moment.
const LONG_CALL: Duration = Duration::from_millis(20);
const GAP: Duration = Duration::from_millis(10);

/// The magic number of XFS (include/uapi/linux/magic.h).
const XFS: i64 = 0x5846_5342;
/// The magic number of a file system that a program serves (include/uapi/linux/magic.h).
const FUSE: i64 = 0x6573_5546;

/// Trims a file system and reads the counters of its devices. Tests implement it to
/// inject faults.
pub trait Trimmer {
    /// Asks the file system to discard its free extents of at least `minimum` within each of `ranges` (trim
    /// addresses), and waits each time until the devices have done so.
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> TrimSeries;

    /// Widens `extents` to the ranges that FITRIM must be given; everything in the result is discarded. btrfs
    /// skips a chunk if a range begins inside it, so whole chunks are needed. ext4 continues to the end of
    /// the free extent in which a range ends, so one trim covers all of that extent. Others get whole units of their device.
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

    /// The file system freed `extent`.
    fn freed(&mut self, _extent: Extent) {}

    /// Returns the parts of `extents` that are free by a map of this freshness; `None` if the file system doesn't tell.
    fn free_within(&mut self, _extents: &ExtentSet, _freshness: Freshness) -> Option<ExtentSet> {
        None
    }
}

/// Trims with FITRIM in a process of its own, and reads `/sys/block/*/stat`. Clones share what ends their trims.
#[derive(Debug, Clone)]
pub struct MountedTrimmer {
    mount: PathBuf,
    devices: Vec<BlockDevice>,
    disks: Vec<BlockDevice>,
    /// The devices whose counters count its discards: its own, or those below that count for them.
    counting: Vec<BlockDevice>,
    /// The units in which its device takes discards.
    units: DiscardUnits,
    ender: Ender,
    cost: DiscardCost,
    length: PieceLength,
    /// How long a series may take; none for no limit.
    longest: Option<Duration>,
    /// Its free space, as far as it is known.
    windows: Windows,
    /// The stream to a process that waits until the file system is thawed.
    waiting: Arc<Mutex<Option<UnixStream>>>,
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
        let counted_by = |device: &BlockDevice| device.counted_by().unwrap_or_else(|| vec![device.clone()]);
        let counting = devices.iter().flat_map(counted_by).collect();
        let units = units_of(&devices);
        Self {
            mount,
            devices,
            disks,
            counting,
            units,
            ender: Ender::default(),
            cost: DiscardCost::default(),
            length: PieceLength::default(),
            longest: None,
            windows: Windows::default(),
            waiting: Arc::default(),
        }
    }

    /// Returns this trimmer, whose trims `ender` can end, and whose series end when they have taken as long as the service allows.
    pub fn for_service(self, ender: &Ender) -> Self {
        Self { ender: ender.clone(), longest: Some(LONGEST_TRIM), ..self }
    }

    /// Returns whether a call of FITRIM, which was killed, still waits for the thaw of the file system and keeps it in use.
    pub fn waits_for_thaw(&self) -> bool {
        // A trim under way holds the lock.
        let waiting = self.waiting.try_lock();
        waiting.is_ok_and(|waiting| waiting.as_ref().is_some_and(|waiting| !has_closed(waiting)))
    }

    /// Returns `other` at the mount point and on the devices of this trimmer of the same file system: what ends its trims, limits
    /// them, and what it learned stays.
    pub fn after(self, other: &Self) -> Self {
        let Self { mount, devices, disks, counting, units, .. } = self;
        Self { mount, devices, disks, counting, units, ..other.clone() }
    }

    /// Returns what ends its trims.
    pub fn ender(&self) -> &Ender {
        &self.ender
    }

    fn opener(&self) -> Opener<'_> {
        Opener { mount: &self.mount, devices: &self.devices }
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
                for chunk in chunks(self.opener().open()?)?.into_iter().map(|chunk| chunk.extent) {
                    if extents.inside(chunk).next().is_some() {
                        extents.insert(chunk);
                    }
                }
            }
            (kind, [_, ..]) => {
                // The free rest of a unit is discarded together with it. The last unit may go on past the end, where no trim begins.
                let size = self.devices.iter().map(BlockDevice::size).sum::<Result<Bytes, _>>();
                let all = Extent::at(Bytes::ZERO, size.map_err(io::Error::other)?);
                extents = extents.iter().map(|extent| self.units.outside(extent).intersect(all)).collect();
                if let Division::Groups(groups) = self.division(kind) {
                    let to_the_end =
                        |extent: Extent| Extent::new(extent.start, groups.at(Bytes(extent.end.0 - 1)).end);
                    if let Some(free) =
                        self.free_of(&extents.iter().map(to_the_end).collect(), Freshness::Any)
                    {
                        let division = Division::Groups(groups);
                        return Ok(FreeSpace::new(free.iter().collect(), &division).reached_from(&extents));
                    }
                }
            }
            _ => {}
        }
        Ok(extents)
    }

    /// Returns the free space of an ext4 or XFS within `ranges`, as [`Windows::within`] does; `None` if it is not known.
    fn free_of(&self, ranges: &ExtentSet, freshness: Freshness) -> Option<ExtentSet> {
        let device = self.devices.first()?;
        let (number, size) = (device.number().ok()?, device.size().ok()?);
        let read = |span| FreeSpace::on_device(self.opener(), number, span);
        let length = self.opener().call_length(size, windows::SHORTEST).ok()?;
        self.windows.within(ranges, size, length, freshness, read).ok()
    }

    /// Returns which parts of `extents` are free.
    fn read_free(&self, extents: &ExtentSet, freshness: Freshness) -> Option<ExtentSet> {
        let ([_], EXT4 | XFS) = (self.devices.as_slice(), self.kind().ok()?) else { return None };
        Some(self.free_of(extents, freshness)?.intersect(extents))
    }

    /// Opens what a series of trims needs.
    fn begin(&self) -> Result<Session<'_>, TrimError> {
        let process = TrimProcess::start(&self.mount, &self.devices, &self.ender)?;
        let counters = self.open_counters().map_err(|error| self.unreadable(error))?;
        Ok(Session { process, counters, kind: self.kind().unwrap_or_default() })
    }

    fn unreadable(&self, error: BlockError) -> TrimError {
        TrimError::Trim { mount: self.mount.clone(), source: io::Error::other(error) }
    }

    /// Trims a piece in one call, which is ended after `limit`, and learns what its discards cost.
    fn call(
        &self,
        session: &Session<'_>,
        piece: Piece,
        minimum: Bytes,
        limit: Option<Duration>,
    ) -> Result<Called, TrimError> {
        let Session { process, counters, kind } = session;
        let Piece { range, extents } = piece;
        let read = || counters.read().map_err(|error| self.unreadable(error));
        let before = read()?.own;
        let called = Instant::now();
        let outcome = process.trim(range, minimum, limit);
        let begun = outcome.as_ref().map_or(called, |done| done.begun);
        // ext4 and btrfs wait for the discards that they send. XFS doesn't.
        let ended = match &outcome {
            Ok(Done { reported, .. }) if !matches!(*kind, EXT4 | btrfs::MAGIC) => {
                let all = before.discard_bytes + *reported;
                let settled = counters.settle(self.waits_for_held().then_some(all));
                settled.map_err(|error| self.unreadable(error))?
            }
            _ => Instant::now(),
        };
        let took = ended.duration_since(begun);
        let discards = read()?.own.discards.saturating_sub(before.discards);
        self.cost.learn(took, discards, extents);
        let reported = outcome?.reported;
        self.length.learn(range.len(), took, discards);
        drop(Gap(begun));
        Ok(Called::whole(range, took, reported))
    }

    /// Trims a chunk of a btrfs; returns `None` if writers need its free space, or if it would discard only what it did before, which
    /// is counted in `unchanged`.
    fn trim_chunk(
        &self,
        session: &Session<'_>,
        directory: &Path,
        chunk: &Chunk,
        minimum: Bytes,
        unchanged: &mut u32,
    ) -> Result<Option<Called>, TrimError> {
        let allowed = chunk_limits::allowed(self.opener(), directory, chunk, minimum, &self.cost);
        let allowed = match allowed.map_err(|source| TrimError::of_query(&self.mount, source))? {
            Ok(allowed) => allowed,
            Err(reason) => {
                *unchanged += u32::from(reason == NotNow::Unchanged);
                return Ok(None);
            }
        };
        let range = Extent::new(chunk.extent.start, allowed.end);
        let piece = Piece { range, extents: allowed.extents };
        let called = self.call(session, piece, allowed.minimum, allowed.limit);
        if let Err(TrimError::TooLong { .. }) = called {
            self.cost.learn_too_long();
        }
        let called = called?;
        self.cost.learn_trimmed(chunk.extent.start, &allowed);
        Ok(Some(Called { range: chunk.extent, left: allowed.left, ..called }))
    }

    /// Trims the chunks of a btrfs within `ranges`.
    fn trim_chunks(&self, session: &Session<'_>, ranges: &ExtentSet, minimum: Bytes) -> TrimSeries {
        let found = session
            .process
            .btrfs_directory()
            .and_then(|directory| Ok((directory, chunk_limits::chunks_within(self.opener(), ranges)?)));
        let (directory, chunks) = match found {
            Ok(found) => found,
            Err(source) => return TrimSeries::failed(TrimError::of_query(&self.mount, source)),
        };
        let mut unchanged = 0;
        let series = TrimSeries::of_pieces(&chunks, self.longest, |chunk| {
            self.trim_chunk(session, &directory, chunk, minimum, &mut unchanged)
        });
        if series.outcome.is_ok() && series.trimmed.is_empty() && !chunks.is_empty() {
            let mount = self.mount.clone();
            let error = if unchanged > 0 { TrimError::TooLong { mount } } else { TrimError::Full { mount } };
            return TrimSeries::failed(error);
        }
        series
    }

    /// Returns the free extents of an ext4 or XFS in `range`; `None` if they are not known.
    fn free_in(&self, range: Extent) -> Vec<Extent> {
        let free = self.free_of(&ExtentSet::from_iter([range]), Freshness::Any);
        free.map(|free| free.iter().collect()).unwrap_or_default()
    }

    /// Returns how the addresses of an ext4 or XFS are divided.
    fn division(&self, kind: i64) -> Division {
        let (fstype, device) = match (kind, self.devices.as_slice()) {
            (EXT4, [device]) => ("ext4", device),
            (XFS, [device, ..]) => ("xfs", device),
            _ => return Division::Unknown,
        };
        Division::of(fstype, self.opener(), &device.path()).unwrap_or(Division::Unknown)
    }

    /// Returns where a trim of the service can be cut. `trimtab trim` plans short slices by the map of free space.
    fn cuts(&self, kind: i64) -> Cuts {
        if self.longest.is_none() {
            return Cuts::Nowhere;
        }
        match self.division(kind) {
            Division::Groups(groups) => Cuts::Groups(groups),
            Division::Anywhere { inside_extents: true } => Cuts::Anywhere(self.length.clone()),
            _ => Cuts::Nowhere,
        }
    }

    /// Returns whether a device may hold discards back before it completes them.
    fn may_hold(&self) -> bool {
        self.disks.iter().any(|disk| disk.name().starts_with("dm-"))
    }

    /// Returns whether to wait for such a device. The service doesn't: it has no time for that, and counts later.
    fn waits_for_held(&self) -> bool {
        self.longest.is_none() && self.may_hold()
    }

    /// Returns how many of the `reported` bytes of a series that began with these counters are not counted yet.
    fn held(&self, session: &Session<'_>, begun: Counters, reported: Bytes) -> Bytes {
        match session.counters.read() {
            Ok(ended) if self.may_hold() => {
                reported.saturating_sub(ended.own.discard_bytes.saturating_sub(begun.own.discard_bytes))
            }
            _ => Bytes::ZERO,
        }
    }

    /// Opens the counters of its devices and disks.
    fn open_counters(&self) -> Result<OpenCounters<'_>, BlockError> {
        let elsewhere = self.counting.iter().filter(|device| !self.devices.contains(device));
        let parts = self.devices.iter().filter(|device| !self.disks.contains(device));
        let others = elsewhere.filter(|device| !self.disks.contains(device));
        let counted = parts.chain(&self.disks).chain(others).map(|device| {
            Ok(DeviceCounters {
                stat: device.stat()?,
                is_own: self.devices.contains(device),
                is_counting: self.counting.contains(device),
                is_disk: self.disks.contains(device),
            })
        });
        counted.collect::<Result<_, _>>().map(OpenCounters)
    }
}

/// The files that a series of trims has open.
struct Session<'a> {
    process: TrimProcess<'a>,
    counters: OpenCounters<'a>,
    /// The magic number of the file system.
    kind: i64,
}

/// A call of FITRIM that began then. When this is dropped after a long one, nothing is called for a moment, so that whoever tries
/// to unmount the file system again and again can do so between two calls.
struct Gap(Instant);

impl Drop for Gap {
    fn drop(&mut self) {
        if self.0.elapsed() >= LONG_CALL {
            thread::sleep(GAP);
        }
    }
}

impl Trimmer for MountedTrimmer {
    fn trim(&mut self, ranges: ExtentSet, minimum: Bytes) -> TrimSeries {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.take_if(|waiting| has_closed(waiting)).is_none() && waiting.is_some() {
            return TrimSeries::failed(TrimError::Frozen { mount: self.mount.clone() });
        }
        let session = match self.begin() {
            Ok(session) => session,
            Err(error) => return TrimSeries::failed(error),
        };
        let begun = session.counters.read().unwrap_or_default();
        // Who asks for a trim gets all of it, as from fstrim.
        let series = if session.kind == btrfs::MAGIC && self.longest.is_some() {
            self.trim_chunks(&session, &ranges, minimum)
        } else if session.kind == FUSE && self.longest.is_some() {
            // ntfs-3g takes nothing but a trim of everything, without a least length. A range that a user asks for is not widened.
            let piece = (!ranges.is_empty()).then_some(Piece { range: EVERYTHING, extents: 1 });
            TrimSeries::of_pieces(piece, self.longest, |piece| {
                self.call(&session, piece, Bytes::ZERO, None).map(Some)
            })
        } else {
            let free_in = |range| self.free_in(range);
            let cuts = self.cuts(session.kind);
            let cutter = Cutter { cuts, minimum, units: self.units, cost: &self.cost, free_in: &free_in };
            TrimSeries::of_pieces(cutter.pieces(&ranges), self.longest, |piece| {
                let limit = (piece.extents > 1).then_some(LONGEST_CALL);
                self.call(&session, piece, minimum, limit).map(Some)
            })
        };
        let held = self.held(&session, begun, series.reported);
        let series = TrimSeries { held, ..series };
        if let Err(TrimError::Frozen { .. }) = series.outcome {
            *waiting = session.process.abandon();
        }
        series
    }

    fn reaching(&mut self, extents: ExtentSet) -> Result<ExtentSet, TrimError> {
        self.reach(extents).map_err(|source| TrimError::of_query(&self.mount, source))
    }

    fn counters(&mut self) -> Result<Counters, BlockError> {
        self.open_counters()?.read()
    }

    fn free(&mut self) -> Bytes {
        let found = rustix::fs::statvfs(&self.mount);
        found.map_or(Bytes::ZERO, |found| Bytes(found.f_bfree * found.f_frsize))
    }

    fn freed(&mut self, extent: Extent) {
        self.windows.freed(extent);
    }

    fn free_within(&mut self, extents: &ExtentSet, freshness: Freshness) -> Option<ExtentSet> {
        self.read_free(extents, freshness)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A sysfs with two disks. Each was busy for 1 s, wrote 1 MiB in one request and discarded 2 MiB in two.
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

    #[test]
    fn another_mount_keeps_the_limits_of_the_service() {
        let service = MountedTrimmer::new("/a".into(), Vec::new()).for_service(&Ender::default());
        let moved = MountedTrimmer::new("/b".into(), Vec::new()).after(&service);
        assert_eq!((moved.mount(), moved.longest), (Path::new("/b"), Some(LONGEST_TRIM)));
    }
}
