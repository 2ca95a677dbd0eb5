//! The free space of a file system, extent by extent, in the addresses that it is trimmed by.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use trimtab_core::stats::SizeHistogram;
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::DeviceNumber;
use trimtab_linux::ext4::{self, Groups};
use trimtab_linux::{btrfs, ioctl};

/// What share of the free bytes a trim that is sparing with commands still covers, as xfs_scrub has it.
const COVERED: f64 = 0.99;
/// Extents from this length on are never left out: few are short beside it where 99 % of the space is long,
/// and one from which a file took a part meanwhile is still found.
const LONG: Bytes = Bytes::MIB;

/// The free extents of a file system, in order of address, each as it is discarded: those of ext4 end with
/// their group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FreeSpace {
    extents: Vec<Extent>,
}

/// Why a file system doesn't tell its free space.
#[derive(Debug, thiserror::Error)]
pub enum FreeSpaceError {
    /// It has no way to.
    #[error("this file system doesn't tell where its free space is")]
    Unsupported,
    /// The kernel refused.
    #[error("cannot read the map of free space")]
    Read(#[from] io::Error),
}

/// How a file system's trim addresses are divided, which decides where a trim can be cut in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Division {
    /// ext4: a free extent is trimmed whole where it begins in the range, and a group that is trimmed whole
    /// is passed over until something in it is freed.
    Groups(Groups),
    /// btrfs: a range that begins inside a chunk passes over it.
    Chunks(Vec<Extent>),
    /// XFS: wherever. Whether a free extent that is in the range only in part is trimmed only there, as
    /// from Linux 6.11 on.
    Anywhere {
        /// Whether it can be cut inside of free extents.
        inside_extents: bool,
    },
    /// Not known.
    Unknown,
}

impl Division {
    /// That of the file system named `fstype` that holds the open `directory`, on the device at the path
    /// `device`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of(fstype: &str, directory: &File, device: &Path) -> io::Result<Self> {
        Ok(match fstype {
            // A service may trim a file system whose device it may not read.
            "ext2" | "ext3" | "ext4" => {
                ext4::groups(device).ok().flatten().map_or(Self::Unknown, Self::Groups)
            }
            "btrfs" => {
                Self::Chunks(btrfs::chunks(directory)?.into_iter().map(|chunk| chunk.extent).collect())
            }
            "xfs" => {
                let release = rustix::system::uname().release().to_string_lossy().into_owned();
                Self::Anywhere { inside_extents: is_at_least(&release, (6, 11)) }
            }
            _ => Self::Unknown,
        })
    }
}

/// Whether a kernel's release, such as `6.12.3-arch1`, is at least `wanted`.
fn is_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|found| found >= wanted)
}

impl FreeSpace {
    /// The free space of the ext4 or XFS that holds the open `directory` on the device numbered `device`;
    /// another device of it, as XFS has for its log or for real-time files, is left out.
    ///
    /// # Errors
    /// [`FreeSpaceError`].
    pub fn read(directory: &File, device: DeviceNumber, division: &Division) -> Result<Self, FreeSpaceError> {
        Self::told(ioctl::free_space(directory), device, division)
    }

    /// That of an ext4 with such groups around `wanted`: from each of these to the end of its group.
    ///
    /// # Errors
    /// [`FreeSpaceError`].
    pub fn around(
        wanted: &ExtentSet,
        directory: &File,
        device: DeviceNumber,
        groups: Groups,
    ) -> Result<Self, FreeSpaceError> {
        let division = Division::Groups(groups);
        let mut around = Self::default();
        let mut end = Bytes::ZERO;
        for extent in wanted.iter() {
            let start = extent.start.max(end);
            if start < extent.end {
                end = groups.at(Bytes(extent.end.0 - 1)).end;
                let range = Extent::new(start, end);
                let found =
                    Self::told(ioctl::free_space_within(directory, device, range), device, &division)?;
                around.extents.extend(found.within(range).extents);
            }
        }
        Ok(around)
    }

    fn told(
        found: rustix::io::Result<Vec<ioctl::FreeSpace>>,
        device: DeviceNumber,
        division: &Division,
    ) -> Result<Self, FreeSpaceError> {
        let found = found.map_err(|errno| match errno {
            Errno::OPNOTSUPP | Errno::NOTTY => FreeSpaceError::Unsupported,
            errno => FreeSpaceError::Read(errno.into()),
        })?;
        let is_here = |number: u32| {
            let number = u64::from(number);
            (rustix::fs::major(number), rustix::fs::minor(number)) == (device.major, device.minor)
        };
        let extents = found.into_iter().filter(|free| is_here(free.device)).map(|free| free.extent);
        Ok(Self::new(extents.collect(), division))
    }

    /// These free extents, cut as the file system cuts them.
    pub fn new(mut extents: Vec<Extent>, division: &Division) -> Self {
        extents.retain(|extent| !extent.is_empty());
        extents.sort_unstable();
        if let Division::Groups(groups) = division {
            extents = extents.into_iter().flat_map(|extent| by_group(groups, extent)).collect();
        }
        Self { extents }
    }

    /// What of it lies within `range`.
    pub fn within(&self, range: Extent) -> Self {
        let first = self.extents.partition_point(|extent| extent.end <= range.start);
        let inside = self.extents[first..].iter().take_while(|extent| extent.start < range.end);
        Self { extents: inside.map(|extent| extent.intersect(range)).collect() }
    }

    /// What trims of `wanted` discard where they go on to the end of each free extent that they begin in, as
    /// those of ext4 do; and what of `wanted` isn't free.
    pub fn reached_from(&self, wanted: &ExtentSet) -> ExtentSet {
        let mut reached = wanted.clone();
        for extent in &self.extents {
            if let Some(first) = wanted.inside(*extent).next() {
                reached.insert(Extent::new(first.start, extent.end));
            }
        }
        reached
    }

    /// What of it is at least `minimum` long.
    pub fn at_least(&self, minimum: Bytes) -> Self {
        Self { extents: self.extents.iter().copied().filter(|extent| extent.len() >= minimum).collect() }
    }

    /// The extents, in order of address.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// How many bytes are free.
    pub fn bytes(&self) -> Bytes {
        self.extents.iter().map(|extent| extent.len()).sum()
    }

    /// The extents by length.
    pub fn sizes(&self) -> SizeHistogram {
        let mut sizes = SizeHistogram::default();
        self.extents.iter().for_each(|extent| sizes.record(extent.len()));
        sizes
    }

    /// The shortest length that extents of it and longer ones still hold 99 % of the free bytes; at most
    /// 1 MiB.
    pub fn sparing_minimum(&self) -> Bytes {
        let mut lengths: Vec<_> = self.extents.iter().map(|extent| extent.len()).collect();
        lengths.sort_unstable_by(|one, other| other.cmp(one));
        let wanted = self.bytes().0 as f64 * COVERED;
        let mut covered = 0;
        let reached = lengths.into_iter().find(|length| {
            covered += length.0;
            covered as f64 >= wanted
        });
        reached.unwrap_or_default().min(LONG)
    }
}

/// The parts of `extent` in each group.
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
    fn a_trim_goes_on_to_the_end_of_each_free_extent_that_it_begins_in() {
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
    fn ext4_cuts_at_its_groups() {
        let free = FreeSpace::new(vec![at(50, 300), at(20, 5)], &Division::Groups(GROUPS));
        assert_eq!(free.extents(), [at(20, 5), at(50, 60), at(110, 100), at(210, 100), at(310, 40)]);
        assert_eq!(free.bytes(), Bytes(305));
        assert_eq!(free.within(at(100, 15)).extents(), [at(100, 10), at(110, 5)]);
        assert_eq!(free.at_least(Bytes(60)).extents().len(), 3);
    }

    #[test]
    fn short_extents_that_hold_little_are_left_out() {
        let of = |lengths: &[u64]| {
            let extents = lengths.iter().scan(0, |next, length| {
                let extent = at(*next, *length);
                *next += length + 1;
                Some(extent)
            });
            FreeSpace::new(extents.collect(), &Division::Unknown).sparing_minimum()
        };
        assert_eq!(of(&[]), Bytes(0));
        assert_eq!(of(&[4096]), Bytes(4096));
        assert_eq!(of(&[500_000, 500_000, 4096]), Bytes(500_000));
        assert_eq!(of(&[50_000, 50_000, 4096]), Bytes(4096));
        assert_eq!(of(&[1 << 40]), Bytes::MIB, "a part of it may be taken until it is trimmed");
    }

    #[test]
    fn kernels_are_told_apart() {
        assert!(is_at_least("6.11.0-arch1-1", (6, 11)) && is_at_least("7.0-rc1", (6, 11)));
        assert!(!is_at_least("6.1.0-40-amd64", (6, 11)) && !is_at_least("", (6, 11)));
    }

    proptest! {
        #[test]
        fn groups_change_no_byte(raw in prop::collection::vec((0..50u64, 1..400u64), 0..20)) {
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
        fn the_minimum_covers_what_it_says(lengths in prop::collection::vec(1..(4u64 << 20), 1..60)) {
            let mut next = 0;
            let extents = lengths.iter().map(|length| {
                let extent = at(next, *length);
                next += length + 1;
                extent
            });
            let free = FreeSpace::new(extents.collect(), &Division::Unknown);
            let minimum = free.sparing_minimum();
            let covered = free.at_least(minimum).bytes().0 as f64;
            prop_assert!(covered >= 0.99 * free.bytes().0 as f64);
            let longer = free.at_least(Bytes(minimum.0 + 1)).bytes().0 as f64;
            prop_assert!(minimum == LONG || longer < 0.99 * free.bytes().0 as f64);
        }
    }
}
