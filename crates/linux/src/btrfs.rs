//! btrfs' devices and chunks, and what it shows of its own delayed discards.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::{fs, io};

use trimtab_core::{Bytes, Extent};

use crate::ioctl::{self, ChunkItem};
use crate::mount;

/// Its number in `f_type` of statfs (`BTRFS_SUPER_MAGIC` of linux/magic.h).
pub const MAGIC: i64 = 0x9123_683e;

/// Profiles of which each device holds whole copies, so that a chunk's bytes lie as they do in the
/// chunk; the others are striped.
const SINGLE_OR_COPIES: u64 = RAID1 | DUP | RAID1C3 | RAID1C4;
const RAID0: u64 = 1 << 3;
const RAID1: u64 = 1 << 4;
const DUP: u64 = 1 << 5;
const RAID10: u64 = 1 << 6;
const RAID5: u64 = 1 << 7;
const RAID6: u64 = 1 << 8;
const RAID1C3: u64 = 1 << 9;
const RAID1C4: u64 = 1 << 10;
const PROFILES: u64 = SINGLE_OR_COPIES | RAID0 | RAID10 | RAID5 | RAID6;

/// A chunk: where a range of logical addresses is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Its logical addresses.
    pub extent: Extent,
    /// Device and first byte of each copy; none where the chunk is striped.
    pub copies: Option<Vec<(u64, Bytes)>>,
}

/// The chunks of the mounted btrfs that holds `directory`.
///
/// # Errors
/// The kernel's error, such as `EPERM` without `CAP_SYS_ADMIN`.
pub fn chunks(directory: impl AsFd) -> io::Result<Vec<Chunk>> {
    Ok(ioctl::btrfs_chunks(directory)?.iter().filter_map(Chunk::parse).collect())
}

impl Chunk {
    /// Reads a `struct btrfs_chunk` and its stripes.
    fn parse(item: &ChunkItem) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(*item.bytes.get(at..)?.first_chunk()?));
        let (length, profile) = (number(0)?, number(24)? & PROFILES);
        let extent = Extent::new(Bytes(item.logical), Bytes(item.logical.checked_add(length)?));
        let stripes = usize::from(u16::from_le_bytes(*item.bytes.get(44..)?.first_chunk()?));
        let stripe = |index: usize| {
            let (device, start) = (number(48 + index * 32)?, number(56 + index * 32)?);
            start.checked_add(length)?;
            Some((device, Bytes(start)))
        };
        let copies = match profile & !SINGLE_OR_COPIES {
            0 => Some((0..stripes).map(stripe).collect::<Option<Vec<_>>>()?),
            _ => None,
        };
        Some(Self { extent, copies })
    }
}

/// Returns the directory of `sysfs` for the mounted btrfs with this identifier.
pub fn directory(sysfs: &Path, id: &[u8; 16]) -> PathBuf {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let hyphenated = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    sysfs.join("fs/btrfs").join(hyphenated)
}

/// Returns the directory of `sysfs` for the btrfs mounted at `target`.
///
/// # Errors
/// The kernel's error, such as `ENOTTY` if another file system is mounted there.
pub fn directory_of(sysfs: &Path, target: &Path) -> io::Result<PathBuf> {
    Ok(directory(sysfs, &ioctl::btrfs_id(mount::open_apart(target)?)?))
}

/// The delayed discards of a mounted btrfs, as the directory `discard` of its directory in sysfs shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnDiscards {
    /// Bytes that wait for their discard.
    pub discardable: Bytes,
    /// Extents that wait for their discard.
    pub discardable_extents: u64,
    /// Bytes discarded since the mount that were free as whole extents.
    pub discarded_extents: Bytes,
    /// Bytes discarded since the mount that were free in bitmaps.
    pub discarded_bitmaps: Bytes,
    /// Bytes that were used again before their discard, since the mount.
    pub saved: Bytes,
}

impl OwnDiscards {
    /// Reads those of the btrfs whose directory in sysfs is `directory`; none if a file is missing, as in
    /// kernels before 6.1. See the kernel's `fs/btrfs/sysfs.c`.
    pub fn read(directory: &Path) -> Option<Self> {
        // The kernel's counters of what waits are signed.
        let number = |name: &str| -> Option<u64> {
            let text = fs::read_to_string(directory.join("discard").join(name)).ok()?;
            Some(u64::try_from(text.trim().parse::<i64>().ok()?).unwrap_or(0))
        };
        Some(Self {
            discardable: Bytes(number("discardable_bytes")?),
            discardable_extents: number("discardable_extents")?,
            discarded_extents: Bytes(number("discard_extent_bytes")?),
            discarded_bitmaps: Bytes(number("discard_bitmap_bytes")?),
            saved: Bytes(number("discard_bytes_saved")?),
        })
    }
}

/// The names of all devices of the mounted btrfs that the device named `name` belongs to; none where
/// it belongs to none. `sysfs` is where sysfs is mounted.
pub fn member_names(sysfs: &Path, name: &str) -> Vec<String> {
    let Ok(file_systems) = fs::read_dir(sysfs.join("fs/btrfs")) else { return Vec::new() };
    let mut lists = file_systems.flatten().map(|entry| entry.path().join("devices"));
    let ours = lists.find(|list| list.join(name).exists()).and_then(|list| fs::read_dir(list).ok());
    let names = ours.into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn copies_of_a_chunk_are_as_long_as_the_chunk(
            logical: u64, mut bytes in proptest::collection::vec(any::<u8>(), 0..200), stripes in 0..4_u8,
        ) {
            if let Some(count) = bytes.get_mut(44..46) {
                count.copy_from_slice(&[stripes, 0]);
            }
            if let Some(chunk) = Chunk::parse(&ChunkItem { logical, bytes }) {
                let copies = chunk.copies.unwrap_or_default();
                prop_assert!(copies.len() <= 3);
                prop_assert!(copies.iter().all(|(_, at)| at.0.checked_add(chunk.extent.len().0).is_some()));
            }
        }
    }

    #[test]
    fn identifiers_are_written_as_sysfs_does() {
        let id = std::array::from_fn(|byte| byte as u8 * 17);
        let expected = Path::new("/sys/fs/btrfs/00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(directory(Path::new("/sys"), &id), expected);
    }

    #[test]
    fn own_discards_are_read_and_negative_counters_are_zero() {
        let directory = tempfile::tempdir().unwrap();
        let discard = directory.path().join("discard");
        fs::create_dir(&discard).unwrap();
        for (name, value) in [
            ("discardable_bytes", "8192"),
            ("discardable_extents", "-1"),
            ("discard_extent_bytes", "5"),
            ("discard_bitmap_bytes", "6"),
        ] {
            fs::write(discard.join(name), format!("{value}\n")).unwrap();
        }
        assert_eq!(OwnDiscards::read(directory.path()), None);
        fs::write(discard.join("discard_bytes_saved"), "7\n").unwrap();
        let expected = OwnDiscards {
            discardable: Bytes(8192),
            discardable_extents: 0,
            discarded_extents: Bytes(5),
            discarded_bitmaps: Bytes(6),
            saved: Bytes(7),
        };
        assert_eq!(OwnDiscards::read(directory.path()), Some(expected));
    }
}
