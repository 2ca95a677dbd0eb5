//! The mounted file systems, and notifications of changes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use trimtab_linux::block::{BlockDevice, DeviceNumber};
use trimtab_linux::mount::{self, Listed, Mount, listed_in};
use trimtab_linux::stack::{self, Machine, StackError};

use crate::state::file_system_id;

/// A file system on block devices that is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountedFileSystem {
    /// The mount that represents it.
    pub mount: Mount,
    /// All its mount points, first the mount point of `mount`.
    pub targets: Vec<PathBuf>,
    /// The ids of all its mounts. The kernel uses the id of a mount that is gone again.
    ids: BTreeSet<u64>,
    /// The number of its superblock: another after each mount. None if the kernel shows none.
    superblock: Option<u64>,
    /// Whether its line in `/etc/fstab` has X-fstrim.notrim.
    pub is_excluded: bool,
}

impl MountedFileSystem {
    /// Returns the file systems mounted on `machine`, each once.
    pub fn all(machine: &Machine) -> Result<Vec<Self>, StackError> {
        let mounts = mount::mounts(&machine.procfs())?;
        let visible = mount::visible(&mounts);
        // Without the list, nothing is excluded.
        let fstab = listed_in(&fs::read(machine.file("/etc/fstab")).unwrap_or_default());
        let mut found: Vec<Self> = Vec::new();
        for target in stack::targets(machine)? {
            // Swap has no mount.
            let Some(seen) = visible.iter().find(|mount| mount.target == target).copied() else { continue };
            let all = || mounts.iter().filter(|mount| mount.number == seen.number);
            let mut targets = vec![target];
            for mount in all() {
                if !targets.contains(&mount.target) {
                    targets.push(mount.target.clone());
                }
            }
            let is_its = |line: &Listed| line.is_on_device() && targets.contains(&line.target);
            let is_excluded = fstab.iter().any(|line| is_its(line) && line.is_excluded());
            let ids = all().map(|mount| mount.id).collect();
            let superblock = mount::superblock_number(&machine.sysfs(), seen);
            found.push(Self { mount: seen.clone(), targets, ids, superblock, is_excluded });
        }
        found.sort_by(|one, other| one.mount.target.cmp(&other.mount.target));
        Ok(found)
    }

    /// Returns its device number, which the kernel's events contain.
    pub fn number(&self) -> DeviceNumber {
        self.mount.number
    }

    /// Asks the file system, which is on `devices`, for its identifier; `None` if it can't be opened.
    pub fn id(&self, devices: &[BlockDevice]) -> Option<String> {
        let root = mount::open_of(&self.mount.target, devices).ok()?;
        Some(file_system_id(&root, &self.mount.fstype))
    }

    /// Returns whether it has been mounted without interruption since `earlier`.
    pub fn continues(&self, earlier: &Self) -> bool {
        let mount = &self.mount;
        mount.number == earlier.mount.number
            && mount.fstype == earlier.mount.fstype
            && self.superblock == earlier.superblock
            && (self.superblock.is_some() || !self.ids.is_disjoint(&earlier.ids))
    }

    /// Returns whether it is `earlier` with the same options. A change of its mount points makes no
    /// difference.
    pub fn is_unchanged_since(&self, earlier: &Self) -> bool {
        self.continues(earlier)
            && self.options().eq(earlier.options())
            && self.is_excluded == earlier.is_excluded
    }

    /// Returns whether the file system is read-only. A read-only mount of a writable file system doesn't
    /// count.
    pub fn is_read_only(&self) -> bool {
        self.options().any(|option| option == "ro")
    }

    /// Returns whether the file system is mounted with online or asynchronous discards.
    pub fn discards_by_itself(&self) -> bool {
        mount::discard_option(&self.mount.super_options).is_some()
    }

    /// Returns the realtime device of an XFS; none for other file systems and without one.
    pub fn realtime_device(&self) -> Option<&str> {
        self.mount.realtime_device()
    }

    /// Returns the options of the file system, without those with which btrfs names the mounted subvolume.
    fn options(&self) -> impl Iterator<Item = &str> {
        self.mount.super_options.split(',').filter(|option| !option.starts_with("subvol"))
    }
}

/// Notifies of changes to the mounts.
#[derive(Debug)]
pub(super) struct MountWatch(File);

impl MountWatch {
    /// Watches the mounts that this process sees.
    pub fn start(machine: &Machine) -> io::Result<Self> {
        File::open(machine.procfs().join("self/mountinfo")).map(Self)
    }
}

impl AsFd for MountWatch {
    /// Polls with an exceptional condition once for each change.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a file system mounted at `target`, with these mount ids.
    pub fn found(target: &str, number: &str, ids: &[u64], options: &str) -> MountedFileSystem {
        let mount = Mount {
            id: ids[0],
            parent: 1,
            number: number.parse().unwrap(),
            root: "/".into(),
            target: target.into(),
            fstype: "ext4".to_owned(),
            source: "/dev/sda1".into(),
            options: "rw".to_owned(),
            super_options: options.to_owned(),
        };
        let (targets, ids) = (vec![mount.target.clone()], ids.iter().copied().collect());
        MountedFileSystem { targets, mount, ids, superblock: Some(1), is_excluded: false }
    }

    #[test]
    fn remounted_file_system_is_another() {
        let before = found("/a", "8:1", &[30, 31], "rw");
        assert!(found("/a", "8:1", &[31, 40], "rw").is_unchanged_since(&before));
        assert!(
            found("/b", "8:1", &[31], "rw,subvolid=5,subvol=/").is_unchanged_since(&before),
            "another mount of it"
        );
        let read_only = found("/a", "8:1", &[30, 31], "ro");
        assert!(
            read_only.continues(&before)
                && !read_only.is_unchanged_since(&before)
                && read_only.is_read_only()
        );
        assert!(found("/a", "8:1", &[41], "rw").continues(&before), "its superblock lives on");
        let unnumbered =
            |ids: &[u64]| MountedFileSystem { superblock: None, ..found("/a", "8:1", ids, "rw") };
        assert!(unnumbered(&[31, 40]).continues(&unnumbered(&[30, 31])));
        assert!(!unnumbered(&[41]).continues(&unnumbered(&[30, 31])));
        assert!(!found("/a", "8:2", &[30, 31], "rw").continues(&before));
        let made_anew = MountedFileSystem { superblock: Some(2), ..found("/a", "8:1", &[30, 31], "rw") };
        assert!(!made_anew.continues(&before), "mount ids are used again");
    }

    #[test]
    fn realtime_device_is_that_of_an_xfs() {
        let mut found = found("/a", "8:1", &[1], "rw,attr2,rtdev=/dev/sdb1,noquota");
        assert_eq!(found.realtime_device(), None, "an ext4 has none");
        found.mount.fstype = "xfs".to_owned();
        assert_eq!(found.realtime_device(), Some("/dev/sdb1"));
        found.mount.super_options = "rw,attr2,noquota".to_owned();
        assert_eq!(found.realtime_device(), None);
    }

    #[test]
    fn options_are_compared_as_whole_words() {
        assert!(found("/a", "8:1", &[1], "rw,discard=async,ssd").discards_by_itself());
        assert!(!found("/a", "8:1", &[1], "rw,nodiscard,errors=remount-ro").discards_by_itself());
        assert!(!found("/a", "8:1", &[1], "rw,errors=remount-ro").is_read_only());
    }
}
