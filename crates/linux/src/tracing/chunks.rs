//! btrfs' chunks: from logical addresses to bytes of devices.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::path::Path;

use trimtab_core::trace::DeviceIndex;
use trimtab_core::{Bytes, Extent};

use super::devices::Home;
use crate::ioctl;

/// Profiles of which each device holds whole copies, so that a chunk's bytes lie as they do in the
/// chunk; the others are striped.
const SINGLE_OR_COPIES: u64 = RAID1 | DUP | RAID1C3 | RAID1C4;
const RAID0: u64 = 1 << 3;
const RAID1: u64 = 1 << 4;
const DUP: u64 = 1 << 5;
const RAID10: u64 = 1 << 6;
const RAID5: u64 = 1 << 7;
const RAID6: u64 = 1 << 8;
const RAID1C3: u64 = 1 << 9;
const RAID1C4: u64 = 1 << 10;
const PROFILES: u64 = SINGLE_OR_COPIES | RAID0 | RAID10 | RAID5 | RAID6;

/// The chunks of a mounted btrfs. Logical addresses are never used twice, so what was read stays true
/// for events of the past.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    chunks: BTreeMap<u64, Chunk>,
    /// Its devices, those that are recorded.
    devices: HashMap<u64, Option<Home>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Chunk {
    length: u64,
    /// Device and offset of each copy; none where the chunk is striped.
    copies: Option<Vec<(u64, u64)>>,
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
        let directory = File::open(directory)?;
        for item in ioctl::btrfs_chunks(&directory)? {
            let Some(chunk) = Chunk::parse(&item.bytes) else { continue };
            for (device, _) in chunk.copies.iter().flatten() {
                if !self.devices.contains_key(device) {
                    self.devices.insert(*device, home(&ioctl::btrfs_device(&directory, *device)?));
                }
            }
            self.chunks.insert(item.logical, chunk);
        }
        Ok(())
    }

    /// Where the bytes of the logical `extent` are.
    pub fn place(&self, extent: Extent) -> Place {
        let (start, end) = (extent.start.0, extent.end.0);
        let Some((logical, chunk)) = self.chunks.range(..=start).next_back() else { return Place::Unknown };
        if end - logical > chunk.length {
            return Place::Unknown;
        }
        let Some(copies) = &chunk.copies else { return Place::Striped };
        let on_disks = copies.iter().filter_map(|(device, offset)| {
            let at = Bytes(offset.checked_add(start - logical)?);
            Some(self.devices.get(device)?.as_ref()?.place(Extent::at(at, extent.len())))
        });
        Place::Copies(on_disks.collect())
    }
}

impl Chunk {
    /// Reads a `struct btrfs_chunk` and its stripes.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let (length, profile) = (number(0)?, number(24)? & PROFILES);
        let stripes = usize::from(u16::from_le_bytes(*bytes.get(44..)?.first_chunk()?));
        let stripe = |index: usize| {
            let at = 48 + index * 32;
            Some((number(at)?, number(at + 8)?))
        };
        let copies = match profile & !SINGLE_OR_COPIES {
            0 => Some((0..stripes).map(stripe).collect::<Option<Vec<_>>>()?),
            _ => None,
        };
        Some(Self { length, copies })
    }
}
