//! The tables of the device mapper. Opcodes and structures are those of the kernel's
//! `include/uapi/linux/dm-ioctl.h`.

use std::os::fd::AsFd;

use rustix::io::{Errno, Result};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use trimtab_core::{Bytes, Extent};

use crate::block::DeviceNumber;

const DM_TABLE_STATUS: Opcode = opcode::read_write::<[u8; HEAD]>(0xfd, 12);

/// The table's lines are asked for, not what became of them.
const DM_STATUS_TABLE_FLAG: u32 = 1 << 4;
/// The answer doesn't fit.
const DM_BUFFER_FULL_FLAG: u32 = 1 << 8;
/// Requests under way need not be written first.
const DM_NOFLUSH_FLAG: u32 = 1 << 11;
/// The table is meant that is loaded and not in use yet.
const DM_QUERY_INACTIVE_TABLE_FLAG: u32 = 1 << 12;
/// The kernel wipes its copy, which may hold a key.
const DM_SECURE_DATA_FLAG: u32 = 1 << 15;

/// The size of `struct dm_ioctl`, and where its fields are.
const HEAD: usize = 312;
const DATA_SIZE: usize = 12;
const DATA_START: usize = 16;
const TARGET_COUNT: usize = 20;
const FLAGS: usize = 28;
const DEVICE: usize = 40;

/// The size of `struct dm_target_spec`, and where its fields are.
const SPEC: usize = 40;
const LENGTH: usize = 8;
const NEXT: usize = 20;
const TARGET: usize = 24;

/// The first room for an answer, and the most.
const ROOM: std::ops::RangeInclusive<usize> = 16 << 10..=16 << 20;

/// A line of a device-mapper table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapLine {
    /// The bytes of the device that it maps.
    pub extent: Extent,
    /// The target's name, such as `linear` or `crypt`.
    pub target: String,
    /// Its parameters as the kernel gives them; in a stack's layer with keys blotted out.
    pub parameters: String,
}

impl MapLine {
    /// A line that maps `length` sectors of 512 bytes from the sector `start` on; none where there are
    /// no such addresses.
    pub(crate) fn new(start: u64, length: u64, target: &str, parameters: &str) -> Option<Self> {
        let end = start.checked_add(length)?.checked_mul(512)?;
        let extent = Extent::new(Bytes(start * 512), Bytes(end));
        Some(Self { extent, target: target.to_owned(), parameters: parameters.to_owned() })
    }
}

/// A `struct dm_ioctl` with room for the answer.
struct TableStatus<'a>(&'a mut [u8]);

// SAFETY: DM_TABLE_STATUS reads and writes a `struct dm_ioctl` and what follows it, within the
// `data_size` bytes that `table_status` says the buffer has.
unsafe impl Ioctl for TableStatus<'_> {
    type Output = ();
    const IS_MUTATING: bool = true;
    fn opcode(&self) -> Opcode {
        DM_TABLE_STATUS
    }
    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        self.0.as_mut_ptr().cast()
    }
    // SAFETY: the answer is in the buffer; the pointer is not looked at.
    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut std::ffi::c_void) -> Result<()> {
        Ok(())
    }
}

/// Asks `/dev/mapper/control` for the live table of the device-mapper device `device`.
///
/// # Errors
/// The kernel's error: `ENXIO` where there is no such device, `EACCES` without `CAP_SYS_ADMIN`;
/// `EMSGSIZE` where the table is longer than 16 MiB, `EPROTO` where it makes no sense.
pub fn device_map(control: impl AsFd, device: DeviceNumber) -> Result<Vec<MapLine>> {
    table_status(control, device, DM_STATUS_TABLE_FLAG | DM_NOFLUSH_FLAG)
}

/// Asks for the table that is loaded for `device` and takes effect when that is resumed; empty where there is none.
///
/// # Errors
/// As [`device_map`].
pub fn inactive_map(control: impl AsFd, device: DeviceNumber) -> Result<Vec<MapLine>> {
    let flags = DM_STATUS_TABLE_FLAG | DM_NOFLUSH_FLAG | DM_QUERY_INACTIVE_TABLE_FLAG;
    table_status(control, device, flags)
}

/// Asks `/dev/mapper/control` how the device-mapper device `device` is: the lines of its table, with the
/// status of each target for parameters.
///
/// # Errors
/// As [`device_map`].
pub fn device_status(control: impl AsFd, device: DeviceNumber) -> Result<Vec<MapLine>> {
    table_status(control, device, 0)
}

/// Does the same without a commit of what a thin pool has not written yet: nothing waits for its drives.
///
/// # Errors
/// As [`device_map`].
pub fn device_status_unflushed(control: impl AsFd, device: DeviceNumber) -> Result<Vec<MapLine>> {
    table_status(control, device, DM_NOFLUSH_FLAG)
}

fn table_status(control: impl AsFd, device: DeviceNumber, flags: u32) -> Result<Vec<MapLine>> {
    let mut room = *ROOM.start();
    while ROOM.contains(&room) {
        let mut buffer = vec![0; room];
        let number = rustix::fs::makedev(device.major, device.minor);
        let flags = flags | DM_SECURE_DATA_FLAG;
        buffer[..4].copy_from_slice(&4u32.to_ne_bytes());
        buffer[DATA_SIZE..][..4].copy_from_slice(&(room as u32).to_ne_bytes());
        buffer[DATA_START..][..4].copy_from_slice(&(HEAD as u32).to_ne_bytes());
        buffer[FLAGS..][..4].copy_from_slice(&flags.to_ne_bytes());
        buffer[DEVICE..][..8].copy_from_slice(&number.to_ne_bytes());
        // SAFETY: DM_TABLE_STATUS is told the buffer's size, which is at least `struct dm_ioctl`'s.
        unsafe { ioctl(&control, TableStatus(&mut buffer))? };
        match number_at(&buffer, FLAGS) {
            Some(flags) if flags & DM_BUFFER_FULL_FLAG != 0 => room *= 2,
            _ => return lines(&buffer).ok_or(Errno::PROTO),
        }
    }
    Err(Errno::MSGSIZE)
}

/// The lines in an answer; none where it makes no sense.
fn lines(answer: &[u8]) -> Option<Vec<MapLine>> {
    let data = answer.get(number_at(answer, DATA_START)? as usize..)?;
    let mut lines = Vec::new();
    let mut at = 0;
    for _ in 0..number_at(answer, TARGET_COUNT)? {
        let spec = data.get(at..)?;
        let (target, parameters) = (text_in(spec.get(TARGET..SPEC)?), text_in(spec.get(SPEC..)?));
        lines.push(MapLine::new(long_at(spec, 0)?, long_at(spec, LENGTH)?, &target, &parameters)?);
        at = Some(number_at(spec, NEXT)? as usize).filter(|next| *next > at)?;
    }
    Some(lines)
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn long_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// The text up to the first zero byte.
fn text_in(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn opcode_matches_the_kernel() {
        assert_eq!(DM_TABLE_STATUS, 0xc138_fd0c);
    }

    /// An answer with these lines: start, length, target and parameters.
    fn answer(table: &[(u64, u64, &str, &str)]) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes[DATA_START..][..4].copy_from_slice(&(HEAD as u32).to_ne_bytes());
        bytes[TARGET_COUNT..][..4].copy_from_slice(&(table.len() as u32).to_ne_bytes());
        for (start, length, target, parameters) in table {
            let from = bytes.len();
            bytes.extend([start.to_ne_bytes(), length.to_ne_bytes()].concat());
            bytes.extend([0; SPEC - 16]);
            bytes[from + TARGET..][..target.len()].copy_from_slice(target.as_bytes());
            bytes.extend(parameters.as_bytes());
            bytes.resize(bytes.len() / 8 * 8 + 8, 0);
            let next = (bytes.len() - HEAD) as u32;
            bytes[from + NEXT..][..4].copy_from_slice(&next.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn an_answer_is_read_line_by_line() {
        let answer = answer(&[(0, 2048, "linear", "8:1 4096"), (2048, 8, "error", "")]);
        let expected = [MapLine::new(0, 2048, "linear", "8:1 4096"), MapLine::new(2048, 8, "error", "")]
            .map(Option::unwrap);
        assert_eq!(lines(&answer).unwrap(), expected);
        assert_eq!(expected[1].extent, Extent::at(Bytes(1 << 20), Bytes(4096)));
    }

    proptest! {
        #[test]
        fn arbitrary_answer_causes_no_panic(damage in prop::collection::vec((0usize..500, any::<u8>()), 0..9), cut in 0usize..500) {
            let mut answer = answer(&[(0, 2048, "linear", "8:1 4096"), (2048, 8, "striped", "2 8 8:1 0 8:2 0")]);
            let length = answer.len();
            damage.into_iter().for_each(|(at, byte)| answer[at % length] = byte);
            answer.truncate(cut);
            lines(&answer);
        }
    }
}
