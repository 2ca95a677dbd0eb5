//! btrfs' chunks: translates logical addresses to bytes of devices.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use trimtab_core::trace::DeviceIndex;
use trimtab_core::{Bytes, Extent};

use super::devices::DiskOffset;
use crate::btrfs::{self, Chunk};
use crate::{ioctl, mount};

/// The chunks of a mounted btrfs. A removed chunk stays until its logical addresses are used again, because
/// events that are read late may still name it.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    /// By first logical address; no two overlap.
    chunks: BTreeMap<Bytes, Chunk>,
    /// The file system's devices by id; none for a device that is not recorded.
    devices: HashMap<u64, Option<DiskOffset>>,
}

/// Where a logical extent is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Location {
    /// In these bytes of these disks.
    Copies(Vec<(DeviceIndex, Extent)>),
    /// In a chunk that is striped over devices.
    Striped,
    /// In no known chunk.
    Unknown,
}

impl Chunks {
    /// Adds the chunks that the btrfs mounted at `directory` has now. `on_disk` locates a device.
    pub fn refresh(
        &mut self,
        directory: &Path,
        mut on_disk: impl FnMut(&Path) -> Option<DiskOffset>,
    ) -> io::Result<()> {
        let directory = mount::open_directory(directory)?;
        for chunk in btrfs::chunks(&directory)? {
            for (device, _) in chunk.copies.iter().flatten() {
                if !self.devices.contains_key(device) {
                    self.devices.insert(*device, on_disk(&ioctl::btrfs_device(&directory, *device)?));
                }
            }
            self.forget(chunk.extent);
            self.chunks.insert(chunk.extent.start, chunk);
        }
        Ok(())
    }

    /// Forgets the chunks at the logical `addresses`.
    pub fn forget(&mut self, addresses: Extent) {
        // Chunks don't overlap, so the last one that begins before the end also ends last.
        while let Some((_, last)) = self.chunks.range(..addresses.end).next_back()
            && last.extent.end > addresses.start
        {
            let start = last.extent.start;
            self.chunks.remove(&start);
        }
    }

    /// Locates the bytes of the logical `extent`.
    pub fn place(&self, extent: Extent) -> Location {
        let Some((_, chunk)) = self.chunks.range(..=extent.start).next_back() else {
            return Location::Unknown;
        };
        if extent.end > chunk.extent.end {
            return Location::Unknown;
        }
        let Some(copies) = &chunk.copies else { return Location::Striped };
        let on_disks = copies.iter().filter_map(|(device, offset)| {
            let at = *offset + (extent.start - chunk.extent.start);
            Some(self.devices.get(device)?.as_ref()?.place(Extent::at(at, extent.len())))
        });
        Location::Copies(on_disks.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btrfs::ChunkKind;

    #[test]
    fn forget_removes_overlapping_chunks() {
        let extent = |start, end| Extent::new(Bytes(start), Bytes(end));
        let mut chunks = Chunks::default();
        for (start, end) in [(0, 10), (10, 20), (20, 30), (40, 50)] {
            let chunk = Chunk { extent: extent(start, end), copies: None, kind: ChunkKind::Data };
            chunks.chunks.insert(chunk.extent.start, chunk);
        }
        chunks.forget(extent(15, 40));
        assert_eq!(chunks.chunks.keys().collect::<Vec<_>>(), [&Bytes(0), &Bytes(40)]);
        chunks.forget(extent(0, 1));
        assert_eq!(chunks.chunks.keys().collect::<Vec<_>>(), [&Bytes(40)]);
    }
}
