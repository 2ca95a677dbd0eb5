//! Erofs mounted straight from a file, since Linux 6.12: the kernel doesn't say which, but for a path that was
//! once right, and it keeps some of them where no list of mounts has them.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use crate::block::{BlockDevice, DeviceNumber, children};
use crate::identity::FileId;
use crate::limited;
use crate::mount::Namespace;

/// Where the superblock is, and how it begins.
const SUPERBLOCK: u64 = 1024;
const MAGIC: [u8; 4] = 0xE0F5_E1E2_u32.to_le_bytes();

/// Whether the file `id`, which may be found at `path` in one of `namespaces`, begins as an image of erofs
/// does; also where that can't be read.
pub(super) fn may_be_image(namespaces: &[Namespace], id: FileId, path: &Path) -> bool {
    let begins_so = |namespace: &Namespace| {
        let place = namespace.file(path);
        let magic = limited::in_time(move || {
            let file = File::open(place)?;
            let found = file.metadata()?;
            if (FileId { device: DeviceNumber::unpack(found.dev()), inode: found.ino() }) != id {
                return Ok(None);
            }
            let mut magic = [0; MAGIC.len()];
            file.read_exact_at(&mut magic, SUPERBLOCK)?;
            Ok(Some(magic))
        });
        Some(magic.ok()?? == MAGIC)
    };
    namespaces.iter().find_map(begins_so).unwrap_or(true)
}

/// Whether more erofs are mounted without a block device than `namespaces` have.
pub(super) fn has_hidden(sysfs: &Path, namespaces: &[Namespace]) -> bool {
    let is_on_file = |directory: &&std::path::PathBuf| {
        let name = directory.file_name().unwrap_or_default();
        name != "features" && BlockDevice::at(&sysfs.join("class/block").join(name)).is_none()
    };
    let all = children(&sysfs.join("fs/erofs")).iter().filter(is_on_file).count();
    let mounts = namespaces.iter().flat_map(|namespace| &namespace.mounts);
    let mut listed: Vec<_> =
        mounts.filter(|mount| is_on_file_only(mount)).map(|mount| mount.number).collect();
    listed.sort_by_key(|number| number.minor);
    listed.dedup();
    all > listed.len()
}

/// Whether this is an erofs on no block device.
pub(super) fn is_on_file_only(mount: &crate::mount::Mount) -> bool {
    mount.fstype == "erofs" && mount.number.major == 0
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::captured::Captured;
    use crate::identity;

    #[test]
    fn images_are_known_by_their_superblocks() {
        let machine = Captured::new().file("zeros", [0; 4096]).file("short", "");
        let mut image = vec![0; 4096];
        image[1024..1028].copy_from_slice(&[0xe2, 0xe1, 0xf5, 0xe0]);
        let machine = machine.file("image", image);
        let namespaces = [Namespace::new(machine.root().to_owned(), None, Vec::new())];
        for (name, expected) in [("image", true), ("zeros", false), ("short", true)] {
            let id = identity::file_at(&machine.root().join(name)).unwrap();
            assert_eq!(may_be_image(&namespaces, id, &Path::new("/").join(name)), expected, "{name}");
            assert!(may_be_image(&namespaces, id, Path::new("/other")), "it is found nowhere");
        }
    }

    #[test]
    fn those_that_no_list_of_mounts_has_are_counted() {
        let machine = Captured::new().device("loop0", "7:0", &[]);
        let lines = b"40 1 0:33 / /m rw - erofs e.img ro\n41 1 0:33 / /n rw - erofs e.img ro\n";
        let namespaces = [Namespace::new("/".into(), None, crate::mount::parse(lines))];
        let sysfs = machine.sysfs();
        let mut add = |name: &str| {
            fs::create_dir_all(sysfs.join("fs/erofs").join(name)).unwrap();
            has_hidden(&sysfs, &namespaces)
        };
        assert_eq!(["features", "loop0", "erofs-3", "erofs-4"].map(&mut add), [false, false, false, true]);
    }
}
