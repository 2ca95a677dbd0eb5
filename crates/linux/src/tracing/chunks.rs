//! btrfs' chunks: from logical addresses to bytes of devices.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use trimtab_core::trace::DeviceIndex;
use trimtab_core::{Bytes, Extent};

use super::devices::Home;
use crate::btrfs::{self, Chunk};
use crate::{ioctl, mount};

/// The chunks of a mounted btrfs. Those that are removed stay, so that what was read holds for events
/// of the past, until their logical addresses are used again.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    chunks: BTreeMap<Bytes, Chunk>,
    /// Its devices, those that are recorded.
    devices: HashMap<u64, Option<Home>>,
}

/// Where a logical extent is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// In these bytes of these disks.
    Copies(Vec<(DeviceIndex, Extent)>),
    /// In a chunk that is striped over devices.
    Striped,
    /// In no chunk that is known.
    Unknown,
}

impl Chunks {
    /// Adds the chunks that the btrfs mounted at `directory` has now. `home` says where a device is.
    pub fn refresh(
        &mut self,
        directory: &Path,
        mut home: impl FnMut(&Path) -> Option<Home>,
    ) -> io::Result<()> {
        let directory = mount::open_apart(directory)?;
        for chunk in btrfs::chunks(&directory)? {
            for (device, _) in chunk.copies.iter().flatten() {
                if !self.devices.contains_key(device) {
                    self.devices.insert(*device, home(&ioctl::btrfs_device(&directory, *device)?));
                }
            }
            self.chunks.insert(chunk.extent.start, chunk);
        }
        Ok(())
    }

    /// Forgets the chunks at the logical `addresses`.
    pub fn forget(&mut self, addresses: Extent) {
        self.chunks.retain(|_, chunk| chunk.extent.intersect(addresses).is_empty());
    }

    /// Where the bytes of the logical `extent` are.
    pub fn place(&self, extent: Extent) -> Place {
        let Some((_, chunk)) = self.chunks.range(..=extent.start).next_back() else { return Place::Unknown };
        if extent.end > chunk.extent.end {
            return Place::Unknown;
        }
        let Some(copies) = &chunk.copies else { return Place::Striped };
        let on_disks = copies.iter().filter_map(|(device, offset)| {
            let at = *offset + (extent.start - chunk.extent.start);
            Some(self.devices.get(device)?.as_ref()?.place(Extent::at(at, extent.len())))
        });
        Place::Copies(on_disks.collect())
    }
}
