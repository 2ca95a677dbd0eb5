//! Finds contents that wipefs passes over: images of other formats, metadata of the device mapper, and file
//! systems whose first superblock is gone but not the copies of it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A signature: its name, where it is, and what is there.
type Magic = (&'static str, u64, &'static [u8]);

/// Signatures at fixed places. Sources: QEMU's `docs/interop/qcow2.rst` and
/// `block/{qed,vdi,vhdx,vmdk,vpc}.c`; the kernel's `drivers/md/dm-{thin,cache,clone,era}*.c`.
const IMAGES: [Magic; 13] = [
    ("a qcow2 image", 0, b"QFI\xfb"),
    ("a QED image", 0, b"QED\0"),
    ("a VHDX image", 0, b"vhdxfile"),
    ("a VHD image", 0, b"conectix"),
    ("a VMDK image", 0, b"KDMV"),
    ("a VMDK image", 0, b"COWD"),
    ("a VMDK image", 0, b"# Disk DescriptorFile"),
    ("a VDI image", 0x40, &0xbeda_107f_u32.to_le_bytes()),
    ("metadata of dm-thin", 32, &27_022_010_u64.to_le_bytes()),
    ("metadata of dm-cache", 32, &0o6_142_003_u64.to_le_bytes()),
    ("metadata of dm-clone", 32, &0x8af2_7f64_u64.to_le_bytes()),
    ("metadata of dm-era", 32, &2_126_579_579_u64.to_le_bytes()),
    ("a backup of f2fs", 0x1400, &0xf2f5_2010_u32.to_le_bytes()),
];

/// The longest of them, and more than is looked at of any copy of a superblock.
const BLOCK: usize = 512;

/// In how many parts an XFS may be divided for its second to be found.
const MOST_GROUPS: u64 = 64;

/// Returns the names of all such contents on a device with `size` bytes.
///
/// # Errors
/// The kernel's error where it can't be read.
pub(super) fn remains(device: &File, size: u64) -> io::Result<Vec<&'static str>> {
    let mut found = Vec::new();
    let mut is_there = |name: &'static str, at: u64, test: &dyn Fn(&[u8; BLOCK]) -> bool| -> io::Result<()> {
        if !found.contains(&name) && at.checked_add(BLOCK as u64).is_some_and(|end| end <= size) {
            let mut block = [0; BLOCK];
            device.read_exact_at(&mut block, at)?;
            if test(&block) {
                found.push(name);
            }
        }
        Ok(())
    };
    for (name, at, magic) in IMAGES {
        let (start, inside) = (at - at % BLOCK as u64, (at % BLOCK as u64) as usize);
        is_there(name, start, &|block| block[inside..].starts_with(magic))?;
    }
    is_there("a VHD image", size.saturating_sub(512), &|block| block.starts_with(b"conectix"))?;
    for sector in [512, 4096] {
        let last = size.saturating_sub(sector);
        is_there("a backup of gpt", last, &|block| block.starts_with(b"EFI PART"))?;
        is_there("a backup of ntfs", last, &|block| block[3..].starts_with(b"NTFS    "))?;
        is_there("a backup of exfat", 12 * sector, &|block| block[3..].starts_with(b"EXFAT   "))?;
        is_there("a backup of vfat", 6 * sector, &|block| block[82..].starts_with(b"FAT32   "))?;
    }
    for (at, size, group) in ext_copies() {
        is_there("a backup of ext4", at, &|block| is_ext_copy(block, size, group))?;
    }
    for at in [64 << 20, 256 << 30] {
        let is_copy = |block: &[u8; BLOCK]| block[64..].starts_with(b"_BHRfS_M") && le64(block, 48) == at;
        is_there("a backup of btrfs", at, &is_copy)?;
    }
    for at in xfs_copies(size) {
        is_there("a backup of xfs", at, &|block| is_xfs_copy(block, at))?;
    }
    Ok(found)
}

/// Where ext2, ext3 and ext4 keep the first copies of their superblock, for each size of block, with the number
/// of the group. See the kernel's `Documentation/filesystems/ext4/blockgroup.rst`.
fn ext_copies() -> impl Iterator<Item = (u64, u32, u16)> {
    (0..=6_u32).flat_map(|size| {
        let block = 1024_u64 << size;
        let first = u64::from(size == 0);
        [1, 3, 5, 7].map(|group: u16| ((u64::from(group) * 8 * block + first) * block, size, group))
    })
}

/// Whether `block` begins with a superblock of the group `group`, for blocks of 1 KiB shifted by `size`.
fn is_ext_copy(block: &[u8; BLOCK], size: u32, group: u16) -> bool {
    block[0x38..].starts_with(&[0x53, 0xef])
        && block[0x18..].starts_with(&size.to_le_bytes())
        && block[0x5a..].starts_with(&group.to_le_bytes())
}

/// Where the second allocation group of an XFS on all of a device with `size` bytes may begin: mkfs.xfs divides
/// it in equal parts, of at most 1 TiB.
fn xfs_copies(size: u64) -> impl Iterator<Item = u64> {
    let blocks = size / 4096;
    let parts =
        (2..=MOST_GROUPS).flat_map(move |parts| [blocks.div_ceil(parts) * 4096, blocks / parts * 4096]);
    parts.chain([1 << 40, (1 << 40) - 4096])
}

/// Whether `block`, which is at `at`, is the superblock of any allocation group but the first.
fn is_xfs_copy(block: &[u8; BLOCK], at: u64) -> bool {
    let be32 =
        |from: usize| u64::from(u32::from_be_bytes(*block[from..].first_chunk().expect("it is long enough")));
    let group = be32(84) * be32(4);
    block.starts_with(b"XFSB") && group > 0 && at.is_multiple_of(group)
}

fn le64(block: &[u8; BLOCK], from: usize) -> u64 {
    u64::from_le_bytes(*block[from..].first_chunk().expect("it is long enough"))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};
    use std::thread;
    use std::time::Duration;

    use super::*;

    const SIZE: u64 = 320 << 20;

    /// A sparse file of this size; what is written into it, and where.
    fn image(written: &[(u64, &[u8])]) -> tempfile::NamedTempFile {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(SIZE).unwrap();
        written.iter().for_each(|(at, bytes)| image.as_file().write_all_at(bytes, *at).unwrap());
        image
    }

    #[test]
    fn nothing_is_found_in_nothing() {
        assert!(remains(image(&[]).as_file(), SIZE).unwrap().is_empty());
        for size in [0, 512, 1536, 70 << 10] {
            assert!(remains(image(&[]).as_file(), size).unwrap().is_empty());
        }
    }

    #[test]
    fn every_image_is_known() {
        for (name, at, magic) in IMAGES {
            assert_eq!(remains(image(&[(at, magic)]).as_file(), SIZE).unwrap(), [name]);
        }
        for (at, magic, name) in [
            (SIZE - 512, &b"conectix"[..], "a VHD image"),
            (SIZE - 512, b"EFI PART", "a backup of gpt"),
            (SIZE - 4096, b"EFI PART", "a backup of gpt"),
        ] {
            assert_eq!(remains(image(&[(at, magic)]).as_file(), SIZE).unwrap(), [name]);
        }
    }

    #[test]
    fn copies_say_where_they_are() {
        let mut copy = [0; BLOCK];
        copy[64..72].copy_from_slice(b"_BHRfS_M");
        copy[48..56].copy_from_slice(&(64_u64 << 20).to_le_bytes());
        assert_eq!(remains(image(&[(64 << 20, &copy)]).as_file(), SIZE).unwrap(), ["a backup of btrfs"]);
        copy[48] = 1;
        assert!(remains(image(&[(64 << 20, &copy)]).as_file(), SIZE).unwrap().is_empty());
    }

    #[test]
    fn file_systems_are_known_by_their_copies_alone() {
        for (program, arguments, name) in [
            ("mkfs.ext4", &["-q", "-F", "-b", "1024"][..], "a backup of ext4"),
            ("mkfs.ext4", &["-q", "-F", "-b", "4096"], "a backup of ext4"),
            ("mkfs.ext2", &["-q", "-F", "-b", "2048"], "a backup of ext4"),
            ("mkfs.xfs", &["-q", "-f"], "a backup of xfs"),
            ("mkfs.btrfs", &["-q", "-f"], "a backup of btrfs"),
        ] {
            let image = image(&[]);
            let make = || Command::new(program).args(arguments).arg(image.path()).output();
            let mut made = make();
            // mkfs.btrfs looks at every mount, and fails while one of another program's is going away.
            let met_such_a_mount =
                |made: &Output| String::from_utf8_lossy(&made.stderr).contains("cannot check mount status");
            let mut left = 50;
            while left > 0 && made.as_ref().is_ok_and(met_such_a_mount) {
                thread::sleep(Duration::from_millis(200));
                made = make();
                left -= 1;
            }
            let Ok(made) = made else {
                assert!(
                    std::env::var_os("CI").is_none(),
                    "a test that needs {program} cannot be skipped in CI"
                );
                eprintln!("skipped: it needs {program}");
                continue;
            };
            assert!(made.status.success(), "{program}: {}", String::from_utf8_lossy(&made.stderr));
            image.as_file().write_all_at(&[0; 1 << 20], 0).unwrap();
            assert_eq!(remains(image.as_file(), SIZE).unwrap(), [name], "{program} {arguments:?}");
        }
    }
}
