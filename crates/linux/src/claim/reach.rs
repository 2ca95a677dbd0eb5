//! The length that the user of a partition relies on: the kernel lets a partition shrink while it is in use.

use std::fs;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;

use crate::block::BlockDevice;

/// The bytes at the beginning that hold every superblock read here.
const HEAD: usize = (64 << 10) + 4096;

/// Returns whether the kernel may have claimed `device` for something: a mount that no list shows, an array, the journal or
/// a further device of a file system.
pub(super) fn is_claimed(device: &BlockDevice) -> bool {
    // A device that cannot be asked counts as claimed.
    device.open_node(OFlags::EXCL).is_err()
}

/// Returns how many bytes of `member` the md array `array` uses; none where its superblock is at the end.
pub(super) fn of_array(array: &BlockDevice, member: &BlockDevice) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(array.attribute(&format!("md/{name}"))).ok();
    if !["1.1", "1.2"].contains(&read("metadata_version")?.trim()) {
        return None;
    }
    let number = |name: &str| read(&format!("dev-{}/{name}", member.name()))?.trim().parse::<u64>().ok();
    number("offset")?.checked_mul(512)?.checked_add(number("size")?.checked_mul(1024)?)
}

/// Returns how many bytes of the file or device below it the loop device `upper` uses.
pub(super) fn of_loop(upper: &BlockDevice) -> Option<u64> {
    let offset: u64 = fs::read_to_string(upper.attribute("loop/offset")).ok()?.trim().parse().ok()?;
    offset.checked_add(upper.size().ok()?.0)
}

/// Returns the length of the file system or swap that `device` holds; none if its kind is not known here.
pub(super) fn contents(device: &BlockDevice) -> Option<u64> {
    let mut head = vec![0; HEAD];
    device.open_node(OFlags::empty()).ok()?.read_exact_at(&mut head, 0).ok()?;
    length(&head)
}

/// Returns the length that the superblock in `head` gives. Layouts: `fs/ext4/ext4.h`, `fs/xfs/libxfs/xfs_format.h`,
/// `include/uapi/linux/btrfs_tree.h`, `include/linux/f2fs_fs.h`, `include/linux/swap.h` and
/// `include/uapi/linux/msdos_fs.h` of the kernel, and Microsoft's specification of exFAT.
fn length(head: &[u8]) -> Option<u64> {
    let bytes = |at: usize, length: usize| head.get(at..at + length);
    let little = |at, length| {
        bytes(at, length)
            .map(|bytes| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let big = |at, length| {
        bytes(at, length).map(|bytes| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let (ext, btrfs) = (1024, 64 << 10);
    if little(ext + 56, 2)? == 0xef53 {
        let is_64_bit = little(ext + 96, 4)? & 0x80 != 0;
        let high = if is_64_bit { little(ext + 0x150, 4)? } else { 0 };
        let blocks = little(ext + 4, 4)? | high << 32;
        return blocks.checked_mul(1024_u64.checked_shl(little(ext + 24, 4)? as u32)?);
    }
    if bytes(0, 4)? == b"XFSB" {
        return big(8, 8)?.checked_mul(big(4, 4)?);
    }
    if bytes(btrfs + 64, 8)? == b"_BHRfS_M" {
        // The second field of the device's item.
        return little(btrfs + 201 + 8, 8);
    }
    if little(1024, 4)? == 0xf2f5_2010 {
        return little(1024 + 36, 8)?.checked_mul(1_u64.checked_shl(little(1024 + 16, 4)? as u32)?);
    }
    if bytes(4096 - 10, 10)? == b"SWAPSPACE2" {
        return (little(1024 + 4, 4)? + 1).checked_mul(4096);
    }
    if bytes(3, 8)? == b"EXFAT   " {
        return little(72, 8)?.checked_mul(1_u64.checked_shl(little(108, 1)? as u32)?);
    }
    if bytes(54, 3)? == b"FAT" || bytes(82, 3)? == b"FAT" {
        let few = little(19, 2)?;
        return little(11, 2)?.checked_mul(if few == 0 { little(32, 4)? } else { few });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::Captured;

    #[test]
    fn node_of_another_device_is_no_proof() {
        // There is a `/dev/null`, which anyone can open.
        let machine = Captured::new().device("null", "8:0", &[]);
        assert!(is_claimed(&machine.open("null")));
    }

    fn head(fields: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; HEAD];
        for (at, bytes) in fields {
            head[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    #[test]
    fn superblocks_give_the_length() {
        let ext = |flags: u8| {
            head(&[
                (1024 + 4, &[0, 0x90, 1, 0]),
                (1024 + 24, &[2]),
                (1024 + 56, &[0x53, 0xef]),
                (1024 + 96, &[flags]),
                (1024 + 0x150, &[1]),
            ])
        };
        assert_eq!(length(&ext(0)), Some(0x19000 * 4096));
        assert_eq!(length(&ext(0x80)), Some((0x19000 + (1 << 32)) * 4096));
        let xfs = head(&[(0, b"XFSB"), (4, &[0, 0, 0x10, 0]), (8, &[0, 0, 0, 0, 0, 1, 0x90, 0])]);
        assert_eq!(length(&xfs), Some(0x19000 * 4096));
        let btrfs = head(&[((64 << 10) + 64, b"_BHRfS_M"), ((64 << 10) + 209, &[0, 0, 0, 4])]);
        assert_eq!(length(&btrfs), Some(4 << 24));
        let f2fs = head(&[(1024, &[0x10, 0x20, 0xf5, 0xf2]), (1024 + 16, &[12]), (1024 + 36, &[0, 1])]);
        assert_eq!(length(&f2fs), Some(256 * 4096));
        let swap = head(&[(1024 + 4, &[0xff]), (4096 - 10, b"SWAPSPACE2")]);
        assert_eq!(length(&swap), Some(256 * 4096));
        let exfat = head(&[(3, b"EXFAT   "), (72, &[0, 0, 1]), (108, &[9])]);
        assert_eq!(length(&exfat), Some(65536 * 512));
        let fat16 = head(&[(11, &[0, 2]), (19, &[0, 0x40]), (54, b"FAT16   ")]);
        assert_eq!(length(&fat16), Some(0x4000 * 512));
        let fat32 = head(&[(11, &[0, 2]), (32, &[0, 0, 2]), (82, b"FAT32   ")]);
        assert_eq!(length(&fat32), Some(0x20000 * 512));
        assert_eq!(length(&head(&[])), None);
        assert_eq!(length(&[]), None);
    }

    #[test]
    fn absurd_superblocks_have_no_length() {
        let ext = head(&[(1024 + 4, &[0xff; 4]), (1024 + 24, &[0xff; 4]), (1024 + 56, &[0x53, 0xef])]);
        assert_eq!(length(&ext), None);
        let xfs = head(&[(0, b"XFSB"), (4, &[0xff; 4]), (8, &[0xff; 8])]);
        assert_eq!(length(&xfs), None);
    }
}
