//! How far an XFS has been written: the head of its log, which moves with every change and with every
//! mount. While it is mounted the kernel tells it; otherwise it is after the record by which it was
//! unmounted, which the log has soon after the one that holds the superblock.

use std::path::Path;

use serde::{Deserialize, Serialize};
use trimtab_core::{Bytes, SECTOR};

use super::{Disk, Reason, START, SealError};

/// The first bytes of a record of the log (`struct xlog_rec_header`).
const RECORD: u32 = 0xfeed_babe;
/// The flag of an operation by which the file system is unmounted.
const UNMOUNT: u8 = 0x20;
/// A record's header has one sector for this many of its bytes.
const PER_HEADER: u32 = 32 << 10;
/// How many records may follow the superblock's: the file system is then being unmounted.
const MOST: usize = 64;

/// Where the log of an XFS is, and the last change of the superblock in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    log: Bytes,
    /// The log's length in sectors.
    sectors: u32,
    changed: Position,
}

/// A place in the log: how often it was begun anew, and the sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    cycle: u32,
    sector: u32,
}

/// How far an XFS has been written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Written {
    head: Position,
}

/// The identifier in the first bytes of a device.
pub(super) fn uuid(start: &[u8; START]) -> [u8; 16] {
    std::array::from_fn(|byte| start[32 + byte])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

impl Superblock {
    /// Reads it from the first bytes of a device; none where there is none, or its log is elsewhere.
    pub fn parse(start: &[u8; START]) -> Option<Self> {
        let version = u16::from_be_bytes([start[100], start[101]]) & 0xf;
        let (block, group) = (u64::from(u32_at(start, 4)), u64::from(u32_at(start, 84)));
        let log_blocks = u64::from(u32_at(start, 96));
        let log = u64::from(u32_at(start, 48)) << 32 | u64::from(u32_at(start, 52));
        // Older ones don't keep where in the log the superblock is.
        if &start[..4] != b"XFSB" || version != 5 || log == 0 || block < SECTOR.0 {
            return None;
        }
        let log_group = log.checked_shr(start[124].into())?;
        let in_group = log - log_group.checked_shl(start[124].into())?;
        let at = log_group.checked_mul(group)?.checked_add(in_group)?.checked_mul(block)?;
        Some(Self {
            log: Bytes(at),
            sectors: u32::try_from(log_blocks.checked_mul(block / SECTOR.0)?)
                .ok()
                .filter(|sectors| *sectors > 0)?,
            changed: Position { cycle: u32_at(start, 240), sector: u32_at(start, 244) },
        })
    }

    /// The place that is `sectors` after `position`.
    fn after(&self, position: Position, sectors: u32) -> Option<Position> {
        let sector = position.sector.checked_add(sectors)?;
        Some(match sector.checked_sub(self.sectors) {
            Some(sector) => Position { cycle: position.cycle.checked_add(1)?, sector },
            None => Position { sector, ..position },
        })
    }
}

impl Written {
    /// By what sysfs has of the mounted one.
    pub fn mounted(sysfs: &Path, disk: &Disk) -> Result<Self, SealError> {
        let text = disk.attribute(sysfs, "xfs", "log/log_head_lsn")?;
        let head = text.trim().split_once(':').and_then(|(cycle, sector)| {
            Some(Position { cycle: cycle.parse().ok()?, sector: sector.parse().ok()? })
        });
        Ok(Self { head: head.ok_or_else(|| disk.malformed("the head of its log"))? })
    }

    /// By the log of one that isn't mounted.
    pub fn unmounted(disk: &Disk, superblock: &Superblock) -> Result<Self, SealError> {
        let mut position = superblock.changed;
        let mut is_unmounted = false;
        for _ in 0..MOST {
            let Some(record) = Record::read(disk, superblock, position)? else {
                return if is_unmounted {
                    Ok(Self { head: position })
                } else {
                    Err(SealError::Unclean { device: disk.path.clone() })
                };
            };
            is_unmounted = record.is_unmount;
            let next = superblock.after(position, record.sectors);
            position = next.ok_or_else(|| disk.malformed("a sound log"))?;
        }
        Err(SealError::Unclean { device: disk.path.clone() })
    }

    /// See [`super::Seal::follows`]: where the head was when it was mounted, nothing tells later.
    pub fn follows(&self, then: &Self) -> Result<(), Reason> {
        if self == then { Ok(()) } else { Err(Reason::Written) }
    }
}

/// The needed fields of a record of the log.
struct Record {
    /// How long it is with its header.
    sectors: u32,
    /// Whether the file system is unmounted by it.
    is_unmount: bool,
}

impl Record {
    /// The one at this place; none where that holds no record that was written there in this cycle.
    fn read(disk: &Disk, superblock: &Superblock, at: Position) -> Result<Option<Self>, SealError> {
        if at.sector >= superblock.sectors {
            return Ok(None);
        }
        let mut header = [0; SECTOR.0 as usize];
        let place = |sector: u32| superblock.log + Bytes(u64::from(sector) * SECTOR.0);
        disk.read(place(at.sector), &mut header)?;
        let lsn = Position { cycle: u32_at(&header, 16), sector: u32_at(&header, 20) };
        if u32_at(&header, 0) != RECORD || u32_at(&header, 4) != at.cycle || lsn != at {
            return Ok(None);
        }
        let (version, length, operations) = (u32_at(&header, 8), u32_at(&header, 12), u32_at(&header, 40));
        let headers = if version & 2 != 0 { u32_at(&header, 320).div_ceil(PER_HEADER).max(1) } else { 1 };
        let sectors = headers.saturating_add(length.div_ceil(SECTOR.0 as u32));
        let mut is_unmount = false;
        if operations == 1
            && let Some(data) = superblock.after(at, headers)
            && data.sector < superblock.sectors
        {
            let mut operation = [0; SECTOR.0 as usize];
            disk.read(place(data.sector), &mut operation)?;
            is_unmount = operation[9] & UNMOUNT != 0;
        }
        Ok(Some(Self { sectors, is_unmount }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn log_wraps_around_at_its_end() {
        let superblock = Superblock { log: Bytes(0), sectors: 10, changed: Position { cycle: 3, sector: 8 } };
        let after = |sectors| superblock.after(superblock.changed, sectors);
        assert_eq!(after(1), Some(Position { cycle: 3, sector: 9 }));
        assert_eq!(after(2), Some(Position { cycle: 4, sector: 0 }));
        assert_eq!(after(u32::MAX), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), START), is_xfs in any::<bool>()) {
            let mut start: [u8; START] = bytes.try_into().unwrap();
            if is_xfs {
                start[..4].copy_from_slice(b"XFSB");
                start[101] = start[101] & 0xf0 | 5;
            }
            if let Some(superblock) = Superblock::parse(&start) {
                prop_assert!(superblock.sectors > 0);
            }
        }
    }
}
