//! The file systems that hold a canary: its own, and those with the files of loop devices below.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::stack::{Layer, LayerKind, Stack};
use trimtab_linux::{btrfs, ioctl};

use super::fat;

/// A file system that holds the canary.
#[derive(Debug)]
pub(super) struct Host {
    /// Its index in the stack.
    pub layer: usize,
    /// Where it is mounted.
    pub directory: PathBuf,
    /// The pieces of the canary.
    pub pieces: Vec<Piece>,
}

/// A piece of the canary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// The range to trim in the file system's trim address space: its bytes, on btrfs from the start of their
    /// chunk.
    pub trim: Extent,
    /// Its length.
    pub length: Bytes,
    /// Its bytes on the layers directly below, each a whole copy; empty if unknown.
    pub copies: Vec<(usize, Extent)>,
}

impl Host {
    /// Finds where the file system `layer`, mounted at `directory`, has the bytes `range` of `file`. Extents
    /// shared with other files are left out: they are not freed.
    ///
    /// # Errors
    /// Errors of the kernel, if the file system doesn't report extents.
    pub fn of(stack: &Stack, layer: usize, directory: &Path, file: &File, range: Extent) -> io::Result<Self> {
        let found = match ioctl::file_extents(file, range) {
            Err(Errno::OPNOTSUPP | Errno::NOTTY) => ioctl::file_blocks(file, range)?,
            found => found?,
        };
        let extents: ExtentSet =
            found.iter().filter(|piece| !piece.shared).map(|piece| piece.extent).collect();
        let pieces = pieces(stack, &stack.layers[layer], directory, &extents)?;
        Ok(Self { layer, directory: directory.to_owned(), pieces })
    }

    /// Returns the size of the canary's part that it holds.
    pub fn size(&self) -> Bytes {
        self.pieces.iter().map(|piece| piece.length).sum()
    }
}

fn pieces(stack: &Stack, layer: &Layer, directory: &Path, extents: &ExtentSet) -> io::Result<Vec<Piece>> {
    let LayerKind::FileSystem(file_system) = &layer.kind else { return Ok(Vec::new()) };
    let devices: Vec<_> = layer.below.iter().map(|below| below.layer).collect();
    let placed = |skipped: Bytes, copies: &[usize]| {
        let piece = |extent: Extent| Piece {
            trim: Extent::at(extent.start.saturating_sub(skipped), extent.len()),
            length: extent.len(),
            copies: copies.iter().map(|device| (*device, extent)).collect(),
        };
        Ok(extents.iter().map(piece).collect())
    };
    match (file_system.fstype.as_str(), devices.as_slice()) {
        ("btrfs", _) => btrfs_pieces(stack, directory, extents),
        ("vfat" | "msdos" | "exfat", [device]) => {
            let path = Path::new("/dev").join(&stack.layers[*device].name);
            placed(fat::skipped(&File::open(path)?)?, &[*device])
        }
        // A second device of these holds their journal.
        ("ext3" | "ext4" | "xfs", [device, ..]) | (_, [device]) => placed(Bytes::ZERO, &[*device]),
        _ => placed(Bytes::ZERO, &[]),
    }
}

/// Returns the pieces of a btrfs, cut at chunk boundaries. btrfs skips a chunk, or block group, if a trim
/// begins inside it (measured on Linux 6.18), so each trim begins with the chunk.
fn btrfs_pieces(stack: &Stack, directory: &Path, extents: &ExtentSet) -> io::Result<Vec<Piece>> {
    let directory = File::open(directory)?;
    let mut pieces = Vec::new();
    for chunk in btrfs::chunks(&directory)? {
        for extent in extents.inside(chunk.extent) {
            let mut copies = Vec::new();
            for (id, start) in chunk.copies.iter().flatten() {
                let device = ioctl::btrfs_device(&directory, *id)?.canonicalize()?;
                let layer = stack.layers.iter().position(|layer| device.ends_with(&layer.name));
                let at = Extent::at(*start + (extent.start - chunk.extent.start), extent.len());
                copies.extend(layer.map(|layer| (layer, at)));
            }
            let trim = Extent::new(chunk.extent.start, extent.end);
            pieces.push(Piece { trim, length: extent.len(), copies });
        }
    }
    Ok(pieces)
}
