//! Finds the uses of a block device, its partitions and its disk.

use std::path::PathBuf;

use trimtab_core::{Bytes, Extent};

use super::around::{Around, Used, sharing};
use super::files::{BackingFile, UsedFile};
use super::fuse_servers;
use super::identifiers;
use super::opened_kind::OpenedKind;
use super::processes::{Opened, Processes};
use super::served;
use super::uses::{Use, titled};
use super::{ClaimError, Overrides, Sharing};
use crate::block::{BlockDevice, BlockError, DeviceNumber};
use crate::identity::{self, Sameness};
use crate::process;
use crate::stack::Machine;

/// A device, or a relative of it, and what it is used for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    path: String,
    number: DeviceNumber,
    /// The character devices that take commands for it.
    characters: Vec<DeviceNumber>,
    extent: Extent,
    /// Whether its users may rely on more than its extent, by an unknown length.
    is_unbounded: bool,
    uses: Vec<Use>,
    /// The devices built on other parts of it.
    apart: Vec<String>,
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
    /// Looks up which of `uses` are its own; what is in `stack` doesn't hold it.
    fn of(
        around: &Around,
        block: &BlockDevice,
        uses: &[Used],
        stack: &[BlockDevice],
    ) -> Result<Self, ClaimError> {
        let is_partition = block.disk().is_some();
        // The container of a volume holds its disks for the volumes in it.
        let containers: Vec<_> = stack.iter().filter_map(BlockDevice::container).collect();
        let node = |block: &BlockDevice, is_beside: bool| -> Result<Node, ClaimError> {
            let number = block.number()?;
            let (own, mut holders): (Vec<_>, Vec<_>) =
                block.holders()?.into_iter().partition(|holder| stack.contains(&holder.whole()));
            holders.retain(|holder| !containers.contains(&holder.name()));
            let held = holders.iter().map(|holder| Used {
                number,
                via: Some(holder.clone()),
                found: Use::Held(titled(holder)),
            });
            let all = uses.iter().filter(|used| used.number == number).cloned().chain(held);
            let (mut uses, mut apart) = (Vec::new(), Vec::new());
            for used in all {
                // The reach of a partition's users is still compared with what lies behind it.
                let is_apart = match &used.via {
                    Some(via) if !is_beside => around.is_apart(block, via, stack)?,
                    _ => used.found == Use::Pool && around.is_below_thin(block, stack)?,
                };
                match used.via {
                    _ if !is_apart => uses.push(used.found),
                    Some(via) => apart.push(titled(&via)),
                    None => {}
                }
            }
            apart.sort();
            apart.dedup();
            // The partitions in the stack are claimed by what is built on them. No partition of a whole disk can be claimed
            // beside that disk, which this process may have claimed by now.
            let is_beside_partition = is_beside && is_partition;
            if is_beside_partition && uses.is_empty() && own.is_empty() && around.is_claimed(block) {
                uses.push(Use::Claimed);
            }
            let (path, characters) = (block.path().display().to_string(), block.characters());
            let mut extent = block.extent()?;
            // A partition can shrink while it is in use, whose user then still relies on what it lost.
            let mut is_unbounded = false;
            if block.disk().is_some() && !uses.is_empty() {
                match around.reach(block, &uses, &holders)? {
                    Some(reach) => extent.end = extent.end.max(Bytes(extent.start.0.saturating_add(reach))),
                    None => is_unbounded = true,
                }
            }
            Ok(Node { path, number, characters, extent, is_unbounded, uses, apart })
        };
        let partitions = block.partitions()?.into_iter().filter(|partition| partition != block);
        Ok(Self {
            device: node(block, false)?,
            disk: block.disk().as_ref().map(|disk| node(disk, false)).transpose()?,
            partitions: partitions.map(|partition| node(&partition, true)).collect::<Result<_, _>>()?,
        })
    }

    /// Whether a partition of its disk shares bytes with it.
    fn overlaps(&self, partition: &Node) -> bool {
        let (ours, theirs) = (self.device.extent, partition.extent);
        self.disk.is_none() || (ours.start < theirs.end && theirs.start < ours.end)
    }

    /// The partition before it whose user may rely on its bytes, if there is one.
    fn unbounded(&self) -> Option<(&Node, &Use)> {
        self.disk.as_ref()?;
        let may_reach = |node: &&Node| node.is_unbounded && node.extent.start < self.device.extent.end;
        let node = self.partitions.iter().find(may_reach)?;
        Some((node, node.uses.first()?))
    }

    /// Itself with what shares its bytes.
    fn sharing(&self) -> impl Iterator<Item = &Node> {
        let partitions = self.partitions.iter().filter(|partition| self.overlaps(partition));
        [&self.device].into_iter().chain(&self.disk).chain(partitions)
    }

    /// The path of its disk, or its own where it is no partition, and who uses other parts of that; none where nobody does.
    fn rest(&self) -> Option<(&str, Vec<&str>)> {
        let partitions = self.partitions.iter().filter(|partition| !partition.uses.is_empty());
        let whole = self.disk.as_ref().unwrap_or(&self.device);
        let apart = [&self.device].into_iter().chain(&self.disk).flat_map(|node| &node.apart);
        let all: Vec<_> = partitions.map(|node| &node.path).chain(apart).map(String::as_str).collect();
        (!all.is_empty()).then_some((&whole.path, all))
    }

    /// The first use of its bytes, and whose it is.
    fn in_use(&self) -> Option<(&Node, &Use)> {
        self.sharing().find_map(|node| Some((node, node.uses.first()?)))
    }
}

/// The known uses of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Usage {
    target: Layer,
    read_only: bool,
    /// The devices that it is built on, nearest first, with the uses that don't come from it or its
    /// disk; the loop devices over the same files, or what may be the same; and further paths to its drives.
    others: Vec<(Layer, Sharing)>,
    /// How many of `others` it is built on.
    below: usize,
    /// The first file below that is used without a device.
    file: Option<(UsedFile, Sharing)>,
    /// The first disk below, or itself, whose data something on this machine keeps elsewhere, and what does.
    served: Option<(String, &'static str)>,
    /// The first file below that is not an emulated drive's.
    kept: Option<PathBuf>,
    /// The pool that it, or a layer below it, is a volume of.
    pool: Option<&'static str>,
    /// The first file below whose bytes may be kept in another, and the file system it is on.
    stacked: Option<(PathBuf, String)>,
    /// A process that can write to any of these: its number, its name and to what.
    writer: Option<(u32, String, String)>,
    /// A process that reads any of these: its number, its name and what it reads.
    reader: Option<(u32, String, String)>,
    /// The devices that share its bytes and are not held by itself.
    pub sharing: Vec<(BlockDevice, Sharing)>,
    /// How many processes could not be looked at.
    pub unseen: usize,
}

impl Usage {
    /// Looks it up.
    pub(super) fn of(machine: &Machine, block: &BlockDevice) -> Result<Self, ClaimError> {
        let around = Around::of(machine)?;
        let below = around.below(block)?;
        let stack: Vec<_> = [block].into_iter().chain(&below).map(BlockDevice::whole).collect();
        let Processes { opened, read, unseen, .. } = Processes::of(&machine.procfs())?;
        let mut files = around.files(&stack)?;
        // An emulated drive's server has these bytes elsewhere.
        let kept = files.iter().find(|file| file.identity.fuse.is_none()).map(|file| file.path.clone());
        let servers = fuse_servers::add_kept(&around.namespaces, &machine.procfs(), &mut files, &opened);
        let siblings = around.siblings(&stack, &files);
        let uses = around.uses(&stack)?;
        let layer = |block: &BlockDevice| Layer::of(&around, block, &uses, &stack);
        let count = below.len();
        let certain = below.into_iter().map(|below| (below, Sharing::Certain));
        identifiers::check(machine, &around.sysfs, &stack, &uses)?;
        let paths = around.paths(&stack)?;
        let beside = around.beside(&stack)?;
        let others: Vec<_> = certain.chain(siblings).chain(beside).chain(paths).collect();
        let server = |disk: &BlockDevice| Some((titled(disk), served::server(disk, &around.exports)?));
        let layers = others.iter().map(|(block, how)| Ok((layer(block)?, *how)));
        let mut usage = Self {
            target: layer(block)?,
            read_only: block.is_read_only()?,
            others: layers.collect::<Result<_, ClaimError>>()?,
            below: count,
            file: None,
            served: stack.iter().find_map(server),
            kept,
            pool: stack.iter().find_map(pool),
            stacked: files.iter().find_map(|file| Some((file.path.clone(), file.identity.stacked.clone()?))),
            writer: None,
            reader: None,
            sharing: Vec::new(),
            unseen,
        };
        usage.target.device.characters.extend(around.units(&stack));
        usage.writer = usage.user(machine, &around, &files, &servers, &opened);
        usage.reader = usage.user(machine, &around, &files, &servers, &read);
        usage.file = around.used_files(&files)?.into_iter().min_by_key(|(_, how)| *how != Sharing::Certain);
        // Layers that the device mapper or md holds for the device itself can't be held once more.
        let mut held = Vec::new();
        for disk in &stack {
            held.extend(disk.slaves()?);
        }
        for (block, how) in others {
            let partitions = overlapping(&block)?.into_iter().map(|partition| (partition, how));
            usage.sharing.extend(partitions);
            usage.sharing.push((block, how));
        }
        usage.sharing.retain(|(block, _)| !held.contains(block));
        Ok(usage)
    }

    /// The first process in `opened` that has any of the bytes open.
    fn user(
        &self,
        machine: &Machine,
        around: &Around,
        files: &[BackingFile],
        servers: &[u32],
        opened: &[Opened],
    ) -> Option<(u32, String, String)> {
        let layers: Vec<_> =
            [&self.target].into_iter().chain(self.others.iter().map(|(layer, _)| layer)).collect();
        let nodes = layers.iter().flat_map(|layer| layer.sharing());
        let characters: Vec<_> = nodes.flat_map(|node| &node.characters).collect();
        let used = |opened: &Opened| match opened.what {
            OpenedKind::Character(number) => {
                characters.contains(&&number).then(|| opened.path().display().to_string())
            }
            OpenedKind::Device(number) => {
                let mut nodes = layers.iter().flat_map(|layer| layer.sharing());
                nodes.find(|node| node.number == number).map(|node| node.path.clone())
            }
            OpenedKind::File(_) if files.is_empty() => None,
            OpenedKind::File(id) => {
                let path = opened.path();
                let theirs = identity::identify(&around.namespaces, id, &path);
                let compare = |ours: &BackingFile| match ours.identity.compare(&theirs) {
                    _ if ours.is_served && servers.contains(&opened.process) => Sameness::Different,
                    // What is on FUSE itself is its server's to write.
                    Sameness::Unknown
                        if ours.identity.fuse.is_some()
                            || !ours.identity.may_share(&theirs, &opened.link, ours.length) =>
                    {
                        Sameness::Different
                    }
                    _ => ours.compare(&theirs),
                };
                sharing(files.iter().map(compare)).map(|how| match how {
                    Sharing::Possible => format!("{}, which may be the same file,", path.display()),
                    _ => path.display().to_string(),
                })
            }
            OpenedKind::Fuse(_) => None,
        };
        opened.iter().find_map(|opened| {
            let node = used(opened)?;
            Some((opened.process, process::name(&machine.procfs(), opened.process), node))
        })
    }

    /// The first use of a layer of `others`, and whether it shares the bytes of the device.
    fn shared_use<'a>(
        &self,
        index: usize,
        (layer, how): &'a (Layer, Sharing),
    ) -> Option<(Sharing, (&'a Node, &'a Use))> {
        let (node, found) = layer.in_use()?;
        // Another volume may have other parts of the same device, which its table does not tell.
        let is_volume = |path: &str| path.starts_with("/dev/dm-");
        let is_beside = match found {
            Use::Below(upper, _) | Use::Held(upper) => {
                is_volume(upper) && is_volume(&self.target.device.path)
            }
            _ => false,
        };
        let is_beside = is_beside && index < self.below;
        Some((if is_beside { Sharing::Possible } else { *how }, (node, found)))
    }

    /// Says what work on the device costs what is around it, or why it may not be used.
    pub(super) fn judge(&self, overrides: &Overrides) -> Result<Vec<String>, ClaimError> {
        let Layer { device: Node { path, extent, .. }, partitions, .. } = &self.target;
        let device = path.clone();
        if let Some(used) = self.in_use().next() {
            return Err(used);
        }
        let mut shared =
            self.others.iter().enumerate().filter_map(|(index, other)| self.shared_use(index, other));
        // A use that is certain says more than one that is possible, which any is for a file that may be elsewhere.
        let certain = shared.clone().find(|(how, _)| *how == Sharing::Certain);
        if let (None, Some((path, file_system))) = (&certain, self.stacked.clone()) {
            return Err(ClaimError::Stacked { device, path, file_system });
        }
        if let Some((how, (node, found))) = certain.or_else(|| shared.next()) {
            return Err(ClaimError::Shared { device, how, node: node.path.clone(), found: found.clone() });
        }
        let mut layers = [&self.target].into_iter().chain(self.others.iter().map(|(layer, _)| layer));
        if let Some((node, found)) = layers.find_map(Layer::unbounded) {
            return Err(ClaimError::Unbounded { device, node: node.path.clone(), found: found.clone() });
        }
        if let Some((used, how)) = &self.file {
            let (how, node, found) = (*how, used.path.display().to_string(), used.found.clone());
            return Err(ClaimError::Shared { device, how, node, found });
        }
        if let Some((node, server)) = self.served.clone() {
            return Err(ClaimError::Served { device, node, server });
        }
        if let Some((process, name, node)) = self.writer.clone() {
            return Err(ClaimError::Written { device, process, name, node });
        }
        if extent.is_empty() {
            return Err(ClaimError::Empty { device });
        }
        if self.read_only {
            return Err(ClaimError::ReadOnly { device });
        }
        let reads = |(process, name, node): &(u32, String, String)| {
            format!("will be disturbed: process {process} ({name}), which has {node} open for reading")
        };
        let mut lost: Vec<_> = self.reader.iter().map(reads).collect();
        let is_partition = self.target.disk.is_some();
        if let Some(other) =
            partitions.iter().find(|partition| is_partition && self.target.overlaps(partition))
        {
            return Err(ClaimError::Overlap { device, other: other.path.clone() });
        }
        lost.extend(self.part(overrides)?);
        Ok(lost)
    }

    /// The uses of its bytes, each as the reason to refuse it.
    pub(super) fn in_use(&self) -> impl Iterator<Item = ClaimError> {
        let uses = self.target.sharing().flat_map(|node| node.uses.iter().map(move |found| (node, found)));
        uses.map(|(node, found)| ClaimError::InUse {
            device: self.target.device.path.clone(),
            node: node.path.clone(),
            found: found.clone(),
        })
    }

    /// Says what is slowed where the device is a part of something, or that this was not allowed.
    pub(super) fn part(&self, overrides: &Overrides) -> Result<Option<String>, ClaimError> {
        match self.whole() {
            None => Ok(None),
            Some((whole, others)) if overrides.part => {
                Ok(Some(format!("will be slowed: what uses {whole}{others}")))
            }
            Some((whole, others)) => {
                Err(ClaimError::Part { device: self.target.device.path.clone(), whole, others })
            }
        }
    }

    /// The drive, volume or file system that the device, or a layer below it, is a part of, and the uses of other parts, in
    /// brackets; none for a whole drive and for an emulated one.
    fn whole(&self) -> Option<(String, String)> {
        let layers = [&self.target].into_iter().chain(self.others.iter().map(|(layer, _)| layer));
        let used = layers.clone().filter_map(Layer::rest);
        let used = used.map(|(whole, others)| (whole, format!(" ({} in use)", others.join(", "))));
        // Processes may have other partitions open that seem unused.
        let disks = layers.filter_map(|layer| layer.disk.as_ref()).map(|disk| (&*disk.path, String::new()));
        let found = used.chain(disks).next().map(|(whole, others)| (whole.to_owned(), others));
        let below = || (self.below > 0).then(|| (self.others[0].0.device.path.clone(), String::new()));
        let holder = |file: &PathBuf| format!("the file system that holds {}", file.display());
        let keeper = self.kept.as_ref().map(holder).or_else(|| self.pool.map(str::to_owned));
        found.or_else(|| Some((keeper?, String::new()))).or_else(below)
    }
}

/// Volumes below which sysfs shows nothing, by the beginnings of their names, and what they are parts of. Sources: OpenZFS'
/// `ZVOL_DEV_NAME`; `RBD_DRV_NAME` in the kernel's `drivers/block/rbd.c`.
const VOLUMES: [(&str, &str); 2] = [("zd", "a ZFS pool"), ("rbd", "a Ceph cluster")];

/// Returns what `disk` is a volume of, where its name alone shows that.
fn pool(disk: &BlockDevice) -> Option<&'static str> {
    let name = disk.name();
    let is_of = |kind: &str| {
        name.strip_prefix(kind).is_some_and(|number| number.starts_with(|digit: char| digit.is_ascii_digit()))
    };
    VOLUMES.iter().find(|(kind, _)| is_of(kind)).map(|(_, pool)| *pool)
}

/// The other partitions of its disk that share bytes with the partition `block`; none where it is a whole disk, whose
/// partitions the kernel keeps with it.
fn overlapping(block: &BlockDevice) -> Result<Vec<BlockDevice>, BlockError> {
    let mut all = Vec::new();
    if block.disk().is_some() {
        let ours = block.extent()?;
        for partition in block.partitions()?.into_iter().filter(|partition| partition != block) {
            let theirs = partition.extent()?;
            if ours.start < theirs.end && theirs.start < ours.end {
                all.push(partition);
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
