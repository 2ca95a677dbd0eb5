//! What holds a drive's data: memory or a sparse file, both a file to the code here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags};
use trimtab_core::{Bytes, Extent};

/// A drive's data. What was never written or was punched out takes no room and reads as zeros.
#[derive(Debug)]
pub(crate) struct Store {
    file: File,
}

impl Store {
    /// A store of `size` in the new file `path`, or in memory.
    pub(crate) fn new(path: Option<&Path>, size: Bytes) -> io::Result<Self> {
        let file = match path {
            Some(path) => OpenOptions::new().read(true).write(true).create_new(true).open(path)?,
            None => File::from(rustix::fs::memfd_create("trimtab-drive", MemfdFlags::CLOEXEC)?),
        };
        file.set_len(size.0)?;
        Ok(Self { file })
    }

    pub(crate) fn read(&self, at: Bytes, data: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(data, at.0)
    }

    pub(crate) fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at.0)
    }

    /// Gives the room of `extent` back; it reads as zeros from then on.
    pub(crate) fn punch(&self, extent: Extent) -> io::Result<()> {
        if extent.is_empty() {
            return Ok(());
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, mode, extent.start.0, extent.len().0)?)
    }

    /// What it really takes.
    pub(crate) fn held(&self) -> Bytes {
        const UNIT: u64 = 512;
        self.file.metadata().map_or(Bytes::ZERO, |metadata| Bytes(metadata.blocks() * UNIT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frees_what_is_punched(store: &Store) {
        store.write(Bytes(4096), &[7; 8192]).unwrap();
        let held = store.held();
        assert!(held >= Bytes(8192));
        store.punch(Extent::new(Bytes(4096), Bytes(8192))).unwrap();
        assert_eq!(store.held(), held - Bytes(4096));
        let mut data = [1; 8192];
        store.read(Bytes(4096), &mut data).unwrap();
        assert!(data[..4096].iter().all(|byte| *byte == 0) && data[4096..].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn memory_and_files_free_what_is_punched() {
        frees_what_is_punched(&Store::new(None, Bytes::MIB).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        frees_what_is_punched(&Store::new(Some(&path), Bytes::MIB).unwrap());
        let again = Store::new(Some(&path), Bytes::MIB).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }
}
