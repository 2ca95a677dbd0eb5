//! What a block device, its partitions and its disk are used for.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use trimtab_core::Extent;

use super::{ClaimError, Overrides};
use crate::block::{BlockDevice, BlockError, DeviceNumber};
use crate::{btrfs, loop_device, mount};

/// What a block device is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// It is mounted.
    Mounted(PathBuf),
    /// It is active swap; the name of the swap device.
    Swap(PathBuf),
    /// It lies below another device that is used so.
    Below(String, Box<Self>),
    /// A device is built on it.
    Held(String),
}

impl fmt::Display for Use {
    /// What was found and what to do, such as `is mounted on /home; unmount it first (umount /home)`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Mounted(target) => {
                let target = target.display();
                write!(f, "is mounted on {target}; unmount it first (umount {target})")
            }
            Self::Swap(path) => write!(f, "is active swap; turn it off first (swapoff {})", path.display()),
            Self::Below(upper, found) => write!(f, "is below {upper}, which {found}"),
            Self::Held(holder) => write!(f, "is held by {holder}; take that down first"),
        }
    }
}

/// A device, or a relative of it, and what it is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    path: String,
    extent: Extent,
    uses: Vec<Use>,
}

/// What is known of the use of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Usage {
    device: Node,
    read_only: bool,
    /// The disk that it is a partition of.
    disk: Option<Node>,
    /// The partitions of its disk, without itself.
    partitions: Vec<Node>,
}

impl Usage {
    /// Looks it up.
    pub(super) fn of(sysfs: &Path, procfs: &Path, block: &BlockDevice) -> Result<Self, ClaimError> {
        let all = all_uses(sysfs, procfs)?;
        let node = |block: &BlockDevice| -> Result<Node, BlockError> {
            let number = block.number()?;
            let uses = all.iter().filter(|(used, _)| *used == number).map(|(_, found)| found.clone());
            let holders = block.holders()?.into_iter().map(|holder| Use::Held(titled(&holder)));
            let uses = uses.chain(holders).collect();
            Ok(Node { path: block.path().display().to_string(), extent: block.extent()?, uses })
        };
        let partitions = block.partitions()?.into_iter().filter(|partition| partition != block);
        Ok(Self {
            device: node(block)?,
            read_only: block.is_read_only()?,
            disk: block.disk().as_ref().map(node).transpose()?,
            partitions: partitions.map(|partition| node(&partition)).collect::<Result<_, _>>()?,
        })
    }

    /// Says what work on the device costs what is around it, or why it may not be used.
    pub(super) fn judge(&self, overrides: &Overrides) -> Result<Vec<String>, ClaimError> {
        let device = self.device.path.clone();
        let partitions = self.partitions.iter().filter(|_| self.disk.is_none());
        let mut decisive = [&self.device].into_iter().chain(&self.disk).chain(partitions);
        if let Some((node, found)) = decisive.find_map(|node| Some((node, node.uses.first()?))) {
            return Err(ClaimError::InUse { device, node: node.path.clone(), found: found.clone() });
        }
        if self.device.extent.is_empty() {
            return Err(ClaimError::Empty { device });
        }
        if self.read_only {
            return Err(ClaimError::ReadOnly { device });
        }
        let Some(disk) = &self.disk else { return Ok(Vec::new()) };
        let overlaps = |other: &&Node| {
            let (ours, theirs) = (self.device.extent, other.extent);
            ours.start < theirs.end && theirs.start < ours.end
        };
        if let Some(other) = self.partitions.iter().find(overlaps) {
            return Err(ClaimError::Overlap { device, other: other.path.clone() });
        }
        let used = self.partitions.iter().filter(|node| !node.uses.is_empty());
        let used: Vec<_> = used.map(|node| node.path.as_str()).collect();
        let others = match used.is_empty() {
            true => String::new(),
            false => format!(" ({} in use)", used.join(", ")),
        };
        match overrides.partition {
            true => Ok(vec![format!("will be slowed: what uses {}{others}", disk.path)]),
            false => Err(ClaimError::Partition { device, disk: disk.path.clone(), others }),
        }
    }
}

/// Every device that carries a mounted file system or active swap, or has a loop device above it.
fn all_uses(sysfs: &Path, procfs: &Path) -> Result<Vec<(DeviceNumber, Use)>, ClaimError> {
    let mut tops = Vec::new();
    for mount in mount::mounts(procfs)? {
        // A file system on several devices has a number of its own; its source is one of them.
        let device = BlockDevice::numbered(sysfs, mount.number)
            .or_else(|| BlockDevice::open(sysfs, &mount.source).ok());
        let names = device.as_ref().map_or(Vec::new(), |device| btrfs::devices(sysfs, &device.name()));
        let named = names.iter().filter_map(|name| BlockDevice::at(&sysfs.join("class/block").join(name)));
        tops.extend(
            device.into_iter().chain(named).map(|device| (device, Use::Mounted(mount.target.clone()))),
        );
    }
    let path = procfs.join("swaps");
    let swaps = fs::read(&path).map_err(|source| ClaimError::Swaps { path, source })?;
    for line in swaps.split(|byte| *byte == b'\n').skip(1) {
        let swap = mount::unescape(line.split(u8::is_ascii_whitespace).next().unwrap_or_default());
        tops.extend(BlockDevice::open(sysfs, &swap).ok().map(|device| (device, Use::Swap(swap))));
    }
    let mut uses = Vec::new();
    for (device, found) in tops {
        uses.push((device.number()?, found.clone()));
        sink(sysfs, &device, &Use::Below(titled(&device), Box::new(found)), &mut uses)?;
    }
    for looped in loop_device::attached(sysfs).unwrap_or_default() {
        if let Some(below) = in_dev(sysfs, &looped.file) {
            uses.push((below.number()?, Use::Held(looped.device.display().to_string())));
        }
    }
    Ok(uses)
}

/// Adds that all devices below `device` are used as `found`.
fn sink(
    sysfs: &Path,
    device: &BlockDevice,
    found: &Use,
    uses: &mut Vec<(DeviceNumber, Use)>,
) -> Result<(), BlockError> {
    let whole = device.whole();
    for below in whole.slaves()?.into_iter().chain(behind(sysfs, &whole)) {
        uses.push((below.number()?, found.clone()));
        sink(sysfs, &below, found, uses)?;
    }
    Ok(())
}

/// The block device that the loop device `device` is over; none where it is no loop device, or one
/// over a regular file.
fn behind(sysfs: &Path, device: &BlockDevice) -> Option<BlockDevice> {
    let file = fs::read_to_string(device.attribute("loop/backing_file")).ok()?;
    in_dev(sysfs, Path::new(file.trim_end_matches('\n')))
}

/// The block device that `path` names, where it is not a regular file that happens to be named so.
fn in_dev(sysfs: &Path, path: &Path) -> Option<BlockDevice> {
    path.starts_with("/dev").then(|| BlockDevice::open(sysfs, path).ok())?
}

/// The path of a device, with the name that the device mapper gave it.
fn titled(device: &BlockDevice) -> String {
    let path = device.path();
    match fs::read_to_string(device.attribute("dm/name")) {
        Ok(name) => format!("{} ({})", path.display(), name.trim()),
        Err(_) => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::Captured;

    /// A machine whose root is on a volume on the second partition of `sda`, and spare disks.
    fn machine() -> Captured {
        Captured::new()
            .device("sda", "8:0", &[("size", "16384")])
            .device("sda/sda1", "8:1", &[])
            .device("sda/sda2", "8:2", &[("start", "4096")])
            .device("sda/sda3", "8:3", &[("start", "6144")])
            .device("sdb", "8:16", &[])
            .device("sdc", "8:32", &[])
            .device("dm-0", "253:0", &[("dm/name", "vg-root")])
            .stacked("dm-0", "sda/sda2")
            .mounts("27 1 253:0 / / rw - ext4 /dev/mapper/vg-root rw\n")
    }

    fn judged(machine: &Captured, name: &str, overrides: &Overrides) -> Result<Vec<String>, String> {
        let usage = Usage::of(&machine.sysfs(), &machine.procfs(), &machine.open(name)).unwrap();
        usage.judge(overrides).map_err(|error| error.to_string())
    }

    /// Why the device named `name` is refused even where everything is allowed that can be.
    fn refusal(machine: &Captured, name: &str) -> String {
        let everything = Overrides { signatures: true, partitions: true, partition: true };
        judged(machine, name, &everything).unwrap_err()
    }

    #[test]
    fn what_carries_a_mount_is_refused_in_every_layer() {
        let machine = machine();
        let root = "is mounted on /; unmount it first (umount /)";
        assert_eq!(refusal(&machine, "dm-0"), format!("/dev/dm-0 is in use: /dev/dm-0 {root}"));
        let below = format!("/dev/sda2 is below /dev/dm-0 (vg-root), which {root}");
        assert_eq!(refusal(&machine, "sda2"), format!("/dev/sda2 is in use: {below}"));
        assert_eq!(refusal(&machine, "sda"), format!("/dev/sda is in use: {below}"));
        assert_eq!(judged(&machine, "sdb", &Overrides::default()), Ok(vec![]));
    }

    #[test]
    fn an_unmounted_holder_is_named() {
        let machine = machine().mounts("");
        let held = "/dev/sda2 is held by /dev/dm-0 (vg-root); take that down first";
        assert_eq!(refusal(&machine, "sda"), format!("/dev/sda is in use: {held}"));
        let machine = Captured::new()
            .device("sda", "8:0", &[])
            .device("sda/sda1", "8:1", &[("size", "1024")])
            .device("dm-0", "253:0", &[])
            .stacked("dm-0", "sda");
        let held = "/dev/sda is held by /dev/dm-0; take that down first";
        assert_eq!(refusal(&machine, "sda1"), format!("/dev/sda1 is in use: {held}"));
    }

    #[test]
    fn swap_is_refused_with_its_disk() {
        let machine =
            machine().swaps("/dev/sda1                partition\t1000\t0\t-2\n/swap\\040file file 1 0 -3\n");
        let swap = "/dev/sda1 is active swap; turn it off first (swapoff /dev/sda1)";
        assert_eq!(refusal(&machine, "sda1"), format!("/dev/sda1 is in use: {swap}"));
        assert_eq!(refusal(&machine, "sda"), format!("/dev/sda is in use: {swap}"));
    }

    #[test]
    fn all_devices_of_a_btrfs_are_in_use() {
        let machine = machine()
            .mounts("40 27 0:44 /sub /mnt/b rw - btrfs /dev/sdb rw,ssd\n")
            .link("fs/btrfs/aaaa/devices/sdb", "x")
            .link("fs/btrfs/aaaa/devices/sdc", "x");
        // The kernel links to the devices' directories; where to doesn't matter, only the names.
        fs::create_dir_all(machine.sysfs().join("fs/btrfs/aaaa/devices/x")).unwrap();
        for name in ["sdb", "sdc"] {
            let expected = format!("/dev/{name} is in use: /dev/{name} is mounted on /mnt/b; ");
            assert!(refusal(&machine, name).starts_with(&expected), "{}", refusal(&machine, name));
        }
    }

    #[test]
    fn a_loop_device_over_a_disk_uses_it() {
        let machine = machine()
            .device("loop0", "7:0", &[("loop/backing_file", "/dev/sdb")])
            .device("loop1", "7:1", &[("loop/backing_file", "/images/sdc")])
            .device("loop0/loop0p1", "259:0", &[]);
        let held = "/dev/sdb is held by /dev/loop0; take that down first";
        assert_eq!(refusal(&machine, "sdb"), format!("/dev/sdb is in use: {held}"));
        assert_eq!(judged(&machine, "sdc", &Overrides::default()), Ok(vec![]), "a file named like a disk");
        let machine = machine.mounts("28 1 259:0 / /mnt rw - ext4 /dev/loop0p1 rw\n");
        let below =
            "/dev/sdb is below /dev/loop0p1, which is mounted on /mnt; unmount it first (umount /mnt)";
        assert_eq!(refusal(&machine, "sdb"), format!("/dev/sdb is in use: {below}"));
    }

    #[test]
    fn a_partition_needs_to_be_allowed() {
        let machine = machine();
        let refused = judged(&machine, "sda3", &Overrides::default()).unwrap_err();
        let expected = "/dev/sda3 is a partition of /dev/sda; name a whole drive, or add --allow-partition, \
                        which loses nothing outside /dev/sda3 but slows what uses /dev/sda (/dev/sda2 in use)";
        assert_eq!(refused, expected);
        let allowed = Overrides { partition: true, ..Overrides::default() };
        let lost = judged(&machine, "sda3", &allowed).unwrap();
        assert_eq!(lost, ["will be slowed: what uses /dev/sda (/dev/sda2 in use)"]);
    }

    #[test]
    fn partitions_that_overlap_lose_nothing() {
        let machine = machine().device("sda/sda4", "8:4", &[("start", "7000")]);
        let overlap = "/dev/sda4 overlaps /dev/sda3, which would lose data; name a whole drive";
        assert_eq!(refusal(&machine, "sda4"), overlap);
    }

    #[test]
    fn nothing_to_write_to_is_refused() {
        let machine =
            Captured::new().device("sr0", "11:0", &[("size", "0")]).device("sdd", "8:48", &[("ro", "1")]);
        assert!(refusal(&machine, "sr0").starts_with("/dev/sr0 has no size: there is no medium"));
        assert!(refusal(&machine, "sdd").starts_with("/dev/sdd is read-only; make it writable first"));
    }
}
