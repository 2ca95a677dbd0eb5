//! The layers below a machine's block devices, the files behind loop devices, and the uses of all of these.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};

use trimtab_core::{Bytes, Extent};

use super::bitmaps::{Bitmap, bitmaps};
use super::configfs::configfs;
use super::exported::Exports;
use super::files::BackingFile;
use super::mapped::{Loss, Mapped, mapped};
use super::uses::{Use, titled};
use super::{ClaimError, Sharing, lists, reach};
use crate::block::{BlockDevice, BlockError, DeviceNumber, is_of_scsi_debug};
use crate::btrfs;
use crate::identity::{self, Length, Sameness};
use crate::limited;
use crate::loop_device::{self, Backing};
use crate::mount::{self, Mount, Namespace};
use crate::stack::Machine;

/// File systems of the kernel that are never on a block device.
const ON_NO_DEVICE: [&str; 12] = [
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "devpts",
    "mqueue",
    "overlay",
    "proc",
    "ramfs",
    "rootfs",
    "sysfs",
    "tmpfs",
];

/// How many mounts of a device in a namespace are looked at: users can make tens of thousands, and each says the same.
const MOST_MOUNTS: u32 = 16;

/// A device that is used, directly or through what is built on it.
#[derive(Debug, Clone)]
pub(super) struct Used {
    /// Its number.
    pub number: DeviceNumber,
    /// The device built on it that the use comes from; none for a use of its own.
    pub via: Option<BlockDevice>,
    /// The use.
    pub found: Use,
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
    pub sysfs: PathBuf,
    procfs: PathBuf,
    /// All that the kernel serves to others.
    pub exports: Exports,
    /// The bitmaps that md keeps in files.
    pub bitmaps: Vec<Bitmap>,
    /// The mount namespaces, this process' own first.
    pub namespaces: Vec<Namespace>,
    loops: Vec<Looped>,
    mapped: Vec<Mapped>,
    pub is_live: bool,
}

impl Around {
    /// Looks it up.
    pub fn of(machine: &Machine) -> Result<Self, ClaimError> {
        let (sysfs, procfs) = (machine.sysfs(), machine.procfs());
        if machine.is_live() {
            lists::are_the_kernels(&sysfs, &procfs)?;
        }
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
        if let Some(mount) = namespaces.first().and_then(|own| lists::covering(&own.mounts)) {
            return Err(ClaimError::Covered { path: mount.target.clone(), fstype: mount.fstype.clone() });
        }
        check_roots(&namespaces)?;
        let own = namespaces.first().map_or(&[][..], |own| &own.mounts);
        if machine.is_live() && lists::hide_processes(own) && !lists::may_look_at_processes() {
            return Err(ClaimError::HiddenProcesses);
        }
        let exports = Exports::of(&sysfs, configfs(machine)?.as_ref());
        let bitmaps = bitmaps(&procfs)?;
        let mapped = mapped(machine, &sysfs)?;
        Ok(Self { sysfs, procfs, exports, bitmaps, namespaces, loops, mapped, is_live: machine.is_live() })
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
    pub fn files(&self, disks: &[BlockDevice]) -> Result<Vec<BackingFile>, BlockError> {
        let mut all = Vec::new();
        for looped in self.loops.iter().filter(|looped| disks.contains(&looped.device)) {
            let Backing::File(id) = looped.backing else { continue };
            let length = match identity::length_of(&self.namespaces, id, &looped.file) {
                Some(length) => Length::Exactly(length),
                None => Length::AtLeast(looped.device.size()?.0),
            };
            let identity = identity::identify(&self.namespaces, id, &looped.file);
            all.push(BackingFile { id, path: looped.file.clone(), identity, length, is_served: false });
        }
        Ok(all)
    }

    /// The loop devices, but for those among `disks`, over one of `files` or over what may be one.
    pub fn siblings(&self, disks: &[BlockDevice], files: &[BackingFile]) -> Vec<(BlockDevice, Sharing)> {
        let others = self.loops.iter().filter(|looped| !disks.contains(&looped.device));
        let sharing = others.filter_map(|looped| {
            let Backing::File(id) = looped.backing else { return None };
            let theirs = identity::identify(&self.namespaces, id, &looped.file);
            Some((looped.device.clone(), sharing(files.iter().map(|ours| ours.compare(&theirs)))?))
        });
        sharing.collect()
    }

    /// Whether `holder`, which is built on `lower`, has other parts of it than the devices of `stack` have, as volumes of
    /// one group do, or is judged with what is [`beside`](Self::beside) these.
    pub fn is_apart(
        &self,
        lower: &BlockDevice,
        holder: &BlockDevice,
        stack: &[BlockDevice],
    ) -> Result<bool, ClaimError> {
        let mapped = |device: &BlockDevice| self.mapped.iter().find(|mapped| mapped.device == *device);
        let number = lower.number()?;
        let is_over =
            |looped: &Looped| looped.backing == Backing::Device(number) && stack.contains(&looped.device);
        if self.loops.iter().any(is_over) {
            return Ok(false);
        }
        if self.is_below_thin(lower, stack)? {
            return Ok(true);
        }
        let extents = |device: &BlockDevice| mapped(device)?.extents(number);
        let own: Vec<_> = lower.holders()?.into_iter().filter(|holder| stack.contains(holder)).collect();
        let own: Option<Vec<_>> = own.iter().map(extents).collect();
        let (Some(own), Some(mut theirs)) = (own, extents(holder)) else { return Ok(false) };
        let is_by_lvm = lower
            .holders()?
            .iter()
            .filter(|holder| stack.contains(holder))
            .all(|holder| mapped(holder).is_some_and(Mapped::is_by_lvm));
        if mapped(holder).is_some_and(Mapped::is_by_lvm) && !is_by_lvm {
            // The group's metadata may lie anywhere, and its other volumes may be inactive.
            return Ok(false);
        }
        if mapped(holder).is_some_and(Mapped::is_encrypted) {
            // Its header lies before its first bytes.
            theirs.extend(theirs.first().map(|first| Extent::new(Bytes::ZERO, first.start)));
        }
        self.answers(holder)?;
        if self.is_live && self.may_have_shrunk(holder)? {
            // What it lost may be in the others by now.
            return Ok(false);
        }
        let overlap = |one: &Extent, other: &Extent| one.start < other.end && other.start < one.end;
        let mut all = own.iter().flatten();
        Ok(!own.is_empty() && all.all(|own| theirs.iter().all(|theirs| !overlap(own, theirs))))
    }

    /// Checks that `device` can be read: neither it nor a layer below it is suspended, for which the device mapper holds back
    /// all requests; and it answers.
    pub fn answers(&self, device: &BlockDevice) -> Result<(), ClaimError> {
        let is_suspended = |layer: &&BlockDevice| {
            fs::read(layer.attribute("dm/suspended")).is_ok_and(|text| text.starts_with(b"1"))
        };
        let layers = [vec![device.whole()], self.below(device)?].concat();
        match layers.iter().find(is_suspended) {
            Some(layer) => {
                let name = fs::read_to_string(layer.attribute("dm/name")).unwrap_or_default();
                Err(ClaimError::Suspended { node: layer.path(), name: name.trim().to_owned() })
            }
            // A read of a multipath device without a path waits for one, and so would this process when it ends.
            None if self.is_live
                && (layers.iter().any(|layer| self.lacks_paths(layer)) || !reach::answers(device)) =>
            {
                Err(ClaimError::Silent { node: device.path() })
            }
            None => Ok(()),
        }
    }

    /// Whether `device` is a multipath device without any path.
    fn lacks_paths(&self, device: &BlockDevice) -> bool {
        self.mapped.iter().any(|mapped| mapped.device == *device && mapped.lacks_paths())
    }

    /// Whether a file system or swap on the volume `volume` may rely on bytes that it lost when it was made shorter.
    fn may_have_shrunk(&self, volume: &BlockDevice) -> Result<bool, ClaimError> {
        let size = volume.size()?.0;
        let mounts = self.mounted_devices()?.into_iter().filter(|(device, ..)| device == volume);
        let mounted: Vec<_> = mounts
            .map(|(_, mount, namespace)| reach::mounted(volume, &namespace.file(&mount.target)))
            .collect();
        // That of swap, or of a file system that no list of mounts shows.
        let contents = reach::contents(volume).map(Some);
        Ok(mounted.into_iter().chain(contents).any(|length| length.is_none_or(|length| length > size)))
    }

    /// Whether `lower` is a pool of thin volumes, and all that `stack` has on it are such volumes.
    pub fn is_below_thin(&self, lower: &BlockDevice, stack: &[BlockDevice]) -> Result<bool, BlockError> {
        let is = |device: &BlockDevice, kind: fn(&Mapped) -> bool| {
            self.mapped.iter().any(|mapped| mapped.device == *device && kind(mapped))
        };
        let own: Vec<_> = lower.holders()?.into_iter().filter(|holder| stack.contains(holder)).collect();
        let is_thin = !own.is_empty() && own.iter().all(|holder| is(holder, Mapped::is_thin));
        Ok(is_thin && is(lower, Mapped::is_pool))
    }

    /// The devices beside `stack` on a pool of thin volumes below its first: further thin volumes, which have other parts of
    /// it, and others, such as the one that LVM puts over all of a pool.
    pub fn beside(&self, stack: &[BlockDevice]) -> Result<Vec<(BlockDevice, Sharing)>, BlockError> {
        let mut all = Vec::new();
        for pool in
            self.mapped.iter().filter(|mapped| mapped.is_pool() && stack[1..].contains(&mapped.device))
        {
            for holder in pool.device.holders()?.into_iter().filter(|holder| !stack.contains(holder)) {
                let is_thin = self.mapped.iter().any(|mapped| mapped.device == holder && mapped.is_thin());
                all.push((holder, if is_thin { Sharing::Possible } else { Sharing::Certain }));
            }
        }
        Ok(all)
    }

    /// The disks, but for `disks`, that are further paths to the drives of these, by their WWIDs; and further ones of the
    /// module scsi_debug.
    pub fn paths(&self, disks: &[BlockDevice]) -> Result<Vec<(BlockDevice, Sharing)>, BlockError> {
        let ours: Vec<_> = disks.iter().filter_map(BlockDevice::wwid).collect();
        let is_simulated = disks.iter().any(|disk| is_of_scsi_debug(disk.directory()));
        let mut all = BlockDevice::disks(&self.sysfs)?;
        all.retain(|disk| !disks.contains(disk));
        let sharing = all.into_iter().filter_map(|disk| {
            if disk.wwid().is_some_and(|wwid| ours.contains(&wwid)) {
                return Some((disk, Sharing::SameWwid));
            }
            (is_simulated && is_of_scsi_debug(disk.directory())).then_some((disk, Sharing::Possible))
        });
        Ok(sharing.collect())
    }

    /// The character devices of all [`paths`](Self::paths) to the drives of `disks`.
    pub fn units(&self, disks: &[BlockDevice]) -> Vec<DeviceNumber> {
        let wwids: Vec<_> = disks.iter().filter_map(BlockDevice::wwid).collect();
        let is_simulated = disks.iter().any(|disk| is_of_scsi_debug(disk.directory()));
        BlockDevice::characters_of_units(&self.sysfs, &wwids, is_simulated)
    }

    /// Every device that carries a mounted file system or active swap, or has a loop device above it.
    /// A use of a disk in `stack` counts for that disk, and not again for the layers below it.
    pub fn uses(&self, stack: &[BlockDevice]) -> Result<Vec<Used>, ClaimError> {
        let mut tops = Vec::new();
        let mounts = self.mounted_devices()?.into_iter();
        tops.extend(mounts.map(|(device, mount, namespace)| (device, mounted(mount, namespace))));
        for (path, _) in self.swaps()? {
            tops.extend(BlockDevice::open(&self.sysfs, &path).ok().map(|device| (device, Use::Swap(path))));
        }
        tops.extend(self.exported()?);
        let disks = BlockDevice::disks(&self.sysfs)?;
        for mapped in &self.mapped {
            let holder = titled(&mapped.device);
            let lost = disks.iter().filter_map(|disk| {
                let found = match mapped.may_have_lost(disk)? {
                    Loss::Likely => Use::MayBeLost(holder.clone()),
                    Loss::Unknown => Use::MayBePath(holder.clone()),
                };
                Some((disk.clone(), found))
            });
            tops.extend(lost);
            if mapped.is_pool() {
                tops.push((mapped.device.clone(), Use::Pool));
            }
        }
        let mut uses = Vec::new();
        for (device, found) in tops {
            uses.push(Used { number: device.number()?, via: None, found: found.clone() });
            self.sink(&device, &Use::Below(titled(&device), Box::new(found)), stack, &mut uses)?;
        }
        for looped in self.loops.iter().filter(|looped| !stack.contains(&looped.device)) {
            if let Backing::Device(number) = looped.backing {
                let found = Use::Held(looped.device.path().display().to_string());
                uses.push(Used { number, via: None, found });
            }
        }
        Ok(uses)
    }

    /// Returns how many bytes of the partition `device` those rely on who use it as `uses` say, with `holders` built on
    /// it; `None` if that is not known.
    pub fn reach(
        &self,
        device: &BlockDevice,
        uses: &[Use],
        holders: &[BlockDevice],
    ) -> Result<Option<u64>, BlockError> {
        let number = device.number()?;
        if !self.is_live {
            return Ok(Some(self.mapped.iter().filter_map(|mapped| mapped.reach(number)).max().unwrap_or(0)));
        }
        let of_use = |found: &Use| match found {
            Use::Mounted(target) => reach::mounted(device, target),
            Use::MountedElsewhere(target, process) => {
                let namespace =
                    self.namespaces.iter().find(|namespace| namespace.process == Some(*process))?;
                reach::mounted(device, &namespace.file(target))
            }
            Use::Swap(_) => reach::contents(device),
            // By one of the holders or loop devices below.
            Use::Below(..) | Use::Held(_) => Some(0),
            _ => None,
        };
        let of_holder =
            |holder: &BlockDevice| match self.mapped.iter().find(|mapped| mapped.device == *holder) {
                Some(mapped) => mapped.reach(number),
                None => reach::of_array(holder, device),
            };
        let over = self.loops.iter().filter(|looped| looped.backing == Backing::Device(number));
        let all = uses.iter().map(of_use).chain(holders.iter().map(of_holder));
        let all = all.chain(over.map(|looped| reach::of_loop(&looped.device)));
        Ok(all.collect::<Option<Vec<_>>>().map(|all| all.into_iter().max().unwrap_or(0)))
    }

    /// Returns whether the kernel has claimed `device` for a user that nothing here shows.
    pub fn is_claimed(&self, device: &BlockDevice) -> bool {
        self.is_live && reach::is_claimed(device)
    }

    /// The block device that is the source of `mount`; none for a name that its file system chose.
    fn source(&self, mount: &Mount, namespace: &Namespace) -> Result<Option<BlockDevice>, ClaimError> {
        // The source of these is any text that was given when they were mounted, as any user may in a namespace of their own.
        if !mount.source.is_absolute() || ON_NO_DEVICE.contains(&mount.fstype.as_str()) {
            return Ok(None);
        }
        // A path on a network file system or on FUSE, which may never answer.
        let (sysfs, place) = (self.sysfs.clone(), place(namespace, &mount.source));
        let found = limited::ask(move || BlockDevice::open(&sysfs, &place).ok()).answer();
        found.ok_or_else(|| ClaimError::Source { path: mount.source.clone(), target: mount.target.clone() })
    }

    /// The devices that carry mounted file systems, each with its first [`MOST_MOUNTS`] mounts in every namespace.
    fn mounted_devices(&self) -> Result<Vec<(BlockDevice, &Mount, &Namespace)>, ClaimError> {
        let mut all = Vec::new();
        for namespace in &self.namespaces {
            let (mut carriers, mut counts) = (HashMap::new(), HashMap::new());
            for mount in &namespace.mounts {
                let devices: &mut Vec<BlockDevice> =
                    match carriers.entry((mount.number, &mount.source, &mount.fstype)) {
                        Entry::Occupied(known) => known.into_mut(),
                        Entry::Vacant(new) => new.insert(self.carrying(mount, namespace)?),
                    };
                for device in devices {
                    let count = counts.entry(device.path()).or_insert(0);
                    *count += 1;
                    if *count <= MOST_MOUNTS {
                        all.push((device.clone(), mount, namespace));
                    }
                }
            }
        }
        Ok(all)
    }

    /// The devices that carry the file system of `mount`.
    fn carrying(&self, mount: &Mount, namespace: &Namespace) -> Result<Vec<BlockDevice>, ClaimError> {
        // A file system on several devices has a number of its own; its source is one of them.
        let device = match BlockDevice::numbered(&self.sysfs, mount.number) {
            None => self.source(mount, namespace)?,
            device => device,
        };
        let names =
            device.as_ref().map_or(Vec::new(), |device| btrfs::member_names(&self.sysfs, &device.name()));
        let named =
            names.into_iter().filter_map(|name| BlockDevice::at(&self.sysfs.join("class/block").join(name)));
        Ok(device.into_iter().chain(named).collect())
    }

    /// Adds that all devices below `device` are used as `found`, down to the disks in `stack`.
    fn sink(
        &self,
        device: &BlockDevice,
        found: &Use,
        stack: &[BlockDevice],
        uses: &mut Vec<Used>,
    ) -> Result<(), BlockError> {
        if stack.contains(&device.whole()) {
            return Ok(());
        }
        for below in self.built_on(device)? {
            let via = Some(device.whole());
            uses.push(Used { number: below.number()?, via, found: found.clone() });
            self.sink(&below, found, stack, uses)?;
        }
        Ok(())
    }

    /// The paths of active swap, and whether each is a file.
    pub fn swaps(&self) -> Result<Vec<(PathBuf, bool)>, ClaimError> {
        let path = self.procfs.join("swaps");
        let text = fs::read(&path).map_err(|source| ClaimError::Swaps { path, source })?;
        let line = |line: &[u8]| {
            let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
            Some((mount::unescape(fields.next()?), fields.next()? == b"file"))
        };
        Ok(text.split(|byte| *byte == b'\n').skip(1).filter_map(line).collect())
    }
}

/// Checks that the root directories of other processes answer: one may be on FUSE or a network file system.
fn check_roots(namespaces: &[Namespace]) -> Result<(), ClaimError> {
    let ask = |namespace: &Namespace| {
        let place = namespace.root().join(".trimtab-is-not-there");
        Some((namespace.process?, limited::ask(move || identity::look(&place).is_ok())))
    };
    let asked: Vec<_> = namespaces.iter().filter_map(ask).collect();
    match asked.into_iter().find_map(|(process, asked)| asked.answer().is_none().then_some(process)) {
        Some(process) => Err(ClaimError::Root { process }),
        None => Ok(()),
    }
}

/// The path by which this process reaches `path` of `namespace`. One of its own namespace is unchanged, so that a
/// device can be found by its name.
pub(super) fn place(namespace: &Namespace, path: &Path) -> PathBuf {
    if namespace.process.is_none() { path.to_owned() } else { namespace.file(path) }
}

/// Returns the result of all these comparisons; none where the files are others.
pub(super) fn sharing(compared: impl Iterator<Item = Sameness>) -> Option<Sharing> {
    let found = compared.filter_map(|sameness| match sameness {
        Sameness::Same => Some(Sharing::Certain),
        Sameness::Unknown => Some(Sharing::Possible),
        Sameness::Different => None,
    });
    found.min_by_key(|sharing| *sharing != Sharing::Certain)
}

pub(super) fn mounted(mount: &Mount, namespace: &Namespace) -> Use {
    match namespace.process {
        None => Use::Mounted(mount.target.clone()),
        Some(process) => Use::MountedElsewhere(mount.target.clone(), process),
    }
}
