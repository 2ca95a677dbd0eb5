//! Places of data and free space, as file systems report them. Opcodes and structures are those of the kernel's
//! `include/uapi/linux/{fs,fsmap,btrfs,btrfs_tree}.h`.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::makedev;
use rustix::io::{Errno, Result};
use rustix::ioctl::{Getter, Opcode, Updater, ioctl, opcode};
use trimtab_core::{Bytes, Extent};

use crate::block::DeviceNumber;

const FS_IOC_GETFSUUID: Opcode = opcode::read::<FsUuid>(0x15, 0);
const FS_IOC_GETFSMAP: Opcode = opcode::read_write::<FsmapHead>(b'X', 59);
const BTRFS_IOC_TREE_SEARCH: Opcode = opcode::read_write::<TreeSearch>(0x94, 17);
const BTRFS_IOC_DEV_INFO: Opcode = opcode::read_write::<DevInfo>(0x94, 30);
const BTRFS_IOC_FS_INFO: Opcode = opcode::read::<FsInfo>(0x94, 31);

/// How many records are asked for at once.
const FSMAP_RECORDS: usize = 1024;
const FMR_OF_SPECIAL_OWNER: u32 = 0x10;
const FMR_OF_LAST: u32 = 0x20;
const FMR_OWN_FREE: u64 = 1;

/// `struct fsuuid2`.
#[repr(C)]
struct FsUuid {
    length: u8,
    uuid: [u8; 16],
}

/// `struct fsmap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Fsmap {
    device: u32,
    flags: u32,
    physical: u64,
    owner: u64,
    offset: u64,
    length: u64,
    reserved: [u64; 3],
}

/// `struct fsmap_head`, with its records.
#[repr(C)]
struct FsmapHead {
    iflags: u32,
    oflags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    keys: [Fsmap; 2],
}

#[repr(C)]
struct FsmapQuery {
    head: FsmapHead,
    records: [Fsmap; FSMAP_RECORDS],
}

/// `struct btrfs_ioctl_search_args`.
#[repr(C)]
struct TreeSearch {
    tree: u64,
    min_objectid: u64,
    max_objectid: u64,
    min_offset: u64,
    max_offset: u64,
    min_transid: u64,
    max_transid: u64,
    min_type: u32,
    max_type: u32,
    items: u32,
    unused: u32,
    reserved: [u64; 4],
    buffer: [u8; 3992],
}

/// `struct btrfs_ioctl_dev_info_args`.
#[repr(C)]
struct DevInfo {
    id: u64,
    uuid: [u8; 16],
    bytes_used: u64,
    total_bytes: u64,
    reserved: [u64; 379],
    path: [u8; 1024],
}

/// `struct btrfs_ioctl_fs_info_args`.
#[repr(C)]
struct FsInfo {
    max_id: u64,
    num_devices: u64,
    fsid: [u8; 16],
    reserved: [u64; 124],
}

/// A piece of free space, as `FS_IOC_GETFSMAP` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeSpace {
    /// The device it is on: major number in the high, minor in the low bits, as user space packs them.
    pub device: u32,
    /// Its bytes on that device.
    pub extent: Extent,
}

/// An item of a tree of btrfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeItem {
    /// The object of its key.
    pub object: u64,
    /// The type of its key.
    pub kind: u32,
    /// The offset of its key.
    pub offset: u64,
    /// The content.
    pub bytes: Vec<u8>,
}

/// The free space of the file system that holds `directory`.
///
/// # Errors
/// The kernel's error, such as `EOPNOTSUPP` or `ENOTTY` from a file system without the call.
pub fn free_space(directory: impl AsFd) -> Result<Vec<FreeSpace>> {
    free_between(directory, Fsmap::default(), Fsmap::highest(u32::MAX, Bytes(u64::MAX)))
}

/// The free space of the file system that holds `directory` on the device `device` between two addresses;
/// what lies there only in part may be told as a whole.
///
/// # Errors
/// The kernel's error, such as `EOPNOTSUPP` or `ENOTTY` from a file system without the call.
pub fn free_space_within(
    directory: impl AsFd,
    device: DeviceNumber,
    range: Extent,
) -> Result<Vec<FreeSpace>> {
    let device = makedev(device.major, device.minor) as u32;
    let lowest = Fsmap { device, physical: range.start.0, ..Fsmap::default() };
    free_between(directory, lowest, Fsmap::highest(device, range.end))
}

fn free_between(directory: impl AsFd, lowest: Fsmap, highest: Fsmap) -> Result<Vec<FreeSpace>> {
    let mut query = Box::new(FsmapQuery {
        head: FsmapHead {
            iflags: 0,
            oflags: 0,
            count: FSMAP_RECORDS as u32,
            entries: 0,
            reserved: [0; 6],
            keys: [lowest, highest],
        },
        records: [Fsmap::default(); FSMAP_RECORDS],
    });
    let mut free = Vec::new();
    loop {
        // SAFETY: FS_IOC_GETFSMAP reads and writes a `struct fsmap_head` that `count` records follow, which
        // `FsmapQuery` lays out.
        unsafe { ioctl(&directory, Updater::<FS_IOC_GETFSMAP, _>::new(&mut *query))? };
        let found = &query.records[..(query.head.entries as usize).min(FSMAP_RECORDS)];
        free.extend(found.iter().filter(|record| record.is_free()).map(|record| FreeSpace {
            device: record.device,
            extent: Extent::at(Bytes(record.physical), Bytes(record.length)),
        }));
        match found.last() {
            // The next question starts after the last answer.
            Some(last) if last.flags & FMR_OF_LAST == 0 => query.head.keys[0] = *last,
            _ => return Ok(free),
        }
    }
}

impl Fsmap {
    /// The last that can be told of a device up to an address.
    fn highest(device: u32, end: Bytes) -> Self {
        let (flags, owner, offset) = (u32::MAX, u64::MAX, u64::MAX);
        Self { device, flags, physical: end.0, owner, offset, ..Self::default() }
    }

    fn is_free(&self) -> bool {
        self.flags & FMR_OF_SPECIAL_OWNER != 0 && self.owner == FMR_OWN_FREE
    }
}

/// Returns the UUID of the file system that holds `directory`, which stays the same if it is mounted elsewhere.
///
/// # Errors
/// The kernel's error: `ENOTTY` before Linux 6.9 and from file systems that have no such thing.
pub fn file_system_uuid(directory: impl AsFd) -> Result<[u8; 16]> {
    // SAFETY: FS_IOC_GETFSUUID writes a `struct fsuuid2`, which `FsUuid` lays out.
    let found: FsUuid = unsafe { ioctl(directory, Getter::<FS_IOC_GETFSUUID, _>::new())? };
    match found.length {
        16 => Ok(found.uuid),
        _ => Err(Errno::NOTTY),
    }
}

/// The items of a tree of the btrfs that holds `directory`, with the keys from `first` to `last`; a key is an object, a type and an
/// offset, in this order.
///
/// # Errors
/// The kernel's error, such as `EPERM` without `CAP_SYS_ADMIN`, or `ENOENT` if there is no such tree.
pub fn btrfs_search(
    directory: impl AsFd,
    tree: u64,
    first: (u64, u32, u64),
    last: (u64, u32, u64),
) -> Result<Vec<TreeItem>> {
    let mut all: Vec<TreeItem> = Vec::new();
    let mut from = first;
    loop {
        let mut search = Box::new(TreeSearch {
            tree,
            min_objectid: from.0,
            max_objectid: last.0,
            min_offset: from.2,
            max_offset: last.2,
            min_transid: 0,
            max_transid: u64::MAX,
            min_type: from.1,
            max_type: last.1,
            items: u32::MAX,
            unused: 0,
            reserved: [0; 4],
            buffer: [0; 3992],
        });
        // SAFETY: BTRFS_IOC_TREE_SEARCH reads and writes a `struct btrfs_ioctl_search_args`, which
        // `TreeSearch` lays out.
        unsafe { ioctl(&directory, Updater::<BTRFS_IOC_TREE_SEARCH, _>::new(&mut *search))? };
        let found = items(&search.buffer, search.items);
        let after = found.last().map(|item| match item.offset.checked_add(1) {
            Some(offset) => (item.object, item.kind, offset),
            None => (item.object, item.kind + 1, 0),
        });
        all.extend(found);
        match after.filter(|after| *after <= last) {
            Some(after) => from = after,
            None => return Ok(all),
        }
    }
}

/// The items in a search's answer, each behind a `struct btrfs_ioctl_search_header`.
fn items(mut answer: &[u8], count: u32) -> Vec<TreeItem> {
    let mut items = Vec::new();
    for _ in 0..count {
        let Some((head, rest)) = answer.split_first_chunk::<32>() else { break };
        let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| head[at + byte]));
        let short = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| head[at + byte]));
        let Some((bytes, rest)) = rest.split_at_checked(short(28) as usize) else { break };
        items.push(TreeItem { object: long(8), kind: short(24), offset: long(16), bytes: bytes.to_vec() });
        answer = rest;
    }
    items
}

/// The identifier of the btrfs that holds `directory`.
///
/// # Errors
/// The kernel's error, such as `ENOTTY` from another file system.
pub fn btrfs_id(directory: impl AsFd) -> Result<[u8; 16]> {
    // SAFETY: BTRFS_IOC_FS_INFO writes a `struct btrfs_ioctl_fs_info_args`, which `FsInfo` lays out.
    let info: FsInfo = unsafe { ioctl(directory, Getter::<BTRFS_IOC_FS_INFO, _>::new())? };
    Ok(info.fsid)
}

/// The path of the device `id` of the btrfs that holds `directory`.
///
/// # Errors
/// The kernel's error, such as `ENODEV` where there is no such device.
pub fn btrfs_device(directory: impl AsFd, id: u64) -> Result<PathBuf> {
    let mut info = Box::new(DevInfo {
        id,
        uuid: [0; 16],
        bytes_used: 0,
        total_bytes: 0,
        reserved: [0; 379],
        path: [0; 1024],
    });
    // SAFETY: BTRFS_IOC_DEV_INFO reads and writes a `struct btrfs_ioctl_dev_info_args`, which `DevInfo`
    // lays out.
    unsafe { ioctl(directory, Updater::<BTRFS_IOC_DEV_INFO, _>::new(&mut *info))? };
    let end = info.path.iter().position(|byte| *byte == 0).unwrap_or(info.path.len());
    Ok(PathBuf::from(OsStr::from_bytes(&info.path[..end])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_and_structures_match_the_kernel() {
        assert_eq!(FS_IOC_GETFSUUID, 0x8011_1500);
        assert_eq!(FS_IOC_GETFSMAP, 0xc0c0_583b);
        assert_eq!(BTRFS_IOC_TREE_SEARCH, 0xd000_9411);
        assert_eq!(BTRFS_IOC_DEV_INFO, 0xd000_941e);
        assert_eq!(BTRFS_IOC_FS_INFO, 0x8400_941f);
        assert_eq!(std::mem::offset_of!(FsmapQuery, records), 192);
        assert_eq!(std::mem::offset_of!(TreeSearch, buffer), 104);
        assert_eq!(std::mem::offset_of!(DevInfo, path), 3072);
    }
}
