//! The disks behind what users name: a device, a mount point, or any file.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::{BlockDevice, BlockError};
use crate::btrfs;
use crate::mount::{MountError, covering, mounts};

/// Why there is no disk behind a path.
#[derive(Debug, thiserror::Error)]
pub enum NamedError {
    /// There is nothing at the path.
    #[error("cannot open {}", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The path lies on no block device.
    #[error("{} is on {fstype}, which is on no block device; name a device or what is mounted from one", path.display())]
    NoDevice {
        /// The path.
        path: PathBuf,
        /// The file system it is on.
        fstype: String,
    },
    /// Sysfs doesn't know the device.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The mounts can't be listed.
    #[error(transparent)]
    Mount(#[from] MountError),
}

/// The whole disks that `path` is, or that the file system it is on lies on: several where a btrfs
/// does. `sysfs` and `procfs` are where these are mounted.
///
/// # Errors
/// [`NamedError`].
pub fn disks(sysfs: &Path, procfs: &Path, path: &Path) -> Result<Vec<BlockDevice>, NamedError> {
    let open = |source| NamedError::Open { path: path.to_owned(), source };
    let place = path.canonicalize().map_err(open)?;
    if fs::metadata(&place).map_err(open)?.file_type().is_block_device() {
        return Ok(vec![BlockDevice::open(sysfs, &place)?.whole()]);
    }
    let mounts = mounts(procfs)?;
    let Some(mount) = covering(&mounts, &place) else { return Err(open(io::ErrorKind::NotFound.into())) };
    let device = BlockDevice::numbered(sysfs, mount.number)
        .or_else(|| BlockDevice::open(sysfs, &mount.source).ok())
        .ok_or_else(|| NamedError::NoDevice { path: path.to_owned(), fstype: mount.fstype.clone() })?;
    let members = btrfs::member_names(sysfs, &device.name());
    let members = members.iter().filter_map(|name| BlockDevice::at(&sysfs.join("class/block").join(name)));
    let mut disks = Vec::new();
    for disk in std::iter::once(device).chain(members).map(|device| device.whole()) {
        if !disks.contains(&disk) {
            disks.push(disk);
        }
    }
    Ok(disks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose root is `/` on sda1, with a btrfs over sda2 and sdb mounted at `target`.
    fn machine(target: &Path) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let (sysfs, procfs) = (root.path().join("sys"), root.path().join("proc"));
        for device in ["sda", "sda/sda1", "sda/sda2", "sdb"] {
            let directory = sysfs.join("devices").join(device);
            fs::create_dir_all(&directory).unwrap();
            let name = directory.file_name().unwrap();
            if device.contains('/') {
                fs::write(directory.join("partition"), "1").unwrap();
            }
            for by in ["class/block", "dev/block"] {
                fs::create_dir_all(sysfs.join(by)).unwrap();
            }
            std::os::unix::fs::symlink(&directory, sysfs.join("class/block").join(name)).unwrap();
        }
        std::os::unix::fs::symlink(sysfs.join("devices/sda/sda1"), sysfs.join("dev/block/8:1")).unwrap();
        for member in ["sda2", "sdb"] {
            fs::create_dir_all(sysfs.join("fs/btrfs/aaaa/devices").join(member)).unwrap();
        }
        fs::create_dir_all(procfs.join("self")).unwrap();
        let lines = format!(
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n40 22 0:44 / {} rw - btrfs /dev/sda2 rw\n\
             41 22 0:5 / /dev rw - devtmpfs udev rw\n",
            target.display()
        );
        fs::write(procfs.join("self/mountinfo"), lines).unwrap();
        (root, sysfs, procfs)
    }

    #[test]
    fn disks_behind_a_path_are_found() {
        let target = tempfile::tempdir().unwrap();
        let (_root, sysfs, procfs) = machine(target.path());
        let names = |path: &Path| {
            let disks = disks(&sysfs, &procfs, path).unwrap();
            disks.iter().map(BlockDevice::name).collect::<Vec<_>>()
        };
        assert_eq!(names(Path::new("/")), ["sda"]);
        assert_eq!(names(target.path()), ["sda", "sdb"]);
        let file = target.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(names(&file), ["sda", "sdb"]);
    }

    #[test]
    fn path_without_a_device_is_refused() {
        let target = tempfile::tempdir().unwrap();
        let (_root, sysfs, procfs) = machine(target.path());
        let refused = |path: &str| disks(&sysfs, &procfs, Path::new(path)).unwrap_err().to_string();
        assert!(refused("/dev/null").contains("/dev/null is on devtmpfs, which is on no block device"));
        assert_eq!(refused("/nonexistent/x"), "cannot open /nonexistent/x");
    }
}
