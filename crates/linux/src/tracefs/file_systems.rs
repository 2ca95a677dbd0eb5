//! The mounted file systems whose events are recorded.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use trimtab_core::trace::{DeviceIndex, FsIndex, TraceFileSystem, TraceHeader};
use trimtab_core::{Bytes, Extent};

use super::chunks::{Chunks, Place};
use super::devices::{Devices, Home, KernelNumber};
use super::error::TracefsError;
use super::event::{FsEvent, FsId};
use super::layout::Layout;
use crate::ioctl;
use crate::mount::{self, Mount};

/// The file systems that tell of blocks.
const KINDS: [&str; 6] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs"];

/// The file systems that are or were mounted.
#[derive(Debug)]
pub(super) struct FileSystems {
    procfs: PathBuf,
    /// None for one that is not to be recorded, or can't be understood.
    known: HashMap<FsId, Option<Known>>,
}

#[derive(Debug)]
struct Known {
    index: FsIndex,
    directory: PathBuf,
    map: Map,
    /// Whether it was found mounted when that was last looked at.
    mounted: bool,
}

/// How addresses become bytes of disks.
#[derive(Debug)]
enum Map {
    Blocks { layout: Layout, home: Home },
    Btrfs(Chunks),
}

/// A file system that was found mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub index: FsIndex,
    pub kind: String,
    pub directory: PathBuf,
    /// The device that it is on, where that is one, with the device's number.
    pub home: Option<(Home, KernelNumber)>,
}

impl FileSystems {
    pub fn new(procfs: &Path) -> Self {
        Self { procfs: procfs.to_owned(), known: HashMap::new() }
    }

    /// Looks at what is mounted now, and returns what wasn't before.
    pub fn refresh(
        &mut self,
        devices: &mut Devices,
        header: &mut TraceHeader,
    ) -> Result<Vec<Found>, TracefsError> {
        let mut before = std::mem::take(&mut self.known);
        let mut found = Vec::new();
        for mount in mount::mounts(&self.procfs)? {
            let Some(id) = identity(&mount) else { continue };
            if self.known.contains_key(&id) {
                continue;
            }
            let (known, is_new) = match (before.remove(&id), Map::of(&mount, devices, header)) {
                (Some(Some(known)), Some(map)) if known.mounted && known.map.is_same(&map) => {
                    // Where it was mounted several times, that may be another of its mounts.
                    let moved = known.directory != mount.target;
                    let index = if moved { list(&mount, header) } else { known.index };
                    (Some(Known { index, directory: mount.target.clone(), ..known }), false)
                }
                (_, Some(map)) => {
                    let index = list(&mount, header);
                    (Some(Known { index, directory: mount.target.clone(), map, mounted: true }), true)
                }
                (_, None) => (None, false),
            };
            if let Some(known) = known.as_ref().filter(|_| is_new) {
                found.push(Found {
                    index: known.index,
                    kind: mount.fstype.clone(),
                    directory: mount.target.clone(),
                    home: known.map.home().map(|home| (home, mount.number.into())),
                });
            }
            self.known.insert(id, known);
        }
        // A file system frees and discards after it has left the list, until all of it is on its device.
        for (id, known) in before {
            self.known.entry(id).or_insert(known.map(|known| Known { mounted: false, ..known }));
        }
        Ok(found)
    }

    /// Whether events of this file system are understood, or known not to be recorded.
    pub fn knows(&self, id: &FsId) -> bool {
        self.known.contains_key(id)
    }

    /// Takes events of this file system, which isn't mounted where it could be seen, as none.
    pub fn ignore(&mut self, id: FsId, header: &mut TraceHeader) {
        self.known.insert(id, None);
        let what = match id {
            FsId::Device(number) => format!("on device {}", crate::block::DeviceNumber::from(number)),
            FsId::Btrfs(_) => "of a btrfs".to_owned(),
        };
        gap(
            header,
            format!("what the file system {what} frees: it is mounted where this process can't see it"),
        );
    }

    /// Forgets where the logical addresses were that `event` gives to a new chunk.
    pub fn forget_chunks(&mut self, event: &FsEvent) {
        if let Some(Some(Known { map: Map::Btrfs(chunks), .. })) = self.known.get_mut(&event.id) {
            chunks.forget(Extent::new(Bytes(event.start), Bytes(event.start.saturating_add(event.length))));
        }
    }

    /// The bytes of disks that `event` names, and its file system; empty where there are none.
    pub fn place(
        &mut self,
        event: &FsEvent,
        devices: &mut Devices,
        header: &mut TraceHeader,
    ) -> Option<(FsIndex, Vec<(DeviceIndex, Extent)>)> {
        let known = self.known.get_mut(&event.id)?.as_mut()?;
        let places = match &mut known.map {
            Map::Blocks { layout, home } => {
                layout.extent(event).map(|extent| home.place(extent)).into_iter().collect()
            }
            Map::Btrfs(chunks) => {
                let extent = Extent::new(Bytes(event.start), Bytes(event.start.checked_add(event.length)?));
                let mut place = chunks.place(extent);
                if place == Place::Unknown {
                    // Made since; where that can't be seen, the place stays unknown.
                    _ = chunks.refresh(&known.directory, |device| devices.home_of(device, header));
                    place = chunks.place(extent);
                }
                let mount = known.directory.display();
                match place {
                    Place::Copies(copies) => copies,
                    Place::Striped => {
                        gap(header, format!("what the btrfs at {mount} frees in chunks that are striped"));
                        Vec::new()
                    }
                    Place::Unknown => {
                        let what = format!("what the btrfs at {mount} frees in unknown chunks");
                        gap(header, format!("{what}: they may have been removed"));
                        Vec::new()
                    }
                }
            }
        };
        Some((known.index, places))
    }
}

impl Map {
    /// That of a mounted file system; none where none of its disks is recorded or it can't be read.
    fn of(mount: &Mount, devices: &mut Devices, header: &mut TraceHeader) -> Option<Self> {
        if mount.fstype == "btrfs" {
            if !devices.have_btrfs(&mount.source, header) {
                say_left_out(mount, devices, header);
                return None;
            }
            let mut chunks = Chunks::default();
            let read = chunks.refresh(&mount.target, |device| devices.home_of(device, header));
            if let Err(error) = &read {
                let target = mount.target.display();
                gap(header, format!("what the btrfs at {target} frees: its chunks can't be read: {error}"));
            }
            return read.is_ok().then_some(Self::Btrfs(chunks));
        }
        let Some(home) = devices.home_at(mount.number, header) else {
            say_left_out(mount, devices, header);
            return None;
        };
        match Layout::of(mount, devices.path_of(mount.number)) {
            Some(layout) => Some(Self::Blocks { layout, home }),
            None => {
                let (source, target) = (mount.source.display(), mount.target.display());
                gap(
                    header,
                    format!("what the file system at {target} frees: {source} shows no superblock of it"),
                );
                None
            }
        }
    }

    /// Whether it is still the same file system.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Blocks { layout, home }, Self::Blocks { layout: now, home: there }) => {
                layout == now && home == there
            }
            (Self::Btrfs(_), Self::Btrfs(_)) => true,
            _ => false,
        }
    }

    fn home(&self) -> Option<Home> {
        match self {
            Self::Blocks { home, .. } => Some(*home),
            Self::Btrfs(_) => None,
        }
    }
}

/// Adds to `header` that `mount` is left out, where it is on a device above one that is recorded: what
/// it frees there has other addresses.
fn say_left_out(mount: &Mount, devices: &Devices, header: &mut TraceHeader) {
    if let Some((upper, lower)) = devices.above(&mount.source) {
        let target = mount.target.display();
        let why = format!("it is on {upper}, which is built on {lower}; record {upper} for that");
        gap(header, format!("what the file system at {target} frees: {why}"));
    }
}

/// What events call a mounted file system; none where it tells of no blocks.
pub(super) fn identity(mount: &Mount) -> Option<FsId> {
    match mount.fstype.as_str() {
        "btrfs" => ioctl::btrfs_id(mount::open_apart(&mount.target).ok()?).ok().map(FsId::Btrfs),
        kind => KINDS.contains(&kind).then_some(FsId::Device(mount.number.into())),
    }
}

/// The place of a file system in the list of `header`, where it is added if it isn't there.
fn list(mount: &Mount, header: &mut TraceHeader) -> FsIndex {
    let listed = TraceFileSystem {
        kind: mount.fstype.clone(),
        mount_point: mount.target.display().to_string(),
        options: mount.all_options(),
        source: mount.source.display().to_string(),
    };
    let place = header.file_systems.iter().position(|known| *known == listed).unwrap_or_else(|| {
        header.file_systems.push(listed);
        header.file_systems.len() - 1
    });
    FsIndex(place as u16)
}

/// Adds what can't be recorded to `header`, once.
pub(super) fn gap(header: &mut TraceHeader, sentence: String) {
    if !header.gaps.contains(&sentence) {
        header.gaps.push(sentence);
    }
}
