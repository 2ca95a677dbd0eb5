//! What block devices of a machine lie on, which files are behind loop devices, and what all that is used for.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::{ClaimError, Sharing};
use crate::block::{BlockDevice, BlockError, DeviceNumber};
use crate::btrfs;
use crate::identity::{self, FileId, Identity, Sameness};
use crate::loop_device::{self, Backing};
use crate::mount::{self, Mount, Namespace};
use crate::stack::Machine;

/// What a block device is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// It is mounted.
    Mounted(PathBuf),
    /// It is mounted in the mount namespace of this process, and not in this process' own.
    MountedElsewhere(PathBuf, u32),
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
            Self::MountedElsewhere(target, process) => {
                let target = target.display();
                write!(
                    f,
                    "is mounted on {target} in the mount namespace of process {process}; unmount it there first \
                     (nsenter --target {process} --mount umount {target})"
                )
            }
            Self::Swap(path) => write!(f, "is active swap; turn it off first (swapoff {})", path.display()),
            Self::Below(upper, found) => write!(f, "is below {upper}, which {found}"),
            Self::Held(holder) => write!(f, "is held by {holder}; take that down first"),
        }
    }
}

/// A file that is used without a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UsedFile {
    /// Its path.
    pub path: PathBuf,
    /// What is known of where its bytes are; none where it isn't found.
    pub identity: Option<Identity>,
    /// What it is used for.
    pub found: Use,
}

impl UsedFile {
    /// Whether it is one of `files`; none where it is not.
    pub fn sharing(&self, files: &[Identity]) -> Option<Sharing> {
        let compare = |file: &Identity| match &self.identity {
            Some(identity) => file.compare(identity),
            None => Sameness::Unknown,
        };
        sharing(files.iter().map(compare))
    }
}

/// A loop device with what is behind it.
#[derive(Debug)]
struct Looped {
    device: BlockDevice,
    backing: Backing,
    /// The path that the kernel has of it, which need not lead there.
    file: PathBuf,
}

/// A machine's mounts and loop devices.
#[derive(Debug)]
pub(super) struct Around {
    sysfs: PathBuf,
    procfs: PathBuf,
    /// The mount namespaces, this process' own first.
    pub namespaces: Vec<Namespace>,
    loops: Vec<Looped>,
}

impl Around {
    /// Looks it up.
    pub fn of(machine: &Machine) -> Result<Self, ClaimError> {
        let (sysfs, procfs) = (machine.sysfs(), machine.procfs());
        let mut loops = Vec::new();
        for attached in loop_device::attached(&sysfs)? {
            let name = attached.device.file_name().unwrap_or_default();
            // One that is gone by now, or has lost its file, is no concern.
            let Some(device) = BlockDevice::at(&sysfs.join("class/block").join(name)) else { continue };
            if let Some(backing) = machine.backing(&device)? {
                loops.push(Looped { device, backing, file: attached.file });
            }
        }
        let namespaces = mount::namespaces(&machine.file("/"), &procfs)?;
        Ok(Self { sysfs, procfs, namespaces, loops })
    }

    /// All devices below `device`, nearest first.
    pub fn below(&self, device: &BlockDevice) -> Result<Vec<BlockDevice>, BlockError> {
        let mut found = self.built_on(device)?;
        let mut next = 0;
        while let Some(device) = found.get(next) {
            let mut below = self.built_on(device)?;
            below.retain(|device| !found.contains(device));
            found.extend(below);
            next += 1;
        }
        Ok(found)
    }

    /// The devices that `device`, or the disk that it is a partition of, is built on.
    fn built_on(&self, device: &BlockDevice) -> Result<Vec<BlockDevice>, BlockError> {
        let whole = device.whole();
        Ok(whole.slaves()?.into_iter().chain(self.behind(&whole)).collect())
    }

    /// The block device that the loop device `device` is over; none where it is no loop device, or one
    /// over a regular file.
    pub fn behind(&self, device: &BlockDevice) -> Option<BlockDevice> {
        match self.loops.iter().find(|looped| looped.device == *device)?.backing {
            Backing::Device(number) => BlockDevice::numbered(&self.sysfs, number),
            Backing::File(_) => None,
        }
    }

    /// The regular files behind the loop devices among `disks`.
    pub fn files(&self, disks: &[BlockDevice]) -> Vec<Identity> {
        let ours = self.loops.iter().filter(|looped| disks.contains(&looped.device));
        ours.filter_map(|looped| self.file(looped)).collect()
    }

    fn file(&self, looped: &Looped) -> Option<Identity> {
        match looped.backing {
            Backing::File(id) => Some(identity::identify(&self.namespaces, id, &looped.file)),
            Backing::Device(_) => None,
        }
    }

    /// The loop devices, but for those among `disks`, over one of `files` or over what may be one, and over one
    /// of `served`, which may be where a FUSE server keeps them.
    pub fn siblings(
        &self,
        disks: &[BlockDevice],
        files: &[Identity],
        served: &[FileId],
    ) -> Vec<(BlockDevice, Sharing)> {
        let others = self.loops.iter().filter(|looped| !disks.contains(&looped.device));
        let sharing = others.filter_map(|looped| {
            let theirs = self.file(looped)?;
            let is_served = served.iter().any(|id| theirs.has(*id)).then_some(Sameness::Unknown);
            let compared = files.iter().map(|ours| ours.compare(&theirs)).chain(is_served);
            Some((looped.device.clone(), sharing(compared)?))
        });
        sharing.collect()
    }

    /// The disks, but for `disks`, that are further paths to the drives of these, by their WWIDs.
    pub fn paths(&self, disks: &[BlockDevice]) -> Result<Vec<BlockDevice>, BlockError> {
        let ours: Vec<_> = disks.iter().filter_map(BlockDevice::wwid).collect();
        let mut all = BlockDevice::disks(&self.sysfs)?;
        all.retain(|disk| !disks.contains(disk) && disk.wwid().is_some_and(|wwid| ours.contains(&wwid)));
        Ok(all)
    }

    /// Every device that carries a mounted file system or active swap, or has a loop device above it.
    /// What a disk in `stack` carries counts for that disk, and not again for what lies below it.
    pub fn uses(&self, stack: &[BlockDevice]) -> Result<Vec<(DeviceNumber, Use)>, ClaimError> {
        let mut tops = Vec::new();
        for namespace in &self.namespaces {
            for mount in &namespace.mounts {
                let found = mounted(mount, namespace);
                tops.extend(self.carrying(mount, namespace).map(|device| (device, found.clone())));
            }
        }
        for (path, _) in self.swaps()? {
            tops.extend(BlockDevice::open(&self.sysfs, &path).ok().map(|device| (device, Use::Swap(path))));
        }
        let mut uses = Vec::new();
        for (device, found) in tops {
            uses.push((device.number()?, found.clone()));
            self.sink(&device, &Use::Below(titled(&device), Box::new(found)), stack, &mut uses)?;
        }
        for looped in self.loops.iter().filter(|looped| !stack.contains(&looped.device)) {
            if let Backing::Device(number) = looped.backing {
                uses.push((number, Use::Held(looped.device.path().display().to_string())));
            }
        }
        Ok(uses)
    }

    /// The devices that carry the file system of `mount`.
    fn carrying(&self, mount: &Mount, namespace: &Namespace) -> impl Iterator<Item = BlockDevice> {
        let source = || match namespace.process {
            None => BlockDevice::open(&self.sysfs, &mount.source).ok(),
            Some(_) => BlockDevice::open(&self.sysfs, &namespace.file(&mount.source)).ok(),
        };
        // A file system on several devices has a number of its own; its source is one of them.
        let device = BlockDevice::numbered(&self.sysfs, mount.number).or_else(source);
        let names = device.as_ref().map_or(Vec::new(), |device| btrfs::devices(&self.sysfs, &device.name()));
        let named =
            names.into_iter().filter_map(|name| BlockDevice::at(&self.sysfs.join("class/block").join(name)));
        device.into_iter().chain(named.collect::<Vec<_>>())
    }

    /// Adds that all devices below `device` are used as `found`, down to the disks in `stack`.
    fn sink(
        &self,
        device: &BlockDevice,
        found: &Use,
        stack: &[BlockDevice],
        uses: &mut Vec<(DeviceNumber, Use)>,
    ) -> Result<(), BlockError> {
        if stack.contains(&device.whole()) {
            return Ok(());
        }
        for below in self.built_on(device)? {
            uses.push((below.number()?, found.clone()));
            self.sink(&below, found, stack, uses)?;
        }
        Ok(())
    }

    /// Files that are swapped to, or mounted without a loop device.
    pub fn used_files(&self) -> Result<Vec<UsedFile>, ClaimError> {
        let mut all = Vec::new();
        let identify = |namespace: &Namespace, path: &Path| {
            let id = identity::file_at(&namespace.file(path)).ok()?;
            Some(identity::identify(&self.namespaces, id, path))
        };
        for (path, is_file) in self.swaps()? {
            if is_file {
                let identity = self.namespaces.iter().find_map(|namespace| identify(namespace, &path));
                all.push(UsedFile { identity, found: Use::Swap(path.clone()), path });
            }
        }
        for namespace in &self.namespaces {
            let mounts =
                namespace.mounts.iter().filter(|mount| mount.fstype == "erofs" && mount.number.major == 0);
            all.extend(mounts.map(|mount| UsedFile {
                path: mount.source.clone(),
                identity: identify(namespace, &mount.source),
                found: mounted(mount, namespace),
            }));
        }
        Ok(all)
    }

    /// The paths of active swap, and whether each is a file.
    fn swaps(&self) -> Result<Vec<(PathBuf, bool)>, ClaimError> {
        let path = self.procfs.join("swaps");
        let text = fs::read(&path).map_err(|source| ClaimError::Swaps { path, source })?;
        let line = |line: &[u8]| {
            let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
            Some((mount::unescape(fields.next()?), fields.next()? == b"file"))
        };
        Ok(text.split(|byte| *byte == b'\n').skip(1).filter_map(line).collect())
    }
}

/// What all these comparisons come to; none where the files are others.
fn sharing(compared: impl Iterator<Item = Sameness>) -> Option<Sharing> {
    let found = compared.filter_map(|sameness| match sameness {
        Sameness::Same => Some(Sharing::Certain),
        Sameness::Unknown => Some(Sharing::Possible),
        Sameness::Different => None,
    });
    found.min_by_key(|sharing| *sharing != Sharing::Certain)
}

fn mounted(mount: &Mount, namespace: &Namespace) -> Use {
    match namespace.process {
        None => Use::Mounted(mount.target.clone()),
        Some(process) => Use::MountedElsewhere(mount.target.clone(), process),
    }
}

/// The path of a device, with the name that the device mapper gave it.
pub(super) fn titled(device: &BlockDevice) -> String {
    let path = device.path();
    match fs::read_to_string(device.attribute("dm/name")) {
        Ok(name) => format!("{} ({})", path.display(), name.trim()),
        Err(_) => path.display().to_string(),
    }
}
