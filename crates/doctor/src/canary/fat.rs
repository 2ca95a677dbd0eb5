//! Finds where the data of a FAT or exFAT file system begins.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use trimtab_core::Bytes;

/// The first cluster of data has this number.
const FIRST_CLUSTER: u64 = 2;

/// Returns how much lower the trim address of a byte of `device` is than its device address. The trim address
/// space counts clusters from zero, although the first cluster has the number 2.
///
/// # Errors
/// Errors of reading, or `InvalidData` if the first sector is neither FAT nor exFAT.
pub(super) fn skipped(device: &File) -> io::Result<Bytes> {
    let mut sector = [0; 512];
    device.read_exact_at(&mut sector, 0)?;
    let found = if sector[3..11] == *b"EXFAT   " { exfat(&sector) } else { fat(&sector) };
    found
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its first sector is not FAT's or exFAT's"))
}

/// See "FAT: General Overview of On-Disk Format", version 1.03, "Boot Sector and BPB Structure".
fn fat(sector: &[u8; 512]) -> Option<Bytes> {
    let short = |at: usize| u64::from(u16::from_le_bytes([sector[at], sector[at + 1]]));
    let (bytes, cluster) = (short(11), u64::from(sector[13]));
    let table = match short(22) {
        0 => u64::from(u32::from_le_bytes([sector[36], sector[37], sector[38], sector[39]])),
        sectors => sectors,
    };
    let root = (short(17) * 32).div_ceil(Some(bytes).filter(|bytes| *bytes > 0)?);
    let data = short(14) + u64::from(sector[16]) * table + root;
    (data * bytes).checked_sub(FIRST_CLUSTER * cluster * bytes).map(Bytes)
}

/// See "exFAT File System Specification", "Main and Backup Boot Sector Sub-regions".
fn exfat(sector: &[u8; 512]) -> Option<Bytes> {
    let heap = u64::from(u32::from_le_bytes([sector[88], sector[89], sector[90], sector[91]]));
    let (bytes, sectors) = (u32::from(sector[108]), u32::from(sector[109]));
    let (bytes, sectors) = (1_u64.checked_shl(bytes)?, 1_u64.checked_shl(sectors)?);
    heap.checked_mul(bytes)?.checked_sub(sectors.checked_mul(bytes)?.checked_mul(FIRST_CLUSTER)?).map(Bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A first sector that holds these numbers, each of this many bytes.
    fn sector(numbers: &[(usize, usize, u32)]) -> [u8; 512] {
        let mut sector = [0; 512];
        for (at, length, number) in numbers {
            sector[*at..at + length].copy_from_slice(&number.to_le_bytes()[..*length]);
        }
        sector
    }

    #[test]
    fn first_cluster_follows_the_tables() {
        // FAT16: a reserved sector, two tables of 32 sectors, 512 root entries, clusters of 4 sectors.
        let fat16 = [(11, 2, 512), (13, 1, 4), (14, 2, 1), (16, 1, 2), (17, 2, 512), (22, 2, 32)];
        assert_eq!(fat(&sector(&fat16)), Some(Bytes((1 + 64 + 32 - 8) * 512)));
        let fat32 = [(11, 2, 512), (13, 1, 8), (14, 2, 32), (16, 1, 2), (36, 4, 1000)];
        assert_eq!(fat(&sector(&fat32)), Some(Bytes((32 + 2000 - 16) * 512)));
        assert_eq!(
            exfat(&sector(&[(88, 4, 4096), (108, 1, 9), (109, 1, 3)])),
            Some(Bytes((4096 - 16) * 512))
        );
        assert_eq!(fat(&[0; 512]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_sector_never_panics(bytes in prop::collection::vec(any::<u8>(), 512)) {
            let bytes: [u8; 512] = bytes.try_into().unwrap();
            let _ = (fat(&bytes), exfat(&bytes));
        }
    }
}
