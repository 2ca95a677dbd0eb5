//! A block device that is open for direct I/O.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{Advice, fadvise, fdatasync};
use trimtab_core::erase::Operation;
use trimtab_core::{Bytes, Extent};

use crate::block::{BlockDevice, BlockError};
use crate::ioctl;
use trimtab_core::aligned::Aligned;

/// The bytes that are copied at once where a caller's memory is not aligned for direct I/O.
const BOUNCE: usize = 1 << 20;

/// A block device that is open for reading and writing past the page cache. Every address and
/// length is a whole multiple of its logical block. A clone is the same open device.
#[derive(Debug, Clone)]
pub struct Device {
    file: Arc<File>,
    /// Keeps others from using its bytes.
    _guards: Arc<[File]>,
    block: BlockDevice,
    size: Bytes,
    logical_block: Bytes,
}

impl Device {
    /// The device that `file` has open with `O_DIRECT`, which sysfs knows as `block`.
    pub(crate) fn new(file: File, block: BlockDevice) -> Result<Self, BlockError> {
        Self::claimed(vec![file], block)
    }

    /// The device that the first of `files` has open; the others stay open as long as it does.
    ///
    /// # Panics
    /// If there are no files.
    pub(crate) fn claimed(mut files: Vec<File>, block: BlockDevice) -> Result<Self, BlockError> {
        let (size, logical_block) = (block.size()?, block.logical_block()?);
        let file = Arc::new(files.remove(0));
        Ok(Self { file, _guards: files.into(), block, size, logical_block })
    }

    /// The device as sysfs has it.
    pub fn block(&self) -> &BlockDevice {
        &self.block
    }

    /// Its size.
    pub fn size(&self) -> Bytes {
        self.size
    }

    /// Its logical block.
    pub fn logical_block(&self) -> Bytes {
        self.logical_block
    }

    /// Reads from `at` on, past the page cache.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read(&self, at: Bytes, into: &mut [u8]) -> io::Result<()> {
        if Aligned::holds(into) {
            return self.file.read_exact_at(into, at.0);
        }
        let mut bounce = Aligned::zeroed(into.len().min(BOUNCE));
        for (index, piece) in into.chunks_mut(BOUNCE).enumerate() {
            let bounce = &mut bounce[..piece.len()];
            self.file.read_exact_at(bounce, at.0 + (index * BOUNCE) as u64)?;
            piece.copy_from_slice(bounce);
        }
        Ok(())
    }

    /// Writes `data` from `at` on, past the page cache.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        if Aligned::holds(data) {
            return self.file.write_all_at(data, at.0);
        }
        let mut bounce = Aligned::zeroed(data.len().min(BOUNCE));
        for (index, piece) in data.chunks(BOUNCE).enumerate() {
            let bounce = &mut bounce[..piece.len()];
            bounce.copy_from_slice(piece);
            self.file.write_all_at(bounce, at.0 + (index * BOUNCE) as u64)?;
        }
        Ok(())
    }

    /// Brings what was written to stable storage.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn flush(&self) -> io::Result<()> {
        Ok(fdatasync(&self.file)?)
    }

    /// Sends one `operation` for `extent` and waits for its end.
    ///
    /// # Errors
    /// The kernel's error: `EOPNOTSUPP` where the device has no such command.
    pub fn erase(&self, operation: Operation, extent: Extent) -> io::Result<()> {
        let erase = match operation {
            Operation::Discard => ioctl::discard,
            Operation::Zeroout => ioctl::zero_out,
            Operation::Secure => ioctl::secure_discard,
        };
        Ok(erase(self.as_fd(), extent)?)
    }

    /// Drops what the kernel holds of it in memory.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn drop_caches(&self) -> io::Result<()> {
        ioctl::flush_buffers(self)?;
        Ok(fadvise(self, 0, None, Advice::DontNeed)?)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
