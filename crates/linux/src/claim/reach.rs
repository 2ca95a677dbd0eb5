//! The length that the user of a partition relies on: the kernel lets a partition shrink while it is in use.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{OFlags, statvfs};

use crate::block::{BlockDevice, DeviceNumber};
use crate::limited;

/// The bytes at the beginning that hold every superblock read here.
const HEAD: usize = (64 << 10) + 4096;

/// Returns whether the kernel may have claimed `device` for something: a mount that no list shows, an array, the journal or
/// a further device of a file system.
pub(super) fn is_claimed(device: &BlockDevice) -> bool {
    // A device that cannot be asked counts as claimed.
    device.open_node(OFlags::EXCL).is_err()
}

/// Whether `device` can be read at its beginning, or fails at once.
pub(super) fn answers(device: &BlockDevice) -> bool {
    let device = device.clone();
    limited::ask(move || head(&device)).answer().is_some()
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

/// Returns the length of the file system or swap that `device` holds; `None` if its kind is not known here.
pub(super) fn contents(device: &BlockDevice) -> Option<u64> {
    length(&head(device)?)
}

/// Returns the length of the file system of `device`, which is mounted on `target`: what its superblock says or, if that is
/// more, what the kernel says. XFS brings a superblock to the disk long after it was grown, and past the page cache. None if
/// the kind is not known here, or another file system hides an XFS.
pub(super) fn mounted(device: &BlockDevice, target: &Path) -> Option<u64> {
    let head = head(device)?;
    let length = length(&head)?;
    if !head.starts_with(b"XFSB") {
        return Some(length);
    }
    let target = target.to_owned();
    let asked = limited::in_time(move || Ok((fs::metadata(&target)?.dev(), statvfs(&target)?)));
    let (mounted, found) = asked.ok()?;
    if DeviceNumber::unpack(mounted) != device.number().ok()? {
        return None;
    }
    // The kernel leaves out the log, which never grows.
    let log = number(&head, 96, 4, Order::Big)?.checked_mul(number(&head, 4, 4, Order::Big)?)?;
    Some(length.max(found.f_blocks.checked_mul(found.f_frsize)?.checked_add(log)?))
}

fn head(device: &BlockDevice) -> Option<Vec<u8>> {
    let mut head = vec![0; HEAD];
    device.open_node(OFlags::empty()).ok()?.read_exact_at(&mut head, 0).ok()?;
    Some(head)
}

/// The order of the bytes of a number.
#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}

/// Returns the number of `length` bytes at `at`.
fn number(head: &[u8], at: usize, length: usize, order: Order) -> Option<u64> {
    let bytes = head.get(at..at + length)?;
    let append = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    Some(match order {
        Order::Little => bytes.iter().rev().fold(0, append),
        Order::Big => bytes.iter().fold(0, append),
    })
}

/// Returns the length that the superblock in `head` gives; the longest if it holds rests of others as well, `None` if one of
/// them is absurd. Layouts: `fs/ext4/ext4.h`, `fs/xfs/libxfs/xfs_format.h`, `include/uapi/linux/btrfs_tree.h`,
/// `include/linux/f2fs_fs.h`, `include/linux/swap.h`, `include/uapi/linux/msdos_fs.h` and `fs/ntfs3/ntfs.h` of the kernel, and
/// Microsoft's specification of exFAT.
fn length(head: &[u8]) -> Option<u64> {
    let kinds =
        [ext(head), xfs(head), btrfs(head), f2fs(head), swap(head), exfat(head), fat(head), ntfs(head)];
    let found: Option<Vec<_>> = kinds.into_iter().flatten().collect();
    found?.into_iter().max()
}

fn little(head: &[u8], at: usize, length: usize) -> Option<u64> {
    number(head, at, length, Order::Little)
}

fn is_at(head: &[u8], at: usize, magic: &[u8]) -> bool {
    head.get(at..at + magic.len()) == Some(magic)
}

// Each of these returns none where `head` has no superblock of its kind, and `Some(None)` where that gives an absurd length.

fn ext(head: &[u8]) -> Option<Option<u64>> {
    let at = 1024;
    is_at(head, at + 56, &[0x53, 0xef]).then(|| {
        let is_64_bit = little(head, at + 96, 4)? & 0x80 != 0;
        let high = if is_64_bit { little(head, at + 0x150, 4)? } else { 0 };
        let blocks = little(head, at + 4, 4)? | high << 32;
        blocks.checked_mul(1024_u64.checked_shl(little(head, at + 24, 4)? as u32)?)
    })
}

fn xfs(head: &[u8]) -> Option<Option<u64>> {
    is_at(head, 0, b"XFSB")
        .then(|| number(head, 8, 8, Order::Big)?.checked_mul(number(head, 4, 4, Order::Big)?))
}

fn btrfs(head: &[u8]) -> Option<Option<u64>> {
    let at = 64 << 10;
    // The second field of the device's item.
    is_at(head, at + 64, b"_BHRfS_M").then(|| little(head, at + 201 + 8, 8))
}

fn f2fs(head: &[u8]) -> Option<Option<u64>> {
    is_at(head, 1024, &[0x10, 0x20, 0xf5, 0xf2]).then(|| {
        little(head, 1024 + 36, 8)?.checked_mul(1_u64.checked_shl(little(head, 1024 + 16, 4)? as u32)?)
    })
}

fn swap(head: &[u8]) -> Option<Option<u64>> {
    is_at(head, 4096 - 10, b"SWAPSPACE2").then(|| (little(head, 1024 + 4, 4)? + 1).checked_mul(4096))
}

fn exfat(head: &[u8]) -> Option<Option<u64>> {
    is_at(head, 3, b"EXFAT   ")
        .then(|| little(head, 72, 8)?.checked_mul(1_u64.checked_shl(little(head, 108, 1)? as u32)?))
}

fn fat(head: &[u8]) -> Option<Option<u64>> {
    (is_at(head, 54, b"FAT") || is_at(head, 82, b"FAT")).then(|| {
        let few = little(head, 19, 2)?;
        little(head, 11, 2)?.checked_mul(if few == 0 { little(head, 32, 4)? } else { few })
    })
}

fn ntfs(head: &[u8]) -> Option<Option<u64>> {
    // The copy of the boot sector follows the last sector that is counted.
    is_at(head, 3, b"NTFS    ")
        .then(|| little(head, 40, 8)?.checked_add(1)?.checked_mul(little(head, 11, 2)?))
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
        let ntfs = head(&[(3, b"NTFS    "), (11, &[0, 2]), (40, &[0xff, 0xff, 3])]);
        assert_eq!(length(&ntfs), Some(0x40000 * 512));
        let rest = head(&[
            (1024 + 4, &[0, 0x10, 0, 0]),
            (1024 + 24, &[2]),
            (1024 + 56, &[0x53, 0xef]),
            ((64 << 10) + 64, b"_BHRfS_M"),
            ((64 << 10) + 209, &[0, 0, 0, 4]),
        ]);
        assert_eq!(length(&rest), Some(4 << 24), "the rest of an ext4 does not hide a btrfs");
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
