//! How much of a thin pool of the device mapper is in use. The texts are those of the kernel's
//! Documentation/admin-guide/device-mapper/thin-provisioning.rst.

use std::fs::File;
use std::path::Path;

use trimtab_core::Bytes;

use crate::block::DeviceNumber;
use crate::ioctl::{MapLine, device_status_unflushed};

/// The size of a block of the metadata.
const METADATA_BLOCK: u64 = 4096;
/// The unit of sizes in a table.
const SECTOR: u64 = 512;

/// How much of a thin pool is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUsage {
    /// Bytes of the data device that thin volumes use.
    pub used: Bytes,
    /// Bytes of the data device.
    pub size: Bytes,
    /// Bytes of the metadata device in use.
    pub metadata_used: Bytes,
    /// Bytes of the metadata device.
    pub metadata_size: Bytes,
}

impl PoolUsage {
    /// Asks the kernel for the usage of the pool `device`, whose table is `table`; `None` if it is no thin pool, or
    /// the kernel doesn't say, as of a pool that failed. The call blocks while the pool's metadata can't be
    /// written.
    pub fn read(device: DeviceNumber, table: &[MapLine]) -> Option<Self> {
        let [line] = table else { return None };
        if line.target != "thin-pool" {
            return None;
        }
        let control = File::open(Path::new("/dev/mapper/control")).ok()?;
        let status = device_status_unflushed(control, device).ok()?;
        Self::parse(&line.parameters, &status.first()?.parameters)
    }

    /// Parses the parameters of a pool's table, `METADATA DATA BLOCK_SIZE ...`, and its status,
    /// `TRANSACTION USED/ALL USED/ALL ...`: blocks of the metadata, blocks of the data.
    fn parse(table: &str, status: &str) -> Option<Self> {
        let sectors: u64 = table.split_whitespace().nth(2)?.parse().ok()?;
        let block = sectors.checked_mul(SECTOR)?;
        let mut words = status.split_whitespace().skip(1);
        let mut pair = |block: u64| {
            let (used, all) = words.next()?.split_once('/')?;
            let bytes = |blocks: &str| Some(Bytes(blocks.parse::<u64>().ok()?.checked_mul(block)?));
            Some((bytes(used)?, bytes(all)?))
        };
        let (metadata_used, metadata_size) = pair(METADATA_BLOCK)?;
        let (used, size) = pair(block)?;
        Some(Self { used, size, metadata_used, metadata_size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_usage_is_in_bytes() {
        let table = "252:1 252:2 128 0 1 skip_block_zeroing";
        let status = "1 12/1024 300/4096 - rw discard_passdown queue_if_no_space - 1024";
        let expected = PoolUsage {
            used: Bytes(300 << 16),
            size: Bytes(4096 << 16),
            metadata_used: Bytes(12 << 12),
            metadata_size: Bytes(1024 << 12),
        };
        assert_eq!(PoolUsage::parse(table, status), Some(expected));
        for failed in ["Fail", "Error", "1 12/1024", "1 12/1024 300/x", "1 12/1024 18446744073709551615/1"] {
            assert_eq!(PoolUsage::parse(table, failed), None, "{failed}");
        }
    }
}
