//! Units in which a device takes discards.

use trimtab_core::{Bytes, DiscardUnits};
use trimtab_linux::block::BlockDevice;

/// The block of most file systems, in bytes.
const BLOCK: u64 = 4096;

/// Returns the units in which the first of `devices` takes discards, in its own addresses, and in those of a trim of an ext4 or
/// XFS on it. A btrfs has other addresses.
pub fn units_of(devices: &[BlockDevice]) -> DiscardUnits {
    // Units that begin within a block, as on a partition from sector 63 on, are none of a file system's.
    let is_of_blocks = |bytes: Bytes| bytes.0.is_multiple_of(BLOCK);
    let limits = devices.first().and_then(|device| device.discard_limits().ok());
    let limits = limits.filter(|limits| is_of_blocks(limits.granularity) && is_of_blocks(limits.alignment));
    limits
        .map_or_else(DiscardUnits::default, |limits| DiscardUnits::new(limits.granularity, limits.alignment))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn units_that_begin_within_a_block_are_none() {
        let root = tempfile::tempdir().unwrap();
        let units = |granularity: &str, alignment: &str| {
            let directory = root.path().join("class/block/trimtab-test-c");
            fs::create_dir_all(directory.join("queue")).unwrap();
            fs::write(directory.join("discard_alignment"), alignment).unwrap();
            fs::write(directory.join("queue/discard_granularity"), granularity).unwrap();
            for name in ["discard_max_bytes", "discard_max_hw_bytes", "write_zeroes_max_bytes"] {
                fs::write(directory.join("queue").join(name), "1073741824").unwrap();
            }
            units_of(&[BlockDevice::open(root.path(), Path::new("/dev/trimtab-test-c")).unwrap()])
        };
        assert_eq!(units("12288", "4096"), DiscardUnits::new(Bytes(12288), Bytes(4096)));
        assert_eq!(units("4096", "512"), DiscardUnits::default(), "a partition from sector 63 on");
    }
}
