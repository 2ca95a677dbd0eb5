//! File contents that can be made again, and the ledger of what must still read back.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{Advice, OFlags};
use trimtab_core::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::error::LabError;
use crate::interrupt::Interrupt;

/// How much is written or read at a time: what programs that copy files use.
const CHUNK: usize = 1 << 20;
/// The span that carries a stamp of its own, so that a page that lands elsewhere is noticed.
pub const PAGE: usize = 4096;

/// Incompressible, deterministic file contents: every page differs from every other page.
///
/// A page is filled once and only stamped for each write, so that preparing data takes no time
/// beside writing it.
pub struct Contents {
    chunk: Aligned,
}

/// A buffer that is aligned to pages, as direct I/O wants it.
pub struct Aligned {
    memory: Vec<u8>,
    skip: usize,
    length: usize,
}

impl Aligned {
    /// Zeros.
    pub fn new(length: usize) -> Self {
        let memory = vec![0; length + PAGE];
        let skip = memory.as_ptr().align_offset(PAGE);
        Self { memory, skip, length }
    }

    /// All of it.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + self.length]
    }
}

impl Contents {
    /// The contents that belong to this seed.
    pub fn new(seed: u64) -> Self {
        let mut chunk = Aligned::new(CHUNK);
        SmallRng::seed_from_u64(seed).fill_bytes(chunk.bytes());
        Self { chunk }
    }

    /// The bytes of file number `file` from byte `offset`, a multiple of the chunk, at most a chunk.
    fn at(&mut self, file: u64, offset: u64, length: usize) -> &[u8] {
        let bytes = &mut self.chunk.bytes()[..length];
        for (page, bytes) in (offset / PAGE as u64..).zip(bytes.chunks_mut(PAGE)) {
            let stamp = ((file << 32) ^ page).to_le_bytes();
            let stamped = bytes.len().min(stamp.len());
            bytes[..stamped].copy_from_slice(&stamp[..stamped]);
        }
        bytes
    }

    /// Writes file number `file` of `length` bytes into `sink`.
    pub fn write(
        &mut self,
        sink: &mut impl Write,
        file: u64,
        length: Bytes,
        interrupt: &Interrupt,
    ) -> Result<(), WriteError> {
        self.write_span(sink, file, 0..length.0, interrupt)
    }

    /// Writes the bytes `span` of file number `file` into `sink`.
    pub fn write_span(
        &mut self,
        sink: &mut impl Write,
        file: u64,
        span: Range<u64>,
        interrupt: &Interrupt,
    ) -> Result<(), WriteError> {
        let mut offset = span.start;
        while offset < span.end {
            interrupt.check()?;
            let start = offset - offset % CHUNK as u64;
            let end = span.end.min(start + CHUNK as u64);
            let chunk = self.at(file, start, (end - start) as usize);
            sink.write_all(&chunk[(offset - start) as usize..])?;
            offset = end;
        }
        Ok(())
    }

    /// Returns true if `found` is page number `page` of file number `file`.
    pub fn is_page(&mut self, file: u64, page: u64, found: &[u8]) -> bool {
        let offset = page * PAGE as u64;
        let start = offset - offset % CHUNK as u64;
        let within = (offset - start) as usize;
        self.at(file, start, within + PAGE)[within..] == *found
    }

    /// Whether `source` holds file number `file` of `length` bytes and nothing more; true if interrupted.
    pub fn matches(
        &mut self,
        source: &mut File,
        file: u64,
        length: Bytes,
        interrupt: &Interrupt,
    ) -> io::Result<bool> {
        let mut read = Aligned::new(CHUNK);
        for offset in (0..length.0).step_by(CHUNK) {
            if interrupt.is_set() {
                return Ok(true);
            }
            let wanted = (length.0 - offset).min(CHUNK as u64) as usize;
            if fill(source, read.bytes())? != wanted
                || read.bytes()[..wanted] != *self.at(file, offset, wanted)
            {
                return Ok(false);
            }
        }
        Ok(fill(source, read.bytes())? == 0)
    }
}

/// Reads until `buffer` is full or the file ends; returns how much was read.
fn fill(source: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Why contents could not be written to the end.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] crate::interrupt::Interrupted),
    /// The file system said no.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The live files, and what each must hold.
#[derive(Debug, Default)]
pub struct Ledger {
    files: BTreeMap<PathBuf, Expected>,
}

/// What a live file must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// A file of [`Contents`]: its number and its length.
    Made(u64, Bytes),
    /// Anything with this hash.
    Hash(u128),
}

impl Ledger {
    /// Notes what the file at `path`, relative to the workload's directory, must hold.
    pub fn record(&mut self, path: PathBuf, expected: Expected) {
        self.files.insert(path, expected);
    }

    /// Notes that the file at `path` is gone.
    pub fn forget(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// Notes that the file at `from` is now at `to`, in place of what was there.
    pub fn rename(&mut self, from: &Path, to: PathBuf) {
        match self.files.remove(from) {
            Some(expected) => self.files.insert(to, expected),
            None => self.files.remove(&to),
        };
    }

    /// Returns what the live file at `path` must hold; none where no live file is there.
    pub fn expected(&self, path: &Path) -> Option<Expected> {
        self.files.get(path).copied()
    }

    /// Reads every live file under `root`, from the device and not from the page cache, and
    /// compares it with what it must hold.
    ///
    /// # Errors
    /// [`LabError::Damaged`] or [`LabError::Unreadable`] names the first file that is missing,
    /// unreadable or different.
    pub fn verify(
        &self,
        contents: &mut Contents,
        root: &Path,
        interrupt: &Interrupt,
    ) -> Result<(), LabError> {
        for (path, expected) in &self.files {
            let full = root.join(path);
            let found = match *expected {
                Expected::Made(file, length) => open_uncached(&full)
                    .and_then(|mut source| contents.matches(&mut source, file, length, interrupt)),
                Expected::Hash(hash) => {
                    digest_of(&full, interrupt).map(|found| found.digest128() == hash || interrupt.is_set())
                }
            };
            let is_same = found.map_err(|source| LabError::Unreadable { path: full.clone(), source })?;
            interrupt.check()?;
            if !is_same {
                return Err(LabError::Damaged { path: full });
            }
        }
        Ok(())
    }
}

/// Opens a file to read it from the device and not from the page cache.
fn open_uncached(path: &Path) -> io::Result<File> {
    let file = open_direct(OpenOptions::new().read(true), path)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(file)
}

/// The hash of a file's contents, read from the device and not from the page cache; that of a
/// part of it if interrupted.
pub fn digest_of(path: &Path, interrupt: &Interrupt) -> io::Result<Xxh3> {
    let mut file = open_uncached(path)?;
    copy(&mut file, &mut io::sink(), interrupt)
}

/// Opens a file past the page cache where its file system can do that, and through it elsewhere.
pub fn open_direct(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let direct = options.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(path);
    match direct {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => options.open(path),
        opened => opened,
    }
}

/// Copies all of `source` to `sink` and returns the hash of it; stops early if interrupted.
pub fn copy(source: &mut impl Read, sink: &mut impl Write, interrupt: &Interrupt) -> io::Result<Xxh3> {
    let (mut digest, mut buffer) = (Xxh3::new(), Aligned::new(CHUNK));
    while !interrupt.is_set() {
        let length = source.read(buffer.bytes())?;
        if length == 0 {
            break;
        }
        digest.update(&buffer.bytes()[..length]);
        sink.write_all(&buffer.bytes()[..length])?;
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(seed: u64, file: u64, length: u64) -> Vec<u8> {
        let mut sink = Vec::new();
        Contents::new(seed).write(&mut sink, file, Bytes(length), &Interrupt::never()).unwrap();
        sink
    }

    #[test]
    fn contents_depend_on_seed_file_and_place_only() {
        let whole = written(1, 7, 3 * CHUNK as u64 + 77);
        assert_eq!(written(1, 7, 3 * CHUNK as u64 + 77), whole);
        assert_eq!(written(1, 7, 5000), whole[..5000]);
        let mut pages: Vec<_> = whole.chunks(PAGE).collect();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), 3 * CHUNK / PAGE + 1, "every page is unlike every other");
        assert_ne!(written(1, 8, 4096), written(1, 7, 4096));
        assert_ne!(written(2, 7, 4096), written(1, 7, 4096));
    }

    #[test]
    fn contents_written_in_parts_are_those_written_at_once() {
        let ends = [0, 3, 9, 4099, CHUNK as u64 - 1, CHUNK as u64 + 5, 2 * CHUNK as u64 + 77];
        let (mut contents, mut sink) = (Contents::new(1), Vec::new());
        for span in ends.windows(2) {
            contents.write_span(&mut sink, 7, span[0]..span[1], &Interrupt::never()).unwrap();
        }
        assert_eq!(sink, written(1, 7, 2 * CHUNK as u64 + 77));
    }

    #[test]
    fn a_page_is_known_from_every_other() {
        let whole = written(1, 7, 2 * CHUNK as u64);
        let mut contents = Contents::new(1);
        for page in [0, 5, CHUNK / PAGE + 1] {
            let found = &whole[page * PAGE..][..PAGE];
            assert!(contents.is_page(7, page as u64, found));
            assert!(!contents.is_page(7, page as u64 + 1, found) && !contents.is_page(8, page as u64, found));
        }
    }

    #[test]
    fn a_renamed_file_takes_the_place_of_the_one_before() {
        let mut ledger = Ledger::default();
        ledger.record("old".into(), Expected::Made(1, Bytes(1)));
        ledger.record("new".into(), Expected::Made(2, Bytes(2)));
        ledger.rename(Path::new("new"), "old".into());
        assert_eq!(ledger.expected(Path::new("old")), Some(Expected::Made(2, Bytes(2))));
        assert_eq!(ledger.expected(Path::new("new")), None);
        ledger.rename(Path::new("unknown"), "old".into());
        assert_eq!(ledger.expected(Path::new("old")), None);
    }

    /// Writes `bytes` to a file that must hold file number 7 of 10 000 bytes, and verifies it.
    fn verified(bytes: &[u8], expected: Expected) -> Result<(), LabError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), bytes).unwrap();
        let mut ledger = Ledger::default();
        ledger.record("file".into(), expected);
        ledger.verify(&mut Contents::new(1), dir.path(), &Interrupt::never())
    }

    #[test]
    fn ledger_notices_one_flipped_bit_and_a_wrong_length() {
        let bytes = written(1, 7, 2 * CHUNK as u64 + 10_000);
        let mut hash = Xxh3::new();
        hash.update(&bytes);
        for expected in [Expected::Made(7, Bytes(bytes.len() as u64)), Expected::Hash(hash.digest128())] {
            verified(&bytes, expected).unwrap();
            for place in [0, 5_000, CHUNK + 9, bytes.len() - 1] {
                let mut flipped = bytes.clone();
                flipped[place] ^= 1;
                assert!(matches!(verified(&flipped, expected), Err(LabError::Damaged { .. })), "{place}");
            }
            let longer = [bytes.as_slice(), &[0]].concat();
            for other in [&bytes[..bytes.len() - 1], &longer, &[]] {
                assert!(matches!(verified(other, expected), Err(LabError::Damaged { .. })));
            }
        }
    }

    #[test]
    fn ledger_notices_a_missing_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::default();
        ledger.record("file".into(), Expected::Made(1, Bytes(1)));
        let mut contents = Contents::new(1);
        let missing = ledger.verify(&mut contents, dir.path(), &Interrupt::never());
        assert!(matches!(missing, Err(LabError::Unreadable { .. })));
        ledger.forget(Path::new("file"));
        ledger.verify(&mut contents, dir.path(), &Interrupt::never()).unwrap();
    }
}
