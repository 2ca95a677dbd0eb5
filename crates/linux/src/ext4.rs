//! How an ext4 divides its device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use trimtab_core::{Bytes, Extent};

/// The magic number of ext2, ext3 and ext4 (include/uapi/linux/magic.h).
pub const MAGIC: i64 = 0xef53;

/// Where the superblock is, and how much of it is read.
const SUPERBLOCK: u64 = 1024;
const HEAD: usize = 64;

/// The block groups of an ext4: it allocates, and trims, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    /// Where the first begins.
    pub first: Bytes,
    /// How long each is but for the last, which ends where the file system does.
    pub length: Bytes,
}

impl Groups {
    /// The group that has the byte at `address`; the first where it lies before that.
    pub fn at(&self, address: Bytes) -> Extent {
        let number = address.saturating_sub(self.first).0 / self.length.0;
        Extent::at(self.first + Bytes(number * self.length.0), self.length)
    }

    /// Reads the superblock's head: the places are those of the kernel's `struct ext4_super_block`.
    fn parse(head: &[u8; HEAD]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
        if word(0x38) & 0xffff != 0xef53 {
            return None;
        }
        // The kernel takes blocks of 1 KiB to 64 KiB.
        let block = Some(word(0x18)).filter(|log| *log <= 6).map(|log| 1024_u64 << log)?;
        let (first, length) = (u64::from(word(0x14)) * block, u64::from(word(0x20)) * block);
        (length > 0).then_some(Self { first: Bytes(first), length: Bytes(length) })
    }
}

/// The groups of the ext2, ext3 or ext4 on the device at the path `device`; none where there is no such
/// file system.
///
/// # Errors
/// The kernel's error where the device can't be read.
pub fn groups(device: &Path) -> io::Result<Option<Groups>> {
    let mut head = [0; HEAD];
    File::open(device)?.read_exact_at(&mut head, SUPERBLOCK)?;
    Ok(Groups::parse(&head))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    fn superblock(first: u32, log_block: u32, blocks: u32) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[0x14..0x18].copy_from_slice(&first.to_le_bytes());
        head[0x18..0x1c].copy_from_slice(&log_block.to_le_bytes());
        head[0x20..0x24].copy_from_slice(&blocks.to_le_bytes());
        head[0x38..0x3a].copy_from_slice(&[0x53, 0xef]);
        head
    }

    #[test]
    fn groups_lie_end_to_end() {
        let groups = Groups::parse(&superblock(0, 2, 32768)).unwrap();
        assert_eq!(groups, Groups { first: Bytes(0), length: Bytes(128 << 20) });
        let groups = Groups::parse(&superblock(1, 0, 8192)).unwrap();
        assert_eq!(groups.at(Bytes(0)), Extent::at(Bytes(1024), Bytes(8 << 20)));
        let second = Extent::at(Bytes(1024 + (8 << 20)), Bytes(8 << 20));
        assert_eq!([second.start, Bytes(second.end.0 - 1)].map(|at| groups.at(at)), [second, second]);
        assert_eq!(Groups::parse(&[0; HEAD]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_superblock_causes_no_panic(mut head in proptest::collection::vec(any::<u8>(), HEAD), at: u64) {
            head[0x38..0x3a].copy_from_slice(&[0x53, 0xef]);
            if let Some(groups) = Groups::parse(&head.try_into().unwrap()) {
                // All that the kernel addresses is below the largest offset of a file.
                groups.at(Bytes(at / 2));
            }
        }
    }
}
