//! How far an ext4 has been written. It counts how often it was mounted and all that was written to it:
//! by the kernel, which tells how much that is since the mount and ever, and by e2fsck, resize2fs and
//! tune2fs. debugfs doesn't count, but what it frees changes the number of free blocks, which the
//! superblock has until the kernel writes more than that.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Disk, Reason, START, SealError};
use crate::tracefs::FreeCoverage;

/// The place and the fields of `struct ext4_super_block`.
const AT: usize = 1024;
const MAGIC: u16 = 0xef53;
/// Of the state: it was unmounted cleanly.
const VALID: u16 = 1;
/// Of the incompatible features: its journal is to be replayed.
const RECOVER: u32 = 4;

/// The fields of a superblock that change when the file system is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub uuid: [u8; 16],
    /// The KiB of a block.
    block: u64,
    mounts: u16,
    /// In KiB; zero where it doesn't count.
    written: u64,
    /// Free blocks.
    free: u64,
    changed: u64,
    is_clean: bool,
}

/// How far an ext4 has been written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Written {
    is_mounted: bool,
    /// How often it was mounted.
    mounts: u16,
    /// KiB that had been written when it was mounted.
    before: u64,
    /// KiB that were written ever.
    ever: u64,
    /// The KiB of a block.
    block: u64,
    /// The free blocks by its superblock, which is late where it is mounted.
    free: u64,
    /// When its superblock was changed last; zero while it is mounted.
    changed: u64,
}

impl Superblock {
    /// Reads it from the first bytes of a device; none where there is none.
    pub fn parse(start: &[u8; START]) -> Option<Self> {
        let bytes = &start[AT..];
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        if u16_at(0x38) != MAGIC {
            return None;
        }
        let block = 1_u64.checked_shl(u32_at(0x18)).filter(|block| *block <= 64)?;
        Some(Self {
            uuid: std::array::from_fn(|byte| bytes[0x68 + byte]),
            block,
            mounts: u16_at(0x34),
            written: u64::from(u32_at(0x178)) | u64::from(u32_at(0x17c)) << 32,
            free: u64::from(u32_at(0xc)) | u64::from(u32_at(0x158)) << 32,
            changed: u64::from(u32_at(0x30)) | u64::from(bytes[0x274]) << 32,
            is_clean: u16_at(0x3a) & VALID != 0 && u32_at(0x60) & RECOVER == 0,
        })
    }
}

impl Written {
    /// By what sysfs has of the mounted one.
    pub fn mounted(sysfs: &Path, disk: &Disk, superblock: &Superblock) -> Result<Self, SealError> {
        if disk.block.number_in("queue/iostats")? == 0 {
            return Err(SealError::Uncounted { device: disk.path.clone() });
        }
        let kib = |file| -> Result<u64, SealError> {
            let text = disk.attribute(sysfs, "ext4", file)?;
            text.trim().parse().map_err(|_| disk.malformed("how much was written to it"))
        };
        // Both are to be of one moment.
        let mut ever = kib("lifetime_write_kbytes")?;
        let since = loop {
            let since = kib("session_write_kbytes")?;
            let again = kib("lifetime_write_kbytes")?;
            if again == ever {
                break since;
            }
            ever = again;
        };
        Ok(Self {
            is_mounted: true,
            mounts: superblock.mounts,
            before: ever.saturating_sub(since),
            ever,
            block: superblock.block,
            free: superblock.free,
            changed: 0,
        })
    }

    /// By the superblock of one that isn't mounted.
    pub fn unmounted(disk: &Disk, superblock: &Superblock) -> Result<Self, SealError> {
        if !superblock.is_clean {
            return Err(SealError::Unclean { device: disk.path.clone() });
        }
        if superblock.written == 0 {
            return Err(disk.malformed("how much was written to it"));
        }
        Ok(Self {
            is_mounted: false,
            mounts: superblock.mounts,
            before: superblock.written,
            ever: superblock.written,
            block: superblock.block,
            free: superblock.free,
            changed: superblock.changed,
        })
    }

    /// See [`super::Seal::follows`].
    pub fn follows(&self, then: &Self, heard: FreeCoverage) -> Result<(), Reason> {
        // Being mounted, it writes its superblock, and the least transaction is of three blocks.
        let is_fresh = self.ever.saturating_sub(self.before) <= self.block;
        // An e2fsck that finds it clean, as at boot, writes the journal's superblock: of the usual size, that is a
        // block. Who frees something writes a bitmap and a descriptor.
        let checked = self.before.checked_sub(then.ever).filter(|kib| *kib <= self.block);
        match (then.is_mounted, self.is_mounted) {
            (true, false) => Err(Reason::Unmounted),
            (false, false) if self == then => Ok(()),
            (false, false) => Err(Reason::Written),
            (true, true) if (self.mounts, self.before) != (then.mounts, then.before) => Err(Reason::Mounted),
            (true, true) if self.ever == then.ever => Ok(()),
            (true, true) => Err(Reason::Written),
            (false, true) if checked.is_none() => Err(Reason::Written),
            (false, true) if self.mounts != then.mounts.wrapping_add(1) => Err(Reason::Mounted),
            (false, true) if is_fresh && self.free != then.free => Err(Reason::Written),
            (false, true) if is_fresh => Ok(()),
            (false, true) if heard == FreeCoverage::FromNow => Err(Reason::Early),
            // Only of a fresh one can the free blocks be compared.
            (false, true) if checked == Some(0) => Ok(()),
            (false, true) => Err(Reason::Written),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unmounted() -> Written {
        Written { is_mounted: false, mounts: 7, before: 500, ever: 500, block: 4, free: 90, changed: 11 }
    }

    /// As the kernel tells it when it has just mounted that.
    fn mounted() -> Written {
        Written { is_mounted: true, mounts: 8, before: 500, ever: 504, block: 4, free: 90, changed: 0 }
    }

    #[test]
    fn every_counter_decides_whether_a_state_follows() {
        let follows = |now: Written, heard| now.follows(&unmounted(), heard);
        assert_eq!(follows(mounted(), FreeCoverage::FromNow), Ok(()));
        let busy = Written { ever: 516, free: 80, ..mounted() };
        assert_eq!(follows(busy.clone(), FreeCoverage::SinceMount), Ok(()));
        assert_eq!(follows(busy.clone(), FreeCoverage::FromNow), Err(Reason::Early));
        let freed = Written { free: 91, ..mounted() };
        assert_eq!(follows(freed, FreeCoverage::SinceMount), Err(Reason::Written));
        let checked = Written { before: 504, ever: 508, ..mounted() };
        assert_eq!(follows(checked.clone(), FreeCoverage::FromNow), Ok(()));
        let busy_again = Written { ever: 520, ..checked };
        assert_eq!(follows(busy_again, FreeCoverage::SinceMount), Err(Reason::Written));
        for before in [499, 505] {
            let elsewhere = Written { before, ever: before + 4, ..mounted() };
            assert_eq!(follows(elsewhere, FreeCoverage::SinceMount), Err(Reason::Written));
        }
        let twice = Written { mounts: 9, ..mounted() };
        assert_eq!(follows(twice, FreeCoverage::SinceMount), Err(Reason::Mounted));
        assert_eq!(
            follows(Written { changed: 12, ..unmounted() }, FreeCoverage::FromNow),
            Err(Reason::Written)
        );
        assert_eq!(unmounted().follows(&mounted(), FreeCoverage::SinceMount), Err(Reason::Unmounted));
        assert_eq!(busy.follows(&busy, FreeCoverage::FromNow), Ok(()));
        assert_eq!(busy.follows(&mounted(), FreeCoverage::SinceMount), Err(Reason::Written));
        let wrapped = Written { mounts: u16::MAX, ..unmounted() };
        assert_eq!(Written { mounts: 0, ..mounted() }.follows(&wrapped, FreeCoverage::FromNow), Ok(()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), START), is_ext4 in any::<bool>()) {
            let mut start: [u8; START] = bytes.try_into().unwrap();
            if is_ext4 {
                start[AT + 0x38..][..2].copy_from_slice(&MAGIC.to_le_bytes());
            }
            _ = Superblock::parse(&start);
        }
    }
}
