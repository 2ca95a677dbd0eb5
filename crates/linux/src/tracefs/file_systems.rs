//! The mounted file systems whose events are recorded.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trimtab_core::trace::{DeviceIndex, FsIndex, TraceFileSystem, TraceHeader};
use trimtab_core::{Bytes, Extent};

use super::chunks::{Chunks, Location};
use super::devices::{Devices, DiskOffset, KernelNumber};
use super::error::TracefsError;
use super::event::{FsEvent, FsId};
use super::layout::Layout;
use crate::file_system_kind::FileSystemKind;
use crate::mount::{self, Mount};
use crate::{SYSFS, btrfs, ioctl};

/// How long a drive may take to show a superblock before it is taken for one that hangs.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The file systems that are mounted or were.
#[derive(Debug)]
pub(super) struct FileSystems {
    procfs: PathBuf,
    /// None for a file system that is not recorded or not understood.
    known: HashMap<FsId, Option<Known>>,
}

#[derive(Debug)]
struct Known {
    index: FsIndex,
    directory: PathBuf,
    map: Map,
    /// Whether it was mounted at the last check.
    mounted: bool,
}

/// Translates a file system's addresses to bytes of disks.
#[derive(Debug)]
enum Map {
    Blocks { layout: Layout, on_disk: DiskOffset },
    Btrfs(Chunks),
}

/// A newly mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub index: FsIndex,
    pub kind: String,
    pub directory: PathBuf,
    /// The position and number of its device, if it has exactly one.
    pub on_disk: Option<(DiskOffset, KernelNumber)>,
}

impl FileSystems {
    pub fn new(procfs: &Path) -> Self {
        Self { procfs: procfs.to_owned(), known: HashMap::new() }
    }

    /// Reads the list of mounts and returns the file systems that are new.
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
                    // If it is mounted several times, this may be another of its mounts.
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
                    on_disk: known.map.on_disk().map(|on_disk| (on_disk, mount.number.into())),
                });
            }
            self.known.insert(id, known);
        }
        // An unmounted file system frees and discards until all its data is on its device.
        for (id, known) in before {
            self.known.entry(id).or_insert(known.map(|known| Known { mounted: false, ..known }));
        }
        Ok(found)
    }

    /// Returns true if it has been decided whether this file system's events are recorded.
    pub fn knows(&self, id: &FsId) -> bool {
        self.known.contains_key(id)
    }

    /// Ignores the events of this file system, which is mounted where this process can't see it.
    pub fn ignore(&mut self, id: FsId, devices: &mut Devices, header: &mut TraceHeader) {
        self.known.insert(id, None);
        if !devices.may_hold(&id, header) {
            return;
        }
        let what = match id {
            FsId::Device(number) => format!("on device {}", crate::block::DeviceNumber::from(number)),
            FsId::Btrfs(_) => "of a btrfs".to_owned(),
        };
        gap(
            header,
            format!("what the file system {what} frees: it is mounted where this process can't see it"),
        );
    }

    /// Forgets the old chunks at the logical addresses that `event` gives to a new chunk.
    pub fn forget_chunks(&mut self, event: &FsEvent) {
        if let Some(Some(Known { map: Map::Btrfs(chunks), .. })) = self.known.get_mut(&event.id) {
            chunks.forget(Extent::new(Bytes(event.start), Bytes(event.start.saturating_add(event.length))));
        }
    }

    /// Returns the file system of `event` and the bytes of disks that it names, empty if they are unknown.
    pub fn place(
        &mut self,
        event: &FsEvent,
        devices: &mut Devices,
        header: &mut TraceHeader,
    ) -> Option<(FsIndex, Vec<(DeviceIndex, Extent)>)> {
        let known = self.known.get_mut(&event.id)?.as_mut()?;
        let places = match &mut known.map {
            Map::Blocks { layout, on_disk } => {
                layout.extent(event).map(|extent| on_disk.place(extent)).into_iter().collect()
            }
            Map::Btrfs(chunks) => {
                let extent = Extent::new(Bytes(event.start), Bytes(event.start.checked_add(event.length)?));
                let mut place = chunks.place(extent);
                if place == Location::Unknown {
                    // The chunk may be new. If the list can't be read, the location stays unknown.
                    _ = chunks.refresh(&known.directory, |device| devices.path_on_disk(device, header));
                    place = chunks.place(extent);
                }
                let mount = known.directory.display();
                match place {
                    Location::Copies(copies) => copies,
                    Location::Striped => {
                        gap(header, format!("what the btrfs at {mount} frees in chunks that are striped"));
                        Vec::new()
                    }
                    Location::Unknown => {
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
    /// Reads the map of a mounted file system; returns `None` if none of its disks is recorded or it can't be
    /// read.
    fn of(mount: &Mount, devices: &mut Devices, header: &mut TraceHeader) -> Option<Self> {
        if mount.fstype == "btrfs" {
            if !devices.have_btrfs(&mount.source, header) {
                say_left_out(mount, devices, header);
                return None;
            }
            let mut chunks = Chunks::default();
            let read = chunks.refresh(&mount.target, |device| devices.path_on_disk(device, header));
            if let Err(error) = &read {
                let target = mount.target.display();
                gap(header, format!("what the btrfs at {target} frees: its chunks can't be read: {error}"));
            }
            return read.is_ok().then_some(Self::Btrfs(chunks));
        }
        let Some(on_disk) = devices.number_on_disk(mount.number, header) else {
            say_left_out(mount, devices, header);
            return None;
        };
        let layout = Layout::of(mount, devices.path_of(mount.number), Some(TIMEOUT));
        if let Err(error) = &layout {
            let (source, target) = (mount.source.display(), mount.target.display());
            gap(header, format!("what the file system at {target} ({source}) frees: {error}"));
        }
        Some(Self::Blocks { layout: layout.ok()?, on_disk })
    }

    /// Returns true if both are of the same file system.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Blocks { layout, on_disk }, Self::Blocks { layout: now, on_disk: there }) => {
                layout == now && on_disk == there
            }
            (Self::Btrfs(_), Self::Btrfs(_)) => true,
            _ => false,
        }
    }

    fn on_disk(&self) -> Option<DiskOffset> {
        match self {
            Self::Blocks { on_disk, .. } => Some(*on_disk),
            Self::Btrfs(_) => None,
        }
    }
}

/// Notes in `header` that `mount` is not recorded, if it is on a device above a recorded one, where the
/// addresses of its frees differ.
fn say_left_out(mount: &Mount, devices: &Devices, header: &mut TraceHeader) {
    if let Some((upper, lower)) = devices.above(&mount.source) {
        let target = mount.target.display();
        let why = format!("it is on {upper}, which is built on {lower}; record {upper} for that");
        gap(header, format!("what the file system at {target} frees: {why}"));
    }
}

/// Returns the identity of a mounted file system in events; `None` if its kind reports no blocks.
pub(super) fn identity(mount: &Mount) -> Option<FsId> {
    match mount.fstype.as_str() {
        // By its device where that is known: an open file system can't be unmounted.
        "btrfs" => {
            let known =
                btrfs::directory_of(Path::new(SYSFS), mount).and_then(|directory| btrfs::id_in(&directory));
            let asked = || ioctl::btrfs_id(mount::open_directory(&mount.target).ok()?).ok();
            known.or_else(asked).map(FsId::Btrfs)
        }
        kind => FileSystemKind::named(kind).map(|_| FsId::Device(mount.number.into())),
    }
}

/// Returns the index of a file system in the list of `header`, after adding it if necessary.
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

/// Adds a sentence on something that can't be recorded to `header`, once.
pub(super) fn gap(header: &mut TraceHeader, sentence: String) {
    if !header.gaps.contains(&sentence) {
        header.gaps.push(sentence);
    }
}
