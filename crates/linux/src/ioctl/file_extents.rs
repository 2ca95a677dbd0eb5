//! Where a file's data is. Opcodes and structures are those of the kernel's
//! `include/uapi/linux/{fiemap,fs}.h`.

use std::os::fd::AsFd;

use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, Opcode, Updater, ioctl, opcode};
use trimtab_core::{Bytes, Extent};

const FS_IOC_FIEMAP: Opcode = opcode::read_write::<FiemapHead>(b'f', 11);
const FIBMAP: Opcode = opcode::none(0, 1);
const FIGETBSZ: Opcode = opcode::none(0, 2);
const FS_IOC_FSGETXATTR: Opcode = opcode::read::<FileAttributes>(b'X', 31);

const FS_XFLAG_REALTIME: u32 = 1;

/// `struct fsxattr`.
#[repr(C)]
struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copied_extent_size: u32,
    padding: [u8; 8],
}

/// How many extents are asked for at once.
const EXTENTS: usize = 512;
const FIEMAP_FLAG_SYNC: u32 = 1;
const FIEMAP_EXTENT_LAST: u32 = 1;
const FIEMAP_EXTENT_UNKNOWN: u32 = 2;
const FIEMAP_EXTENT_DELALLOC: u32 = 4;
const FIEMAP_EXTENT_ENCODED: u32 = 8;
const FIEMAP_EXTENT_DATA_ENCRYPTED: u32 = 0x80;
const FIEMAP_EXTENT_NOT_ALIGNED: u32 = 0x100;
const FIEMAP_EXTENT_SHARED: u32 = 0x2000;

/// `struct fiemap`, without its extents.
#[repr(C)]
struct FiemapHead {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct FiemapQuery {
    head: FiemapHead,
    extents: [FiemapExtent; EXTENTS],
}

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileExtent {
    /// Its first byte in the file.
    pub offset: Bytes,
    /// Its bytes in the file system's address space: those of the device, or btrfs' logical ones.
    pub extent: Extent,
    /// Whether other files have it too.
    pub shared: bool,
}

/// Returns whether the data of `file` is on the realtime device of an XFS.
///
/// # Errors
/// The kernel's error, such as `ENOTTY` from a file system without such attributes.
pub fn is_realtime(file: impl AsFd) -> Result<bool> {
    // SAFETY: FS_IOC_FSGETXATTR writes a `struct fsxattr`, which `FileAttributes` lays out.
    let attributes = unsafe { ioctl(file, Getter::<FS_IOC_FSGETXATTR, FileAttributes>::new())? };
    Ok(attributes.flags & FS_XFLAG_REALTIME != 0)
}

/// Where the bytes `range` of `file` are, what lies in its cache written first. Left out are holes and
/// what has no place of its own: data that is compressed or kept in an inode.
///
/// # Errors
/// The kernel's error, such as `EOPNOTSUPP` from a file system that doesn't tell.
pub fn file_extents(file: impl AsFd, range: Extent) -> Result<Vec<FileExtent>> {
    let head = FiemapHead {
        start: range.start.0,
        length: range.len().0,
        flags: FIEMAP_FLAG_SYNC,
        mapped_extents: 0,
        extent_count: EXTENTS as u32,
        reserved: 0,
    };
    let mut query = Box::new(FiemapQuery { head, extents: [FiemapExtent::default(); EXTENTS] });
    let mut pieces = Vec::new();
    while query.head.length > 0 {
        // SAFETY: FS_IOC_FIEMAP reads and writes a `struct fiemap` that `extent_count` extents follow,
        // which `FiemapQuery` lays out.
        unsafe { ioctl(&file, Updater::<FS_IOC_FIEMAP, _>::new(&mut *query))? };
        let found = &query.extents[..(query.head.mapped_extents as usize).min(EXTENTS)];
        pieces.extend(found.iter().filter_map(|found| found.within(range)));
        let Some(last) = found.last().filter(|last| last.flags & FIEMAP_EXTENT_LAST == 0) else { break };
        let next = last.logical.saturating_add(last.length);
        if next <= query.head.start {
            break;
        }
        query.head.start = next;
        query.head.length = range.end.0.saturating_sub(next);
    }
    Ok(pieces)
}

impl FiemapExtent {
    /// Returns the part of it in `range` of the file; none where its place isn't known.
    fn within(&self, range: Extent) -> Option<FileExtent> {
        let nowhere = FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_NOT_ALIGNED;
        let encoded = self.flags & FIEMAP_EXTENT_ENCODED != 0;
        if self.flags & nowhere != 0 || encoded && self.flags & FIEMAP_EXTENT_DATA_ENCRYPTED == 0 {
            return None;
        }
        let end = Bytes(self.logical.checked_add(self.length)?);
        let wanted = Extent::new(Bytes(self.logical), end).intersect(range);
        let physical = self.physical.checked_add(wanted.start.0 - self.logical)?;
        physical.checked_add(wanted.len().0)?;
        (!wanted.is_empty()).then_some(FileExtent {
            offset: wanted.start,
            extent: Extent::at(Bytes(physical), wanted.len()),
            shared: self.flags & FIEMAP_EXTENT_SHARED != 0,
        })
    }
}

/// Where the bytes `range` of `file` are on its device, in whole blocks: for file systems that don't have
/// what [`file_extents`] asks for.
///
/// # Errors
/// The kernel's error: `EINVAL` from a file system that doesn't tell, `EPERM` without `CAP_SYS_RAWIO`,
/// `EOVERFLOW` where a number doesn't fit.
pub fn file_blocks(file: impl AsFd, range: Extent) -> Result<Vec<FileExtent>> {
    let mut size = 0_i32;
    // SAFETY: FIGETBSZ writes an `int`.
    unsafe { ioctl(&file, Updater::<FIGETBSZ, _>::new(&mut size))? };
    let size = u64::try_from(size).ok().filter(|size| *size > 0).ok_or(Errno::INVAL)?;
    let mut pieces: Vec<FileExtent> = Vec::new();
    for index in range.start.0 / size..range.end.0.div_ceil(size) {
        let mut block = i32::try_from(index).map_err(|_| Errno::OVERFLOW)?;
        // SAFETY: FIBMAP reads and writes an `int`.
        unsafe { ioctl(&file, Updater::<FIBMAP, _>::new(&mut block))? };
        let block = u64::try_from(block).map_err(|_| Errno::OVERFLOW)?;
        let extent = Extent::at(Bytes(block * size), Bytes(size));
        match pieces.last_mut() {
            _ if block == 0 => {}
            Some(last) if last.extent.end == extent.start => last.extent.end = extent.end,
            _ => pieces.push(FileExtent { offset: Bytes(index * size), extent, shared: false }),
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn opcodes_and_structures_match_the_kernel() {
        assert_eq!(FS_IOC_FIEMAP, 0xc020_660b);
        assert_eq!((FIBMAP, FIGETBSZ), (1, 2));
        assert_eq!((FS_IOC_FSGETXATTR, size_of::<FileAttributes>()), (0x801c_581f, 28));
        assert_eq!(size_of::<FiemapExtent>(), 56);
        assert_eq!(std::mem::offset_of!(FiemapExtent, flags), 40);
        assert_eq!(std::mem::offset_of!(FiemapQuery, extents), 32);
    }

    #[test]
    fn data_without_a_place_is_left_out() {
        let range = Extent::at(Bytes(0), Bytes(4096));
        let piece = |flags| FiemapExtent { physical: 8192, length: 4096, flags, ..FiemapExtent::default() };
        let found = |flags| piece(flags).within(range).map(|found| (found.extent.start, found.shared));
        assert_eq!(found(FIEMAP_EXTENT_LAST), Some((Bytes(8192), false)));
        assert_eq!(found(FIEMAP_EXTENT_SHARED), Some((Bytes(8192), true)));
        assert_eq!(found(FIEMAP_EXTENT_ENCODED | FIEMAP_EXTENT_DATA_ENCRYPTED), Some((Bytes(8192), false)));
        for flags in [FIEMAP_EXTENT_UNKNOWN, FIEMAP_EXTENT_DELALLOC, FIEMAP_EXTENT_ENCODED, 0x300] {
            assert_eq!(found(flags), None, "{flags:#x}");
        }
    }

    proptest! {
        /// Whatever a kernel says of an extent, what is made of it lies in the range and in the extent.
        #[test]
        fn an_extent_is_cut_to_the_range(
            logical: u64, physical: u64, length: u64, start in 0..u64::MAX / 2, wanted in 0..u64::MAX / 2,
        ) {
            let range = Extent::at(Bytes(start), Bytes(wanted));
            let extent = FiemapExtent { logical, physical, length, ..FiemapExtent::default() };
            if let Some(found) = extent.within(range) {
                let skipped = found.offset.0 - logical;
                prop_assert!(found.offset >= range.start && found.offset + found.extent.len() <= range.end);
                prop_assert!(found.extent.start.0 == physical + skipped);
                prop_assert!(skipped + found.extent.len().0 <= length);
            }
        }
    }
}
