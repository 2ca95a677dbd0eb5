//! The file systems that are mounted, and what changes of them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use trimtab_linux::block::DeviceNumber;
use trimtab_linux::mount::{self, Mount};
use trimtab_linux::stack::{self, Machine, StackError};

use crate::state::file_system_id;

/// A file system on block devices that is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The mount of it that is spoken of.
    pub mount: Mount,
    /// All its mount points, that one's first.
    pub targets: Vec<PathBuf>,
    /// The numbers of all its mounts.
    ids: BTreeSet<u64>,
}

impl Found {
    /// What is mounted on `machine`, each file system once.
    pub fn all(machine: &Machine) -> Result<Vec<Self>, StackError> {
        let mounts = mount::mounts(&machine.procfs())?;
        let mut found: Vec<Self> = Vec::new();
        for target in stack::targets(machine)? {
            // Of several mounts on one point the last is seen. Swap is no mount at all.
            let Some(seen) = mounts.iter().rfind(|mount| mount.target == target) else { continue };
            let all = || mounts.iter().filter(|mount| mount.number == seen.number);
            let mut targets = vec![target];
            for mount in all() {
                if !targets.contains(&mount.target) {
                    targets.push(mount.target.clone());
                }
            }
            found.push(Self { mount: seen.clone(), targets, ids: all().map(|mount| mount.id).collect() });
        }
        found.sort_by(|one, other| one.mount.target.cmp(&other.mount.target));
        Ok(found)
    }

    /// The number of its device, by which the kernel's events name it.
    pub fn number(&self) -> DeviceNumber {
        self.mount.number
    }

    /// What tells the file system from others, as far as it says so.
    pub fn id(&self) -> Option<String> {
        let root = mount::open_apart(&self.mount.target).ok()?;
        Some(file_system_id(&root, &self.mount.fstype))
    }

    /// Whether it has been mounted all the time since it was `earlier`.
    pub fn continues(&self, earlier: &Self) -> bool {
        self.number() == earlier.number() && !self.ids.is_disjoint(&earlier.ids)
    }

    /// Whether nothing is different of it that matters to how it is tended: by which of its mounts doesn't.
    pub fn is_as(&self, earlier: &Self) -> bool {
        self.continues(earlier) && self.options().eq(earlier.options())
    }

    /// Whether the whole file system is mounted so that nothing can be written: a mount of it may still
    /// be.
    pub fn is_read_only(&self) -> bool {
        self.options().any(|option| option == "ro")
    }

    /// Whether the file system was told to discard by itself.
    pub fn discards_by_itself(&self) -> bool {
        mount::discard_option(&self.mount.super_options).is_some()
    }

    /// The options of the whole file system, among which btrfs has what is mounted of it.
    fn options(&self) -> impl Iterator<Item = &str> {
        self.mount.super_options.split(',').filter(|option| !option.starts_with("subvol"))
    }
}

/// Tells when what is mounted changes.
#[derive(Debug)]
pub(super) struct MountWatch(File);

impl MountWatch {
    /// Watches the mounts that this process sees.
    pub fn start(machine: &Machine) -> io::Result<Self> {
        File::open(machine.procfs().join("self/mountinfo")).map(Self)
    }
}

impl AsFd for MountWatch {
    /// What is exceptional on it is a change; each is told once.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file system mounted at `target`, by mounts with these numbers.
    pub fn found(target: &str, number: &str, ids: &[u64], options: &str) -> Found {
        let mount = Mount {
            id: ids[0],
            number: number.parse().unwrap(),
            root: "/".into(),
            target: target.into(),
            fstype: "ext4".to_owned(),
            source: "/dev/sda1".into(),
            options: "rw".to_owned(),
            super_options: options.to_owned(),
        };
        Found { targets: vec![mount.target.clone()], mount, ids: ids.iter().copied().collect() }
    }

    #[test]
    fn what_was_mounted_anew_is_another() {
        let before = found("/a", "8:1", &[30, 31], "rw");
        assert!(found("/a", "8:1", &[31, 40], "rw").is_as(&before));
        assert!(found("/b", "8:1", &[31], "rw,subvolid=5,subvol=/").is_as(&before), "another mount of it");
        let read_only = found("/a", "8:1", &[30, 31], "ro");
        assert!(read_only.continues(&before) && !read_only.is_as(&before) && read_only.is_read_only());
        assert!(!found("/a", "8:1", &[41], "rw").continues(&before));
        assert!(!found("/a", "8:2", &[30, 31], "rw").continues(&before));
    }

    #[test]
    fn options_are_whole_words() {
        assert!(found("/a", "8:1", &[1], "rw,discard=async,ssd").discards_by_itself());
        assert!(!found("/a", "8:1", &[1], "rw,nodiscard,errors=remount-ro").discards_by_itself());
        assert!(!found("/a", "8:1", &[1], "rw,errors=remount-ro").is_read_only());
    }
}
