//! Translates a file system's own addresses to those of its device.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use trimtab_core::{Bytes, Extent};

use super::event::FsEvent;
use crate::forked;
use crate::mount::Mount;

/// The units of a file system's addresses, from its superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// The block size in bytes.
    block: u64,
    /// Blocks per group, if addresses are relative to groups; zero otherwise.
    group: u64,
    /// Blocks per cluster, the unit of allocation.
    cluster: u64,
    /// Distinguishes it from another file system that is made in its place.
    uuid: [u8; 16],
}

/// Why the units of a file system's addresses aren't known.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayoutError {
    /// The drive hangs, or is very slow.
    #[error("its drive does not answer")]
    NoAnswer,
    /// The device can't be read.
    #[error("its device can't be read: {0}")]
    Read(io::Error),
    /// No device is known, or it holds something else.
    #[error("its device shows no superblock")]
    NotFound,
}

/// Flags of `ext4_free_blocks` if only a part of the first or last cluster is freed: the cluster stays in use.
const NOFREE_FIRST_CLUSTER: u64 = 0x10;
const NOFREE_LAST_CLUSTER: u64 = 0x20;

impl Layout {
    /// Reads the superblock of the `fstype` on the device at the path `device`, within `limit`.
    fn read(device: &Path, fstype: &str, limit: Option<Duration>) -> Result<Self, LayoutError> {
        let start = forked::attempt(limit, || {
            let mut start = vec![0; 4096];
            File::open(device)?.read_exact_at(&mut start, 0)?;
            Ok(start)
        });
        let start = start.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => LayoutError::NoAnswer,
            // The name it was mounted by, such as /dev/root, may not exist as a device.
            io::ErrorKind::NotFound => LayoutError::NotFound,
            _ => LayoutError::Read(error),
        })?;
        start.first_chunk().and_then(|start| Self::parse(start, fstype)).ok_or(LayoutError::NotFound)
    }

    /// Reads the layout of a mounted file system, whose device may also have the path `other`, within `limit`; none for no
    /// limit.
    ///
    /// # Errors
    /// [`LayoutError`] if neither path shows its superblock.
    pub fn of(mount: &Mount, other: Option<PathBuf>, limit: Option<Duration>) -> Result<Self, LayoutError> {
        match (Self::read(&mount.source, &mount.fstype, limit), other) {
            // The other path leads to the same drive.
            (Err(LayoutError::NotFound | LayoutError::Read(_)), Some(other)) => {
                Self::read(&other, &mount.fstype, limit)
            }
            (read, _) => read,
        }
    }

    /// Parses the superblock in the first 4 KiB of a device. The offsets are those of the kernel's
    /// `struct ext4_super_block`, `struct xfs_dsb` and `struct f2fs_super_block`.
    fn parse(start: &[u8; 4096], fstype: &str) -> Option<Self> {
        let le = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| start[at + byte]));
        let be = |at: usize| u64::from(u32::from_be_bytes(std::array::from_fn(|byte| start[at + byte])));
        let uuid = |at: usize| std::array::from_fn(|byte| start[at + byte]);
        let sound = |layout: &Self| layout.block.is_power_of_two() && layout.cluster > 0;
        match fstype {
            "ext2" | "ext3" | "ext4" => {
                const AT: usize = 1024;
                let bigalloc = le(AT + 0x64) & 0x200 != 0;
                let clusters = if bigalloc { le(AT + 0x1c).checked_sub(le(AT + 0x18))? } else { 0 };
                (le(AT + 0x38) & 0xffff == 0xef53).then_some(Self {
                    block: 1024_u64.checked_shl(le(AT + 0x18))?,
                    group: 0,
                    cluster: 1_u64.checked_shl(clusters)?,
                    uuid: uuid(AT + 0x68),
                })
            }
            "xfs" => (&start[..4] == b"XFSB").then_some(Self {
                block: be(4),
                group: be(84),
                cluster: 1,
                uuid: uuid(32),
            }),
            "f2fs" => {
                const AT: usize = 1024;
                (le(AT) == 0xf2f5_2010).then_some(Self {
                    block: 1_u64.checked_shl(le(AT + 16))?,
                    group: 0,
                    cluster: 1,
                    uuid: uuid(AT + 108),
                })
            }
            _ => None,
        }
        .filter(sound)
    }

    /// Returns the bytes of the file system's device that `event` names; `None` if it has no address, or names
    /// only a part of a cluster that stays in use.
    pub fn extent(&self, event: &FsEvent) -> Option<Extent> {
        // When XFS finds no space, the block number is invalid.
        if event.length == 0 || (self.group > 0 && event.start >= self.group) {
            return None;
        }
        let start = event.group.checked_mul(self.group)?.checked_add(event.start)?;
        let end = start.checked_add(event.length)?;
        let (start, end) = self.whole_clusters(start, end, event.flags);
        if start >= end {
            return None;
        }
        let bytes = |blocks: u64| blocks.checked_mul(self.block).map(Bytes);
        Some(Extent::new(bytes(start)?, bytes(end)?))
    }

    /// Returns a layout with this block size, without groups.
    #[cfg(test)]
    pub fn plain(block: u64) -> Self {
        Self { block, group: 0, cluster: 1, uuid: [0; 16] }
    }

    fn whole_clusters(&self, start: u64, end: u64, flags: u64) -> (u64, u64) {
        let down = |block: u64| block / self.cluster * self.cluster;
        let up = |block: u64| block.div_ceil(self.cluster) * self.cluster;
        if self.cluster == 1 {
            return (start, end);
        }
        (
            if flags & NOFREE_FIRST_CLUSTER != 0 { up(start) } else { down(start) },
            if flags & NOFREE_LAST_CLUSTER != 0 { down(end) } else { up(end) },
        )
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::trace::EventKind;

    use super::super::devices::KernelNumber;
    use super::super::event::FsId;
    use super::*;

    fn event(group: u64, start: u64, length: u64, flags: u64) -> FsEvent {
        let id = FsId::Device(KernelNumber(0));
        FsEvent { id, kind: EventKind::Free, group, start, length, flags, pid: 1 }
    }

    fn blocks(layout: &Layout, event: FsEvent) -> Option<(u64, u64)> {
        let extent = layout.extent(&event)?;
        Some((extent.start.0 / layout.block, extent.end.0 / layout.block))
    }

    #[test]
    fn superblocks_are_read() {
        let mut start = [0; 4096];
        start[1024 + 0x38..][..2].copy_from_slice(&[0x53, 0xef]);
        (start[1024 + 0x18], start[1024 + 0x1c]) = (2, 6);
        let plain = Layout::parse(&start, "ext4").unwrap();
        assert_eq!((plain.block, plain.cluster, plain.group), (4096, 1, 0));
        start[1024 + 0x65] = 2;
        assert_eq!(Layout::parse(&start, "ext3").unwrap().cluster, 16);
        start[1024 + 0x18] = 200;
        assert_eq!(Layout::parse(&start, "ext4"), None);
        assert_eq!(Layout::parse(&start, "xfs"), None);
        start[..8].copy_from_slice(b"XFSB\0\0\x10\0");
        start[84..88].copy_from_slice(&[0, 0, 0x40, 0]);
        let xfs = Layout::parse(&start, "xfs").unwrap();
        assert_eq!((xfs.block, xfs.group), (4096, 0x4000));
        start[1024..1028].copy_from_slice(&0xf2f5_2010_u32.to_le_bytes());
        start[1040] = 12;
        assert_eq!(Layout::parse(&start, "f2fs").unwrap().block, 4096);
    }

    #[test]
    fn addresses_respect_groups_and_clusters() {
        let xfs = Layout { block: 4096, group: 1000, cluster: 1, uuid: [0; 16] };
        assert_eq!(blocks(&xfs, event(3, 7, 5, 0)), Some((3007, 3012)));
        assert_eq!(blocks(&xfs, event(3, u64::from(u32::MAX), 5, 0)), None);
        assert_eq!(blocks(&xfs, event(3, 7, 0, 0)), None);
        assert_eq!(blocks(&xfs, event(u64::MAX, 7, 1, 0)), None);
        let bigalloc = Layout { block: 4096, group: 0, cluster: 16, uuid: [0; 16] };
        assert_eq!(blocks(&bigalloc, event(0, 18, 20, 0)), Some((16, 48)));
        assert_eq!(blocks(&bigalloc, event(0, 18, 20, NOFREE_FIRST_CLUSTER)), Some((32, 48)));
        assert_eq!(blocks(&bigalloc, event(0, 18, 20, NOFREE_LAST_CLUSTER)), Some((16, 32)));
        let both = NOFREE_FIRST_CLUSTER | NOFREE_LAST_CLUSTER;
        assert_eq!(blocks(&bigalloc, event(0, 18, 5, both)), None);
    }
}
