//! One safe function an ioctl. Opcodes and structures are those of the kernel's
//! `include/uapi/linux/{fs,loop,dm-ioctl,random}.h` and `include/scsi/sg.h`.
#![allow(unsafe_code)]

mod device_mapper;
mod file_extents;
mod file_system;
mod scsi;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Result;
use rustix::ioctl::{
    Getter, IntegerSetter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, Updater, ioctl, opcode,
};
use trimtab_core::{Bytes, Extent};

pub use device_mapper::{MapLine, device_map, device_status, device_status_unflushed, inactive_map};
pub use file_extents::{FileExtent, file_blocks, file_extents, is_realtime};
pub use file_system::{
    FreeSpace, TreeItem, btrfs_device, btrfs_id, btrfs_search, file_system_uuid, free_space,
    free_space_within,
};
pub use scsi::scsi_identification;

const FITRIM: Opcode = opcode::read_write::<FstrimRange>(b'X', 121);
const BLKDISCARD: Opcode = opcode::none(0x12, 119);
const BLKSECDISCARD: Opcode = opcode::none(0x12, 125);
const BLKZEROOUT: Opcode = opcode::none(0x12, 127);
const BLKFLSBUF: Opcode = opcode::none(0x12, 97);
const LOOP_CLR_FD: Opcode = 0x4c01;
const LOOP_GET_STATUS64: Opcode = 0x4c05;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CTL_REMOVE: Opcode = 0x4c81;
const LOOP_CTL_GET_FREE: Opcode = 0x4c82;
const RNDADDENTROPY: Opcode = opcode::write::<[i32; 2]>(b'R', 3);

/// The loop device reads and writes its file past the page cache.
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `struct fstrim_range`.
#[repr(C)]
struct FstrimRange {
    start: u64,
    len: u64,
    minlen: u64,
}

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// `struct rand_pool_info` with its buffer.
#[repr(C)]
struct PoolInfo {
    entropy_bits: i32,
    buffer_size: i32,
    buffer: [u8; 32],
}

/// Asks the file system that holds `directory` to discard its free space within `range` of its
/// trim address space, leaving out free pieces shorter than `minimum`. Returns what the kernel
/// reports, which means different things: bytes discarded on ext4, bytes examined on XFS.
///
/// # Errors
/// The kernel's error, such as `EOPNOTSUPP` from a file system or device without discards.
pub fn fitrim(directory: impl AsFd, range: Extent, minimum: Bytes) -> Result<Bytes> {
    // The longest length is what "all that follows" is: NTFS adds any other to the start, and takes what passes 2^64 for nothing.
    let len = if range.end == Bytes(u64::MAX) { u64::MAX } else { range.len().0 };
    let mut trim = FstrimRange { start: range.start.0, len, minlen: minimum.0 };
    // SAFETY: FITRIM reads and writes a `struct fstrim_range`, which `FstrimRange` lays out.
    unsafe { ioctl(directory, Updater::<FITRIM, _>::new(&mut trim))? };
    Ok(Bytes(trim.len))
}

/// Discards `range` of a block device that is open for writing.
///
/// # Errors
/// The kernel's error: `EINVAL` off the logical block grid, `EOPNOTSUPP` without discards.
pub fn discard(device: impl AsFd, range: Extent) -> Result<()> {
    // SAFETY: BLKDISCARD reads a `u64[2]` of start and length.
    unsafe { ioctl(device, Setter::<BLKDISCARD, _>::new([range.start.0, range.len().0])) }
}

/// Writes zeros over `range` of a block device that is open for writing, without unmapping it.
///
/// # Errors
/// The kernel's error: `EINVAL` off the logical block grid.
pub fn zero_out(device: impl AsFd, range: Extent) -> Result<()> {
    // SAFETY: BLKZEROOUT reads a `u64[2]` of start and length.
    unsafe { ioctl(device, Setter::<BLKZEROOUT, _>::new([range.start.0, range.len().0])) }
}

/// Discards `range` of a block device that is open for writing, so that no copy of it is left.
///
/// # Errors
/// The kernel's error: `EINVAL` off the logical block grid, `EOPNOTSUPP` where the device has no
/// such command.
pub fn secure_discard(device: impl AsFd, range: Extent) -> Result<()> {
    // SAFETY: BLKSECDISCARD reads a `u64[2]` of start and length.
    unsafe { ioctl(device, Setter::<BLKSECDISCARD, _>::new([range.start.0, range.len().0])) }
}

/// Writes what the kernel holds in memory of a block device, and drops it.
///
/// # Errors
/// The kernel's error, such as `EACCES` without `CAP_SYS_ADMIN`.
pub fn flush_buffers(device: impl AsFd) -> Result<()> {
    // SAFETY: BLKFLSBUF takes no operand.
    unsafe { ioctl(device, NoArg::<BLKFLSBUF>::new()) }
}

/// Asks `/dev/loop-control` for the number of a loop device that is free.
///
/// # Errors
/// The kernel's error, such as `ENODEV` where it can add no more.
pub fn loop_get_free(control: impl AsFd) -> Result<u32> {
    struct GetFree;
    // SAFETY: LOOP_CTL_GET_FREE takes no operand and returns the number as its result.
    unsafe impl Ioctl for GetFree {
        type Output = u32;
        const IS_MUTATING: bool = false;
        fn opcode(&self) -> Opcode {
            LOOP_CTL_GET_FREE
        }
        fn as_ptr(&mut self) -> *mut std::ffi::c_void {
            std::ptr::null_mut()
        }
        // SAFETY: LOOP_CTL_GET_FREE has no operand; the pointer is not looked at.
        unsafe fn output_from_ptr(number: IoctlOutput, _: *mut std::ffi::c_void) -> Result<u32> {
            Ok(number as u32)
        }
    }
    // SAFETY: LOOP_CTL_GET_FREE takes no operand.
    unsafe { ioctl(control, GetFree) }
}

/// Asks `/dev/loop-control` to remove the loop device of this number.
///
/// # Errors
/// The kernel's error, such as `EBUSY` where it is in use.
pub fn loop_remove(control: impl AsFd, number: u32) -> Result<()> {
    // SAFETY: LOOP_CTL_REMOVE takes the number as its operand.
    unsafe { ioctl(control, IntegerSetter::<LOOP_CTL_REMOVE>::new_usize(number as usize)) }
}

/// Puts `file` behind the free loop device `device`, with direct I/O to the file and logical
/// blocks of `block_size`.
///
/// # Errors
/// The kernel's error, such as `EBUSY` where another process took the device first.
pub fn loop_configure(device: impl AsFd, file: BorrowedFd, block_size: Bytes) -> Result<()> {
    let info = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        sizelimit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: LO_FLAGS_DIRECT_IO,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
    let fd = file.as_raw_fd() as u32;
    let config = LoopConfig { fd, block_size: block_size.0 as u32, info, reserved: [0; 8] };
    // SAFETY: LOOP_CONFIGURE reads a `struct loop_config`, which `LoopConfig` lays out; its file
    // descriptor is borrowed for the call and the kernel takes its own reference.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, _>::new(config)) }
}

/// The kernel's facts about the file behind a loop device, in the numbers that `stat` has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopStatus {
    /// `st_dev`: the file system that the file is on.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// `st_rdev` of a device's node. Of a regular file 0, or before Linux 6.0 `device` again.
    pub rdevice: u64,
}

/// Asks what is behind a loop device.
///
/// # Errors
/// The kernel's error, such as `ENXIO` where there is no file behind it.
pub fn loop_status(device: impl AsFd) -> Result<LoopStatus> {
    // SAFETY: LOOP_GET_STATUS64 writes a `struct loop_info64`, which `LoopInfo` lays out and which all bit
    // patterns are valid for.
    let info = unsafe { ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo>::new())? };
    Ok(LoopStatus { device: info.device, inode: info.inode, rdevice: info.rdevice })
}

/// Takes the file from behind a loop device; while others have the device open, that happens when
/// the last of them closes it.
///
/// # Errors
/// The kernel's error, such as `ENXIO` where there is no file behind it.
pub fn loop_clear(device: impl AsFd) -> Result<()> {
    // SAFETY: LOOP_CLR_FD takes no operand.
    unsafe { ioctl(device, NoArg::<LOOP_CLR_FD>::new()) }
}

/// Mixes `seed` into the pool of `/dev/random` and counts it as entropy.
///
/// # Errors
/// The kernel's error, such as `EPERM` without `CAP_SYS_ADMIN`.
pub fn add_entropy(random: impl AsFd, seed: &[u8; 32]) -> Result<()> {
    let info = PoolInfo { entropy_bits: 256, buffer_size: 32, buffer: *seed };
    // SAFETY: RNDADDENTROPY reads a `struct rand_pool_info` and the `buffer_size` bytes that follow it,
    // which `PoolInfo` lays out.
    unsafe { ioctl(random, Setter::<RNDADDENTROPY, _>::new(info)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_and_structures_match_the_kernel() {
        assert_eq!(FITRIM, 0xc018_5879);
        assert_eq!(BLKDISCARD, 0x1277);
        assert_eq!(BLKSECDISCARD, 0x127d);
        assert_eq!(BLKZEROOUT, 0x127f);
        assert_eq!(BLKFLSBUF, 0x1261);
        assert_eq!(RNDADDENTROPY, 0x4008_5203);
        assert_eq!(size_of::<PoolInfo>(), 40);
        assert_eq!(size_of::<LoopInfo>(), 232);
        assert_eq!(size_of::<LoopConfig>(), 304);
        assert_eq!(std::mem::offset_of!(LoopInfo, flags), 52);
    }
}
