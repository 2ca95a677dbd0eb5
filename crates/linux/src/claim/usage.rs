//! What a block device, its partitions and its disk are used for.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use trimtab_core::Extent;

use super::{ClaimError, Overrides};
use crate::block::{BlockDevice, BlockError, DeviceNumber};
use crate::loop_device::{self, LoopDevice};
use crate::{btrfs, mount};

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

/// A device with what shares bytes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layer {
    device: Node,
    /// The disk that it is a partition of.
    disk: Option<Node>,
    /// The partitions of its disk, without itself.
    partitions: Vec<Node>,
}

impl Layer {
    /// Whether a partition of its disk shares bytes with it.
    fn overlaps(&self, partition: &Node) -> bool {
        let (ours, theirs) = (self.device.extent, partition.extent);
        self.disk.is_none() || (ours.start < theirs.end && theirs.start < ours.end)
    }

    /// The first use of its bytes, and whose it is.
    fn in_use(&self) -> Option<(&Node, &Use)> {
        let partitions = self.partitions.iter().filter(|partition| self.overlaps(partition));
        let mut sharing = [&self.device].into_iter().chain(&self.disk).chain(partitions);
        sharing.find_map(|node| Some((node, node.uses.first()?)))
    }
}

/// What is known of the use of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Usage {
    target: Layer,
    read_only: bool,
    /// The devices that it is built on, nearest first, with the uses that don't come from it or its
    /// disk; and the loop devices over the same file.
    below: Vec<Layer>,
}

impl Usage {
    /// Looks it up.
    pub(super) fn of(sysfs: &Path, procfs: &Path, block: &BlockDevice) -> Result<Self, ClaimError> {
        let devices = devices_below(sysfs, block)?;
        let stack: Vec<_> = [block].into_iter().chain(&devices).map(BlockDevice::whole).collect();
        let siblings = siblings(sysfs, block)?;
        let all = all_uses(sysfs, procfs, &stack)?;
        let node = |block: &BlockDevice| -> Result<Node, BlockError> {
            let number = block.number()?;
            let uses = all.iter().filter(|(used, _)| *used == number).map(|(_, found)| found.clone());
            let holders = block.holders()?.into_iter().filter(|holder| !stack.contains(&holder.whole()));
            let uses = uses.chain(holders.map(|holder| Use::Held(titled(&holder)))).collect();
            Ok(Node { path: block.path().display().to_string(), extent: block.extent()?, uses })
        };
        let layer = |block: &BlockDevice| -> Result<Layer, BlockError> {
            let partitions = block.partitions()?.into_iter().filter(|partition| partition != block);
            Ok(Layer {
                device: node(block)?,
                disk: block.disk().as_ref().map(node).transpose()?,
                partitions: partitions.map(|partition| node(&partition)).collect::<Result<_, _>>()?,
            })
        };
        Ok(Self {
            target: layer(block)?,
            read_only: block.is_read_only()?,
            below: devices.iter().chain(&siblings).map(layer).collect::<Result<_, _>>()?,
        })
    }

    /// Says what work on the device costs what is around it, or why it may not be used.
    pub(super) fn judge(&self, overrides: &Overrides) -> Result<Vec<String>, ClaimError> {
        let Layer { device: Node { path, extent, .. }, disk, partitions } = &self.target;
        let device = path.clone();
        if let Some((node, found)) = self.target.in_use() {
            return Err(ClaimError::InUse { device, node: node.path.clone(), found: found.clone() });
        }
        if let Some((node, found)) = self.below.iter().find_map(Layer::in_use) {
            return Err(ClaimError::Shared { device, node: node.path.clone(), found: found.clone() });
        }
        if extent.is_empty() {
            return Err(ClaimError::Empty { device });
        }
        if self.read_only {
            return Err(ClaimError::ReadOnly { device });
        }
        let Some(disk) = disk else { return Ok(Vec::new()) };
        if let Some(other) = partitions.iter().find(|partition| self.target.overlaps(partition)) {
            return Err(ClaimError::Overlap { device, other: other.path.clone() });
        }
        let used = partitions.iter().filter(|node| !node.uses.is_empty());
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
/// What a disk in `stack` carries counts for that disk, and not again for what lies below it.
fn all_uses(
    sysfs: &Path,
    procfs: &Path,
    stack: &[BlockDevice],
) -> Result<Vec<(DeviceNumber, Use)>, ClaimError> {
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
        sink(sysfs, &device, &Use::Below(titled(&device), Box::new(found)), stack, &mut uses)?;
    }
    let mut loops = loop_device::attached(sysfs)?;
    loops.retain(|looped| stack.iter().all(|disk| disk.path() != looped.device));
    for looped in loops {
        if let Some(below) = in_dev(sysfs, &looped.file) {
            uses.push((below.number()?, Use::Held(looped.device.display().to_string())));
        }
    }
    Ok(uses)
}

/// Adds that all devices below `device` are used as `found`, down to the disks in `stack`.
fn sink(
    sysfs: &Path,
    device: &BlockDevice,
    found: &Use,
    stack: &[BlockDevice],
    uses: &mut Vec<(DeviceNumber, Use)>,
) -> Result<(), BlockError> {
    if stack.contains(&device.whole()) {
        return Ok(());
    }
    for below in built_on(sysfs, device)? {
        uses.push((below.number()?, found.clone()));
        sink(sysfs, &below, found, stack, uses)?;
    }
    Ok(())
}

/// The other loop devices over the file that the loop device `block` is over.
fn siblings(sysfs: &Path, block: &BlockDevice) -> Result<Vec<BlockDevice>, ClaimError> {
    let loops = loop_device::attached(sysfs)?;
    let whole = block.whole();
    let ours = loops.iter().find(|looped| looped.device == whole.path());
    let same = |looped: &&LoopDevice| {
        ours.is_some_and(|ours| looped.file == ours.file && looped.device != ours.device)
    };
    Ok(loops
        .iter()
        .filter(same)
        .map(|looped| BlockDevice::open(sysfs, &looped.device))
        .collect::<Result<_, _>>()?)
}

/// All devices below `device`, nearest first.
fn devices_below(sysfs: &Path, device: &BlockDevice) -> Result<Vec<BlockDevice>, BlockError> {
    let mut found = built_on(sysfs, device)?;
    let mut next = 0;
    while let Some(device) = found.get(next) {
        let mut below = built_on(sysfs, device)?;
        below.retain(|device| !found.contains(device));
        found.extend(below);
        next += 1;
    }
    Ok(found)
}

/// The devices that `device`, or the disk that it is a partition of, is built on.
fn built_on(sysfs: &Path, device: &BlockDevice) -> Result<Vec<BlockDevice>, BlockError> {
    let whole = device.whole();
    Ok(whole.slaves()?.into_iter().chain(behind(sysfs, &whole)).collect())
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
    fn what_is_used_below_is_refused() {
        let machine = machine()
            .device("loop1", "7:1", &[("loop/backing_file", "/images/a")])
            .device("loop2", "7:2", &[("loop/backing_file", "/dev/loop1")])
            .device("loop2/loop2p1", "259:0", &[])
            .device("loop2/loop2p2", "259:1", &[("start", "4096")])
            .device("loop3", "7:3", &[("loop/backing_file", "/dev/sda")]);
        assert_eq!(judged(&machine, "loop2", &Overrides::default()), Ok(vec![]), "held by its own stack");
        let shared = "/dev/loop3 shares its bytes with /dev/sda2, which is below /dev/dm-0 (vg-root), which \
                      is mounted on /; unmount it first (umount /)";
        assert_eq!(refusal(&machine, "loop3"), shared);

        let machine = machine.mounts("28 1 7:1 / /mnt rw - ext4 /dev/loop1 rw\n");
        let mounted = "/dev/loop1, which is mounted on /mnt; unmount it first (umount /mnt)";
        for name in ["loop2", "loop2p1"] {
            assert_eq!(refusal(&machine, name), format!("/dev/{name} shares its bytes with {mounted}"));
        }
        let machine = machine.mounts("").swaps("/dev/loop1 partition 1000 0 -2\n");
        let swap = "/dev/loop1, which is active swap; turn it off first (swapoff /dev/loop1)";
        assert_eq!(refusal(&machine, "loop2"), format!("/dev/loop2 shares its bytes with {swap}"));

        // The disk of the second partition is its own, and it uses other bytes of that disk.
        let machine = machine.swaps("").mounts("28 1 259:1 / /mnt rw - ext4 /dev/loop2p2 rw\n");
        let allowed = Overrides { partition: true, ..Overrides::default() };
        let slowed = "will be slowed: what uses /dev/loop2 (/dev/loop2p2 in use)";
        assert_eq!(judged(&machine, "loop2p1", &allowed), Ok(vec![slowed.to_owned()]));
    }

    #[test]
    fn what_is_below_a_volume_is_for_that_volume_alone() {
        let volume = || {
            machine()
                .device("dm-1", "253:1", &[("dm/name", "vg-spare")])
                .device("dm-2", "253:2", &[])
                .stacked("dm-2", "dm-1")
                .stacked("dm-1", "sda/sda3")
                .stacked("dm-1", "sdb")
        };
        let alone = judged(&volume(), "dm-2", &Overrides::default());
        assert_eq!(alone, Ok(vec![]), "what is mounted is in another partition");

        let shared = "/dev/dm-2 shares its bytes with /dev";
        let machine = volume().device("dm-3", "253:3", &[]).stacked("dm-3", "sdb");
        let held = format!("{shared}/sdb, which is held by /dev/dm-3; take that down first");
        assert_eq!(refusal(&machine, "dm-2"), held);
        let machine = volume().device("loop0", "7:0", &[("loop/backing_file", "/dev/sda3")]);
        let held = format!("{shared}/sda3, which is held by /dev/loop0; take that down first");
        assert_eq!(refusal(&machine, "dm-2"), held);
        let machine = volume()
            .device("sda/sda4", "8:4", &[("start", "7000")])
            .mounts("28 1 8:4 / /mnt rw - ext4 /dev/sda4 rw\n");
        let mounted = format!("{shared}/sda4, which is mounted on /mnt; unmount it first (umount /mnt)");
        assert_eq!(refusal(&machine, "dm-2"), mounted);
    }

    #[test]
    fn loop_devices_that_cannot_be_listed_are_no_proof_of_none() {
        let machine = machine();
        fs::remove_dir_all(machine.sysfs().join("block")).unwrap();
        let error = Usage::of(&machine.sysfs(), &machine.procfs(), &machine.open("sdb")).unwrap_err();
        assert!(error.to_string().starts_with("cannot list loop devices in "), "{error}");
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
