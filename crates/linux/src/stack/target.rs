//! Resolves a path to a mounted file system, active swap or a block device.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::in_use::{InUse, MOST_MOUNTS, Node, device_named};
use super::{Machine, StackError, file_system};
use crate::block::{BlockDevice, BlockError, DeviceNumber};
use crate::identity::{self, FileId};
use crate::mount::{Mount, covering, is_directory, visible};

impl InUse {
    /// Returns the node that `target` names.
    pub(super) fn find(&self, machine: &Machine, target: &Path) -> Result<Node, StackError> {
        if machine.is_live() { self.find_live(machine, target) } else { self.find_captured(machine, target) }
    }

    fn find_live(&self, machine: &Machine, target: &Path) -> Result<Node, StackError> {
        let unseen = |source| StackError::Path { path: target.to_owned(), source };
        let node = Path::new("/dev").join(target);
        let place = target.canonicalize().map_err(|source| match source.kind() {
            ErrorKind::NotFound if target.is_relative() && node.exists() => {
                StackError::Node { path: target.to_owned(), node }
            }
            _ => unseen(source),
        })?;
        let found = fs::metadata(&place).map_err(unseen)?;
        if found.file_type().is_char_device() {
            return Err(StackError::NotBlock { path: target.to_owned() });
        }
        if found.file_type().is_block_device() {
            let device = BlockDevice::numbered(&machine.sysfs(), DeviceNumber::unpack(found.rdev()));
            return self.device(machine, device.ok_or(BlockError::Unknown { device: place })?);
        }
        if let Some(swap) = self.swap_file(&place) {
            return Ok(swap);
        }
        let elsewhere = || StackError::OtherNamespace { path: target.to_owned() };
        // The path may lead through another process's root, so what it starts with proves nothing.
        let number = statx(CWD, target, AtFlags::empty(), StatxFlags::MNT_ID);
        let number = number.map_err(|errno| unseen(errno.into()))?;
        let mount = match number.stx_mask & StatxFlags::MNT_ID.bits() {
            0 => covering(&self.mounts, &place),
            _ => self.mounts.iter().find(|mount| mount.id == number.stx_mnt_id),
        };
        mount.cloned().map(Node::FileSystem).ok_or_else(elsewhere)
    }

    fn find_captured(&self, machine: &Machine, target: &Path) -> Result<Node, StackError> {
        let not_captured = || StackError::NotCaptured { path: target.to_owned(), known: self.known(machine) };
        let is_mounted = self.mounts.iter().any(|mount| mount.target == target);
        if target.starts_with("/dev") && !is_mounted {
            let device = device_named(machine, self, target)?;
            return self.device(machine, device.ok_or_else(not_captured)?);
        }
        let is_known = || {
            is_mounted || captured_for(machine).is_some_and(|known| known.iter().any(|known| known == target))
        };
        // What else is below a mount point may have been on a mount that wasn't captured.
        let mounted = || covering(&self.mounts, target).filter(|_| is_known()).cloned().map(Node::FileSystem);
        self.swap_file(target).or_else(mounted).ok_or_else(not_captured)
    }

    /// Returns the targets of a captured machine besides the devices, separated by commas.
    fn known(&self, machine: &Machine) -> String {
        let mut known = captured_for(machine).unwrap_or_default();
        let holds_data = |mount: &&Mount| !PSEUDO.contains(&mount.fstype.as_str());
        let in_use = self.mounts.iter().filter(holds_data).map(|mount| &mount.target);
        for path in in_use.chain(self.swaps.iter().map(|swap| &swap.path)) {
            if !known.contains(path) {
                known.push(path.clone());
            }
        }
        known.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the node of `device`: active swap, or just a device.
    fn device(&self, machine: &Machine, device: BlockDevice) -> Result<Node, StackError> {
        for swap in self.swaps.iter().filter(|swap| !swap.is_file) {
            if device_named(machine, self, &swap.path)?.as_ref() == Some(&device) {
                return Ok(Node::Swap(swap.clone()));
            }
        }
        Ok(Node::Device(device))
    }

    /// The active swap that the file at `path` is.
    fn swap_file(&self, path: &Path) -> Option<Node> {
        let swap = self.swaps.iter().find(|swap| swap.is_file && swap.path == path)?;
        Some(Node::Swap(swap.clone()))
    }

    /// The file system that the file `id` is on, which may be at the kernel's path `place`; none where that
    /// is mounted in another mount namespace.
    pub(super) fn holding_file(&self, machine: &Machine, place: &Path, id: FileId) -> Option<Node> {
        let by_path = covering(&self.mounts, place);
        let by_number = || self.mounts.iter().find(|mount| mount.number == id.device);
        // A subvolume of btrfs, or a file of an overlay, has a number that no mount has.
        let is_there =
            || identity::file_at(&machine.file(&place.to_string_lossy())).is_ok_and(|found| found == id);
        let mount = by_path.filter(|mount| mount.number == id.device).or_else(by_number);
        mount.or_else(|| by_path.filter(|_| is_there())).cloned().map(Node::FileSystem)
    }

    /// The file system that the file or directory with the kernel's path `place` is on; none where that
    /// can't be told, as another mount namespace's can't.
    pub(super) fn holding(&self, machine: &Machine, place: &Path) -> Option<Node> {
        let elsewhere = machine.is_live() && place.parent().is_some_and(|directory| !directory.exists());
        covering(&self.mounts, place).filter(|_| !elsewhere).cloned().map(Node::FileSystem)
    }
}

/// The file systems that show the kernel's state and hold no data.
const PSEUDO: [&str; 20] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "rpc_pipefs",
    "securityfs",
    "sysfs",
    "tracefs",
];

/// Returns the targets of `--all`: each file system that is mounted from block devices once, at its shortest
/// visible mount point that can be written to, if there is one, but for those that never free a block, and those without a mounted
/// directory; then active swap. Of a captured machine, what it
/// was captured for, where it says so.
///
/// # Errors
/// [`StackError::Mount`], [`StackError::Swaps`] or [`StackError::Block`].
pub fn targets(machine: &Machine) -> Result<Vec<PathBuf>, StackError> {
    if let Some(captured) = captured_for(machine) {
        return Ok(captured);
    }
    let in_use = InUse::of(machine)?;
    let mut seen: Vec<&Mount> = Vec::new();
    for mount in visible(&in_use.mounts) {
        // FITRIM takes a directory. Only single files of some file systems are bound, as in containers: these are passed over.
        if never_frees(&mount.fstype)
            || !file_system::is_on_devices(machine, &in_use, mount)?
            || !is_directory(mount)
        {
            continue;
        }
        // FITRIM is refused at a mount point that is read-only, also where the file system can be written elsewhere.
        let rank = |mount: &Mount| (mount.is_read_only(), mount.target.components().count());
        match seen.iter_mut().find(|known| known.is_of_same_file_system(mount)) {
            Some(known) if rank(known) > rank(mount) => *known = mount,
            Some(_) => {}
            None => seen.push(mount),
        }
    }
    let mounted = seen.into_iter().map(|mount| mount.target.clone());
    Ok(mounted.chain(in_use.swaps.iter().map(|swap| swap.path.clone())).collect())
}

/// Whether the file systems with this name never free a block, since nobody can write to them.
pub fn never_frees(fstype: &str) -> bool {
    matches!(fstype, "squashfs" | "erofs" | "iso9660" | "cramfs" | "romfs")
}

/// Returns the paths for which a machine was captured; none where it doesn't say.
fn captured_for(machine: &Machine) -> Option<Vec<PathBuf>> {
    let list = fs::read_to_string(machine.file("/trimtab/targets")).ok().filter(|_| !machine.is_live())?;
    Some(list.lines().take(MOST_MOUNTS).map(PathBuf::from).collect())
}
