//! Stores a drive's data in memory or in a sparse file: both are a file to the code here.

mod pool;

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::{io, iter};

use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom};
use rustix::io::Errno;
use trimtab_core::{Bytes, Extent};

use self::pool::Pool;
use super::memory_left::MemoryLeft;
use crate::data::{DataFile, Identity};

/// Memory is striped over this many files: the kernel lets one writer at a time into a file.
const STRIPES: u64 = 8;

/// The bytes that lie together in one file: the largest request.
const STRIPE: u64 = 1 << 20;

/// A drive's data. What was never written or was punched out takes no room and reads as zeros.
#[derive(Debug)]
pub(crate) struct Store {
    files: Vec<File>,
    /// For a store in memory that may be larger than that.
    left: Option<MemoryLeft>,
    /// The memory of a store that takes it at once, and less than its size.
    pool: Option<Pool>,
}

/// A part of a request that lies in one file.
struct Piece<'a> {
    file: &'a File,
    /// Where it is in the file.
    at: u64,
    /// Where it is in the request.
    range: Range<usize>,
}

impl Piece<'_> {
    /// Returns whether it takes room already.
    fn is_held(&self) -> bool {
        let end = rustix::fs::seek(self.file, SeekFrom::Hole(self.at)).unwrap_or(self.at);
        end >= self.at + self.range.len() as u64
    }
}

impl Store {
    /// A store of `size` in the new file `path`, or in memory. With `sparse`, that may be more than there is memory. On
    /// failure no file is left.
    pub(crate) fn new(path: Option<&Path>, size: Bytes, sparse: bool) -> io::Result<Self> {
        let files = match path {
            Some(path) => vec![OpenOptions::new().read(true).write(true).create_new(true).open(path)?],
            None => (0..STRIPES).map(|_| memory()).collect::<io::Result<_>>()?,
        };
        let left = (sparse && path.is_none()).then(MemoryLeft::default);
        let store = Self { files, left, pool: None };
        let ready = store.set_size(size).and_then(|()| store.check_punch());
        if let (Err(_), Some(path)) = (&ready, path) {
            // The first failure is the one to report.
            let _ = store.identity().and_then(|identity| DataFile::hold(path, Some(identity))?.remove());
        }
        ready.map(|()| store)
    }

    /// A store in a pool of `size` bytes of memory, which it takes at once.
    pub(crate) fn of_pool(size: Bytes) -> io::Result<Self> {
        Ok(Self { files: Vec::new(), left: None, pool: Some(Pool::new(memory()?, size)?) })
    }

    /// Returns the identity of the data file, where there is one.
    pub(crate) fn identity(&self) -> io::Result<Identity> {
        Identity::of(&self.files[0])
    }

    fn set_size(&self, size: Bytes) -> io::Result<()> {
        let length = match self.files.len() as u64 {
            1 => size.0,
            stripes => size.0.div_ceil(stripes).next_multiple_of(STRIPE),
        };
        self.files.iter().try_for_each(|file| file.set_len(length))
    }

    /// Finds out now whether room can be given back: told so later, the loop driver would end all
    /// discards without a word.
    fn check_punch(&self) -> io::Result<()> {
        self.punch(Extent::at(Bytes::ZERO, Bytes(4096))).map_err(|error| match error.kind() {
            io::ErrorKind::Unsupported => {
                io::Error::new(error.kind(), "the file system of the data file cannot punch holes")
            }
            _ => error,
        })
    }

    /// The request for `length` bytes from `at` on, file by file.
    fn pieces(&self, at: Bytes, length: usize) -> impl Iterator<Item = Piece<'_>> {
        let files = self.files.len() as u64;
        let mut done = 0;
        iter::from_fn(move || {
            let address = at.0 + done as u64;
            let (stripe, within) = (address / STRIPE, address % STRIPE);
            let end = (done + (STRIPE - within) as usize).min(length);
            let range = done..end;
            done = end;
            let file = &self.files[(stripe % files) as usize];
            (!range.is_empty()).then_some(Piece { file, at: stripe / files * STRIPE + within, range })
        })
    }

    pub(crate) fn read(&self, at: Bytes, data: &mut [u8]) -> io::Result<()> {
        if let Some(pool) = &self.pool {
            return pool.read(at, data);
        }
        self.pieces(at, data.len())
            .try_for_each(|piece| piece.file.read_exact_at(&mut data[piece.range], piece.at))
    }

    /// Writes `data` from `at` on.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for it.
    pub(crate) fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        if let Some(pool) = &self.pool {
            return pool.write(at, data);
        }
        if let Some(left) = &self.left
            && let Err(short) = left.take(Bytes(data.len() as u64))
            && !self.pieces(at, data.len()).all(|piece| piece.is_held())
        {
            return Err(short);
        }
        self.pieces(at, data.len())
            .try_for_each(|piece| piece.file.write_all_at(&data[piece.range], piece.at))
    }

    /// Takes the room of `size` bytes, so that no write has to.
    pub(crate) fn touch(&self, size: Bytes) -> io::Result<()> {
        let zeros = vec![0; STRIPE as usize];
        (0..size.0).step_by(zeros.len()).try_for_each(|at| {
            let length = (size.0 - at).min(STRIPE) as usize;
            self.write(Bytes(at), &zeros[..length])
        })
    }

    /// Gives the room of `extent` back; it reads as zeros from then on.
    pub(crate) fn punch(&self, extent: Extent) -> io::Result<()> {
        if let Some(pool) = &self.pool {
            return pool.punch(extent);
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.pieces(extent.start, extent.len().0 as usize).try_for_each(|piece| {
            Ok(rustix::fs::fallocate(piece.file, mode, piece.at, piece.range.len() as u64)?)
        })
    }

    /// Returns the first place from `at` on that takes room, if there is one.
    pub(crate) fn held_from(&self, at: Bytes) -> Option<Bytes> {
        if let Some(pool) = &self.pool {
            return pool.held_from(at);
        }
        let files = self.files.len() as u64;
        let (stripe, within) = (at.0 / STRIPE, at.0 % STRIPE);
        let places = (0..files).filter_map(|number| {
            // The first stripe of this file from there on.
            let first = stripe + (number + files - stripe % files) % files;
            let start = first / files * STRIPE + if first == stripe { within } else { 0 };
            let found = match rustix::fs::seek(&self.files[number as usize], SeekFrom::Data(start)) {
                Ok(found) => found,
                Err(Errno::NXIO) => return None,
                // Without an answer, all of it may take room.
                Err(_) => start,
            };
            Some(Bytes((found / STRIPE * files + number) * STRIPE + found % STRIPE))
        });
        places.min()
    }

    /// Returns the space that it really takes.
    pub(crate) fn held(&self) -> Bytes {
        if let Some(pool) = &self.pool {
            return pool.held();
        }
        const UNIT: u64 = 512;
        let blocks = |file: &File| file.metadata().map_or(0, |metadata| metadata.blocks());
        Bytes(self.files.iter().map(blocks).sum::<u64>() * UNIT)
    }
}

fn memory() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("trimtab-drive", MemfdFlags::CLOEXEC)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of a request that spans three files' stripes.
    const START: Bytes = Bytes(STRIPE - 4096);
    const LENGTH: usize = STRIPE as usize + 8192;

    fn frees_what_is_punched(store: &Store) {
        let written: Vec<u8> = (0..LENGTH).map(|at| (at / 4096) as u8 | 1).collect();
        store.write(START, &written).unwrap();
        let held = store.held();
        assert!(held >= Bytes(LENGTH as u64));
        store.punch(Extent::at(START, Bytes(8192))).unwrap();
        assert_eq!(store.held(), held - Bytes(8192));
        let mut read = vec![1; LENGTH];
        store.read(START, &mut read).unwrap();
        assert!(read[..8192].iter().all(|byte| *byte == 0));
        assert!(read[8192..] == written[8192..]);
    }

    #[test]
    fn held_places_are_found_in_every_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let size = Bytes(40 * STRIPE);
        for store in [Store::new(None, size, true).unwrap(), Store::new(Some(&path), size, true).unwrap()] {
            assert_eq!(store.held_from(Bytes::ZERO), None);
            let places = [3 * STRIPE + 8192, 11 * STRIPE, 12 * STRIPE + 4096, 39 * STRIPE].map(Bytes);
            for place in places {
                store.write(place, &[1; 4096]).unwrap();
            }
            let mut from = Bytes::ZERO;
            for place in places {
                assert_eq!(store.held_from(from), Some(place), "from {from}");
                assert_eq!(store.held_from(place), Some(place));
                from = place + Bytes(4096);
            }
            assert_eq!(store.held_from(from), None);
            let held: Vec<bool> = store.pieces(places[1], 8192).map(|piece| piece.is_held()).collect();
            assert_eq!(held, [false], "half of it is a hole");
            assert!(store.pieces(places[1], 4096).all(|piece| piece.is_held()));
        }
    }

    #[test]
    fn impossible_store_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        assert!(Store::new(Some(&path), Bytes(u64::MAX), false).is_err());
        assert!(!path.exists());
    }

    #[test]
    fn memory_and_files_release_punched_extents() {
        frees_what_is_punched(&Store::new(None, Bytes(3 * STRIPE), true).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        frees_what_is_punched(&Store::new(Some(&path), Bytes(3 * STRIPE), false).unwrap());
        let again = Store::new(Some(&path), Bytes(3 * STRIPE), false).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }
}
