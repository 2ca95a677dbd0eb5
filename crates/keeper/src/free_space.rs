//! The free extents of a file system in trim addresses.

pub mod windows;

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use trimtab_core::stats::SizeHistogram;
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::{BlockDevice, DeviceNumber};
use trimtab_linux::ext4::{self, Groups};
use trimtab_linux::mount::open_of;
use trimtab_linux::{btrfs, environment, ioctl};

/// The share of the free bytes that the default minimum covers, as in xfs_scrub.
const COVERED: f64 = 0.99;
/// The highest default minimum. Skipping more saves few commands, and an extent that a file partly took
/// meanwhile is still trimmed.
const MAX_MINIMUM: Bytes = Bytes::MIB;

/// The part of a device whose free space one call reads, but on a large ext4 ([`Opener::call_length`]): the file system can't be
/// unmounted during a call.
const SPAN: Bytes = Bytes(8 << 30);

/// A mounted file system that is opened for the length of one call, so that it can be unmounted between two.
#[derive(Debug, Clone, Copy)]
pub struct Opener<'a> {
    /// The mount point.
    pub mount: &'a Path,
    /// The devices that it is mounted from.
    pub devices: &'a [BlockDevice],
}

impl Opener<'_> {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel's error, or another if another file system is mounted there by now.
    pub fn open(&self) -> io::Result<File> {
        open_of(self.mount, self.devices)
    }

    /// Returns the length of the part of a device of `size` whose free space one call reads: `shortest`, or more on a large ext4,
    /// where a call takes long whatever its range; see [`windows`].
    ///
    /// # Errors
    /// The kernel's error if nothing is mounted there.
    pub fn call_length(&self, size: Bytes, shortest: Bytes) -> io::Result<Bytes> {
        let is_ext4 = rustix::fs::statfs(self.mount)?.f_type == ext4::MAGIC;
        Ok(if is_ext4 { windows::length(size, shortest) } else { shortest })
    }
}

/// The free extents of a file system in order of address. Those of ext4 are split at group boundaries,
/// because it discards them so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FreeSpace {
    extents: Vec<Extent>,
}

/// Why the free space of a file system can't be read.
#[derive(Debug, thiserror::Error)]
pub enum FreeSpaceError {
    /// The file system has no interface for it.
    #[error("this file system doesn't report where its free space is")]
    Unsupported,
    /// The query failed.
    #[error("cannot read the map of free space")]
    Read(#[from] io::Error),
}

/// How the trim addresses of a file system are divided, which decides where a trim can be split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Division {
    /// ext4: a free extent that begins in the range is trimmed to its end, and a fully trimmed group is
    /// skipped until something in it is freed.
    Groups(Groups),
    /// btrfs: a chunk is skipped if a range begins inside it.
    Chunks(Vec<Extent>),
    /// XFS: a trim can be split anywhere between free extents.
    Anywhere {
        /// Whether it can also be split inside free extents, as from Linux 6.11 on.
        inside_extents: bool,
    },
    /// A FUSE file system on a device, such as ntfs-3g: only a trim of everything is taken.
    Whole,
    /// Unknown.
    Unknown,
}

impl Division {
    /// Returns the division of a file system of type `fstype`, whose first device is at the path `device`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn of(fstype: &str, opener: Opener<'_>, device: &Path) -> io::Result<Self> {
        Ok(match fstype {
            // The service may lack the right to read the device.
            "ext2" | "ext3" | "ext4" => {
                ext4::groups(device).ok().flatten().map_or(Self::Unknown, Self::Groups)
            }
            "btrfs" => {
                Self::Chunks(btrfs::chunks(opener.open()?)?.into_iter().map(|chunk| chunk.extent).collect())
            }
            "xfs" => Self::Anywhere { inside_extents: environment::kernel_is_at_least((6, 11)) },
            "fuseblk" => Self::Whole,
            _ => Self::Unknown,
        })
    }
}

impl FreeSpace {
    /// Reads the free space of an ext4 or XFS on its first device, in several calls. Other devices of the file system, such
    /// as the log or real-time device of XFS, are not included.
    ///
    /// # Errors
    /// [`FreeSpaceError`].
    pub fn read(opener: Opener<'_>, division: &Division) -> Result<Self, FreeSpaceError> {
        let device = opener.devices.first().ok_or(FreeSpaceError::Unsupported)?;
        let size = device.size().map_err(io::Error::other)?;
        let number = device.number().map_err(io::Error::other)?;
        let span = opener.call_length(size, SPAN)?;
        let mut free = ExtentSet::new();
        let mut start = Bytes::ZERO;
        while start < size {
            let end = size.min(Bytes(start.0.saturating_add(span.0)));
            let found = Self::on_device(opener, number, Extent::new(start, end))?;
            found.extents.iter().for_each(|extent| free.insert(*extent));
            start = end;
        }
        Ok(Self::new(free.iter().collect(), division))
    }

    /// Reads the free space of an ext4 or XFS that is on `device`, within `range`, in one call.
    ///
    /// # Errors
    /// [`FreeSpaceError`].
    pub fn on_device(
        opener: Opener<'_>,
        device: DeviceNumber,
        range: Extent,
    ) -> Result<Self, FreeSpaceError> {
        let is_here = |number: u32| {
            let number = u64::from(number);
            (rustix::fs::major(number), rustix::fs::minor(number)) == (device.major, device.minor)
        };
        let found = ioctl::free_space_within(opener.open()?, device, range).map_err(|errno| match errno {
            // ntfs-3g answers all that it does not know with EINVAL.
            Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL => FreeSpaceError::Unsupported,
            errno => FreeSpaceError::Read(errno.into()),
        })?;
        // The kernel may return whole extents that lie only partly in the range.
        let inside =
            found.into_iter().filter(|free| is_here(free.device)).map(|free| free.extent.intersect(range));
        let free: ExtentSet = inside.filter(|extent| !extent.is_empty()).collect();
        Ok(Self { extents: free.iter().collect() })
    }

    /// Returns these free extents, split as `division` says.
    pub fn new(mut extents: Vec<Extent>, division: &Division) -> Self {
        extents.retain(|extent| !extent.is_empty());
        extents.sort_unstable();
        if let Division::Groups(groups) = division {
            extents = extents.into_iter().flat_map(|extent| by_group(groups, extent)).collect();
        }
        Self { extents }
    }

    /// Returns the part within `range`.
    pub fn within(&self, range: Extent) -> Self {
        let first = self.extents.partition_point(|extent| extent.end <= range.start);
        let inside = self.extents[first..].iter().take_while(|extent| extent.start < range.end);
        Self { extents: inside.map(|extent| extent.intersect(range)).collect() }
    }

    /// Returns what a trim of `range` discards where the file system divides its addresses by `division`: ext4 goes on to the end
    /// of the free extent in which the range ends, XFS before Linux 6.11 takes every extent that overlaps the range.
    pub fn discarded_by(&self, range: Extent, division: &Division) -> Self {
        let touched = self.extents.iter().filter(|free| free.start < range.end && free.end > range.start);
        let reached = |free: &Extent| match division {
            Division::Groups(_) => Extent::new(free.start.max(range.start), free.end),
            Division::Anywhere { inside_extents: false } => *free,
            _ => free.intersect(range),
        };
        Self { extents: touched.map(reached).collect() }
    }

    /// Returns what trims of `wanted` cover if they continue to the end of each free extent that they begin
    /// in, as on ext4; includes the parts of `wanted` that are not free.
    pub fn reached_from(&self, wanted: &ExtentSet) -> ExtentSet {
        let mut reached = wanted.clone();
        for extent in &self.extents {
            if let Some(first) = wanted.inside(*extent).next() {
                reached.insert(Extent::new(first.start, extent.end));
            }
        }
        reached
    }

    /// Returns the extents of at least `minimum`.
    pub fn at_least(&self, minimum: Bytes) -> Self {
        Self { extents: self.extents.iter().copied().filter(|extent| extent.len() >= minimum).collect() }
    }

    /// Returns the extents in order of address.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Returns the number of free bytes.
    pub fn bytes(&self) -> Bytes {
        self.extents.iter().map(|extent| extent.len()).sum()
    }

    /// Returns a histogram of the lengths.
    pub fn sizes(&self) -> SizeHistogram {
        let mut sizes = SizeHistogram::default();
        self.extents.iter().for_each(|extent| sizes.record(extent.len()));
        sizes
    }

    /// Returns the default minimum: the longest length for which the extents of at least that length hold 99
    /// % of the free bytes; at most 1 MiB.
    pub fn default_minimum(&self) -> Bytes {
        let mut lengths: Vec<_> = self.extents.iter().map(|extent| extent.len()).collect();
        lengths.sort_unstable_by(|one, other| other.cmp(one));
        let wanted = self.bytes().0 as f64 * COVERED;
        let mut covered = 0;
        let reached = lengths.into_iter().find(|length| {
            covered += length.0;
            covered as f64 >= wanted
        });
        reached.unwrap_or_default().min(MAX_MINIMUM)
    }
}

/// Splits `extent` at group boundaries.
fn by_group(groups: &Groups, extent: Extent) -> Vec<Extent> {
    let mut parts = Vec::new();
    let mut start = extent.start;
    while start < extent.end {
        let end = groups.at(start).end.min(extent.end);
        parts.push(Extent::new(start, end));
        start = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn at(start: u64, length: u64) -> Extent {
        Extent::at(Bytes(start), Bytes(length))
    }

    const GROUPS: Groups = Groups { first: Bytes(10), length: Bytes(100) };

    #[test]
    fn ext4_trim_continues_to_the_end_of_each_free_extent() {
        let at = |start: u64, end: u64| Extent::new(Bytes(start), Bytes(end));
        let free = FreeSpace::new(vec![at(10, 20), at(30, 60), at(70, 80)], &Division::Unknown);
        let reached = |wanted: &[Extent]| -> Vec<_> {
            free.reached_from(&wanted.iter().copied().collect()).iter().collect()
        };
        assert_eq!(reached(&[at(40, 42), at(50, 52), at(78, 80)]), [at(40, 60), at(78, 80)]);
        assert_eq!(reached(&[at(12, 35)]), [at(12, 60)]);
        assert_eq!(reached(&[at(22, 25)]), [at(22, 25)], "in use");
    }

    #[test]
    fn trim_of_a_range_discards_what_the_kernel_does() {
        let free = FreeSpace::new(vec![at(20, 30), at(60, 40), at(150, 40)], &Division::Unknown);
        let range = Extent::new(Bytes(30), Bytes(70));
        let discarded = |division: Division| free.discarded_by(range, &division).extents;
        assert_eq!(discarded(Division::Groups(GROUPS)), [at(30, 20), at(60, 40)], "to the end of the last");
        assert_eq!(discarded(Division::Anywhere { inside_extents: false }), [at(20, 30), at(60, 40)]);
        assert_eq!(discarded(Division::Anywhere { inside_extents: true }), [at(30, 20), at(60, 10)]);
    }

    #[test]
    fn ext4_extents_are_split_at_groups() {
        let free = FreeSpace::new(vec![at(50, 300), at(20, 5)], &Division::Groups(GROUPS));
        assert_eq!(free.extents(), [at(20, 5), at(50, 60), at(110, 100), at(210, 100), at(310, 40)]);
        assert_eq!(free.bytes(), Bytes(305));
        assert_eq!(free.within(at(100, 15)).extents(), [at(100, 10), at(110, 5)]);
        assert_eq!(free.at_least(Bytes(60)).extents().len(), 3);
    }

    #[test]
    fn default_minimum_skips_short_extents_with_few_bytes() {
        let of = |lengths: &[u64]| {
            let extents = lengths.iter().scan(0, |next, length| {
                let extent = at(*next, *length);
                *next += length + 1;
                Some(extent)
            });
            FreeSpace::new(extents.collect(), &Division::Unknown).default_minimum()
        };
        assert_eq!(of(&[]), Bytes(0));
        assert_eq!(of(&[4096]), Bytes(4096));
        assert_eq!(of(&[500_000, 500_000, 4096]), Bytes(500_000));
        assert_eq!(of(&[50_000, 50_000, 4096]), Bytes(4096));
        assert_eq!(of(&[1 << 40]), Bytes::MIB, "a part of it may be taken until it is trimmed");
    }

    proptest! {
        #[test]
        fn splitting_at_groups_keeps_all_bytes(raw in prop::collection::vec((0..50u64, 1..400u64), 0..20)) {
            let mut next = 0;
            let extents: Vec<_> = raw.iter().map(|(gap, length)| {
                let extent = at(next + gap, *length);
                next = extent.end.0 + 1;
                extent
            }).collect();
            let free = FreeSpace::new(extents.clone(), &Division::Groups(GROUPS));
            let rejoined: trimtab_core::ExtentSet = free.extents().iter().copied().collect();
            prop_assert_eq!(rejoined, extents.into_iter().collect());
            prop_assert!(free.extents().iter().all(|extent| GROUPS.at(extent.start).end >= extent.end));
        }

        #[test]
        fn default_minimum_covers_99_percent(lengths in prop::collection::vec(1..(4u64 << 20), 1..60)) {
            let mut next = 0;
            let extents = lengths.iter().map(|length| {
                let extent = at(next, *length);
                next += length + 1;
                extent
            });
            let free = FreeSpace::new(extents.collect(), &Division::Unknown);
            let minimum = free.default_minimum();
            let covered = free.at_least(minimum).bytes().0 as f64;
            prop_assert!(covered >= 0.99 * free.bytes().0 as f64);
            let longer = free.at_least(Bytes(minimum.0 + 1)).bytes().0 as f64;
            prop_assert!(minimum == MAX_MINIMUM || longer < 0.99 * free.bytes().0 as f64);
        }
    }
}
