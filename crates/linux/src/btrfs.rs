//! btrfs' devices and chunks, and what it shows of its own delayed discards.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::{fs, io};

use trimtab_core::{Bytes, Extent, ExtentSet, SECTOR};

use crate::block::BlockDevice;
use crate::ioctl::{self, TreeItem};
use crate::mount::Mount;

/// Its number in `f_type` of statfs (`BTRFS_SUPER_MAGIC` of linux/magic.h).
pub const MAGIC: i64 = 0x9123_683e;

/// Profiles that put whole copies on each device, so that a chunk's bytes lie as they do in the
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
    /// Its kind of content.
    pub kind: ChunkKind,
}

/// The kind of content of a chunk: only free space in chunks of the same kind serves the same writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkKind {
    /// Data of files.
    Data,
    /// Metadata.
    Metadata,
    /// Both.
    Mixed,
    /// The chunk tree.
    System,
}

/// Flags of what a chunk holds (`BTRFS_BLOCK_GROUP_*` of linux/btrfs_tree.h).
const DATA: u64 = 1;
const SYSTEM: u64 = 2;
const METADATA: u64 = 4;

impl ChunkKind {
    fn of(flags: u64) -> Self {
        match (flags & DATA != 0, flags & METADATA != 0) {
            (true, true) => Self::Mixed,
            (true, false) => Self::Data,
            (false, true) => Self::Metadata,
            (false, false) if flags & SYSTEM != 0 => Self::System,
            (false, false) => Self::Data,
        }
    }

    /// The name of its directory in sysfs.
    fn directory(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Metadata => "metadata",
            Self::Mixed => "mixed",
            Self::System => "system",
        }
    }
}

/// Trees, and types of items (linux/btrfs_tree.h).
const EXTENT_TREE: u64 = 2;
const CHUNK_TREE: u64 = 3;
const FREE_SPACE_TREE: u64 = 10;
const BLOCK_GROUP_TREE: u64 = 11;
const CHUNK_OBJECT: u64 = 256;
const BLOCK_GROUP_ITEM: u32 = 192;
const FREE_SPACE_INFO: u32 = 198;
const FREE_SPACE_EXTENT: u32 = 199;
const FREE_SPACE_BITMAP: u32 = 200;
const CHUNK_ITEM: u32 = 228;

/// The chunks of the mounted btrfs that holds `directory`.
///
/// # Errors
/// The kernel's error, such as `EPERM` without `CAP_SYS_ADMIN`.
pub fn chunks(directory: impl AsFd) -> io::Result<Vec<Chunk>> {
    let (first, last) = ((CHUNK_OBJECT, CHUNK_ITEM, 0), (CHUNK_OBJECT, CHUNK_ITEM, u64::MAX));
    Ok(ioctl::btrfs_search(directory, CHUNK_TREE, first, last)?.iter().filter_map(Chunk::parse).collect())
}

/// The bytes in use in a chunk of the mounted btrfs that holds `directory`; `None` if it has no such chunk any more.
///
/// # Errors
/// The kernel's error.
pub fn used_in(directory: impl AsFd, chunk: Extent) -> io::Result<Option<Bytes>> {
    let key = (chunk.start.0, BLOCK_GROUP_ITEM, chunk.len().0);
    let search = |tree| match ioctl::btrfs_search(&directory, tree, key, key) {
        // Before Linux 6.1, and without the feature, there is no tree of block groups.
        Err(rustix::io::Errno::NOENT) => Ok(Vec::new()),
        found => found,
    };
    let mut found = search(BLOCK_GROUP_TREE)?;
    if found.is_empty() {
        found = search(EXTENT_TREE)?;
    }
    let used = found.first().and_then(|item| item.bytes.first_chunk().map(|used| u64::from_le_bytes(*used)));
    Ok(used.map(Bytes))
}

/// The free extents in a chunk of the mounted btrfs that holds `directory`, as of the last commit; `None` if it keeps no tree of
/// free space.
///
/// # Errors
/// The kernel's error.
pub fn free_extents_in(directory: impl AsFd, chunk: Extent) -> io::Result<Option<ExtentSet>> {
    let first = (chunk.start.0, FREE_SPACE_INFO, 0);
    let last = (chunk.end.0 - 1, FREE_SPACE_BITMAP, u64::MAX);
    match ioctl::btrfs_search(directory, FREE_SPACE_TREE, first, last) {
        Ok(items) => Ok(Some(free_in(&items))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The free extents that items of the tree of free space describe.
fn free_in(items: &[TreeItem]) -> ExtentSet {
    let mut free = ExtentSet::new();
    for item in items {
        match item.kind {
            FREE_SPACE_EXTENT => {
                free.insert(Extent::at(Bytes(item.object), Bytes(item.offset)));
            }
            FREE_SPACE_BITMAP => {
                let bits = item.bytes.len() as u64 * 8;
                let sector = item.offset.checked_div(bits).unwrap_or(0);
                let is_free = |bit: &u64| item.bytes[(bit / 8) as usize] >> (bit % 8) & 1 == 1;
                for bit in (0..bits).filter(is_free) {
                    free.insert(Extent::at(Bytes(item.object + bit * sector), Bytes(sector)));
                }
            }
            _ => {}
        }
    }
    free
}

/// The room that writers have in the chunks of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The length of all chunks of the kind.
    pub total: Bytes,
    /// The free space in them that is not promised to anybody.
    pub free: Bytes,
    /// The space in no chunk of any kind.
    pub unallocated: Bytes,
    /// The size of all devices.
    pub size: Bytes,
}

/// The room in the chunks of this kind, in the btrfs with this directory in sysfs; `None` if a file is missing.
pub fn room(directory: &Path, kind: ChunkKind) -> Option<Room> {
    let read = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let allocation = directory.join("allocation");
    let of = |kind: ChunkKind, file| read(allocation.join(kind.directory()).join(file));
    let taken = ["bytes_used", "bytes_reserved", "bytes_may_use", "bytes_pinned", "bytes_readonly"];
    let taken = taken.into_iter().map(|file| of(kind, file)).sum::<Option<u64>>()?;
    let total = of(kind, "total_bytes")?;
    let kinds = [ChunkKind::Data, ChunkKind::Metadata, ChunkKind::Mixed, ChunkKind::System];
    let allocated: u64 = kinds.into_iter().filter_map(|kind| of(kind, "disk_total")).sum();
    let devices = fs::read_dir(directory.join("devices")).ok()?.flatten();
    let sectors: u64 = devices.filter_map(|device| read(device.path().join("size"))).sum();
    let size = Bytes(sectors * SECTOR.0);
    Some(Room {
        total: Bytes(total),
        free: Bytes(total.saturating_sub(taken)),
        unallocated: size.saturating_sub(Bytes(allocated)),
        size,
    })
}

impl Chunk {
    /// Reads a `struct btrfs_chunk` and its stripes.
    fn parse(item: &TreeItem) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(*item.bytes.get(at..)?.first_chunk()?));
        let (length, profile) = (number(0)?, number(24)? & PROFILES);
        let extent = Extent::new(Bytes(item.offset), Bytes(item.offset.checked_add(length)?));
        let kind = ChunkKind::of(number(24)?);
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
        Some(Self { extent, copies, kind })
    }
}

/// Returns the directory of `sysfs` for the mounted btrfs with this identifier.
pub fn directory(sysfs: &Path, id: &[u8; 16]) -> PathBuf {
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let hyphenated = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    sysfs.join("fs/btrfs").join(hyphenated)
}

/// Returns the directory of `sysfs` for the btrfs of `mount`, by the device that it was mounted from: the file system is
/// not opened. None if the device is not known.
pub fn directory_of(sysfs: &Path, mount: &Mount) -> Option<PathBuf> {
    // /dev/mapper/x is a link to /dev/dm-0.
    let device = mount.source.canonicalize().ok()?;
    let device = BlockDevice::open(sysfs, &device).ok()?.name();
    let mut all = fs::read_dir(sysfs.join("fs/btrfs")).ok()?.flatten().map(|entry| entry.path());
    all.find(|directory| directory.join("devices").join(&device).exists())
}

/// Returns the identifier of the mounted btrfs with this directory in sysfs.
pub fn id_in(directory: &Path) -> Option<[u8; 16]> {
    let hex: Vec<u8> = directory.file_name()?.to_str()?.bytes().filter(|byte| *byte != b'-').collect();
    let byte =
        |at: usize| u8::from_str_radix(std::str::from_utf8(hex.get(at * 2..at * 2 + 2)?).ok()?, 16).ok();
    let bytes: Vec<u8> = (0..16).map(byte).collect::<Option<_>>()?;
    bytes.try_into().ok()
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
    /// Reads the discards of the btrfs whose directory in sysfs is `directory`; `None` if a file is missing, as in
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
    lists.find(|list| list.join(name).exists()).map_or(Vec::new(), |list| names_in(&list))
}

/// The names of all devices of the mounted btrfs with this identifier; none where no such one is mounted.
pub fn member_names_of(sysfs: &Path, id: &[u8; 16]) -> Vec<String> {
    names_in(&directory(sysfs, id).join("devices"))
}

fn names_in(list: &Path) -> Vec<String> {
    let names = fs::read_dir(list).into_iter().flatten().flatten();
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
            if let Some(chunk) = Chunk::parse(&TreeItem { object: 256, kind: CHUNK_ITEM, offset: logical, bytes }) {
                let copies = chunk.copies.unwrap_or_default();
                prop_assert!(copies.len() <= 3);
                prop_assert!(copies.iter().all(|(_, at)| at.0.checked_add(chunk.extent.len().0).is_some()));
            }
        }
    }

    #[test]
    fn free_extents_are_those_of_extents_and_bitmaps() {
        let item =
            |object, kind, offset, bytes: &[u8]| TreeItem { object, kind, offset, bytes: bytes.to_vec() };
        let items = [
            item(0, FREE_SPACE_INFO, 1 << 30, &[3, 0, 0, 0, 0, 0, 0, 0]),
            item(4096, FREE_SPACE_EXTENT, 8192, &[]),
            // 16 sectors of 4 KiB from 64 KiB on: two that belong together, and one.
            item(65536, FREE_SPACE_BITMAP, 65536, &[0b0000_0110, 0b1000_0000]),
        ];
        let found: Vec<_> = free_in(&items).iter().map(|extent| (extent.start.0, extent.len().0)).collect();
        assert_eq!(found, [(4096, 8192), (65536 + 4096, 8192), (65536 + 15 * 4096, 4096)]);
        assert!(free_in(&[item(0, FREE_SPACE_BITMAP, 4096, &[])]).is_empty());
    }

    #[test]
    fn room_is_what_neither_chunks_nor_devices_have_given_away() {
        let directory = tempfile::tempdir().unwrap();
        let put = |path: &str, value: &str| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        };
        for (file, value) in [
            ("total_bytes", "1000"),
            ("bytes_used", "600"),
            ("bytes_reserved", "50"),
            ("bytes_may_use", "10"),
            ("bytes_pinned", "20"),
            ("bytes_readonly", "20"),
            ("disk_total", "1024"),
        ] {
            put(&format!("allocation/data/{file}"), value);
        }
        assert_eq!(room(directory.path(), ChunkKind::Data), None);
        put("devices/sda/size", "10\n");
        let found =
            Room { total: Bytes(1000), free: Bytes(300), unallocated: Bytes(4096), size: Bytes(5120) };
        assert_eq!(room(directory.path(), ChunkKind::Data), Some(found));
        assert_eq!(room(directory.path(), ChunkKind::Metadata), None);
    }

    #[test]
    fn identifiers_are_written_as_sysfs_does() {
        let id = std::array::from_fn(|byte| byte as u8 * 17);
        let expected = Path::new("/sys/fs/btrfs/00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(directory(Path::new("/sys"), &id), expected);
        assert_eq!(id_in(expected), Some(id));
        assert_eq!(id_in(Path::new("/sys/fs/btrfs/features")), None);
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
