//! The ledger of files that must still read back, and reading past the page cache.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, OFlags};
use trimtab_core::Bytes;
use trimtab_core::aligned::Aligned;
use trimtab_core::contents::{CHUNK, Contents};
use trimtab_core::interrupt::Interrupt;
use xxhash_rust::xxh3::Xxh3;

use crate::error::LabError;

/// The live files, and what each must hold.
#[derive(Debug, Default)]
pub struct Ledger {
    files: BTreeMap<PathBuf, Expected>,
}

/// The expected contents of a live file.
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

    /// Returns what the live file at `path` must hold; `None` if no live file is there.
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

/// The hash of a file's contents, read from the device and not from the page cache; the hash of a
/// part of it if interrupted.
pub fn digest_of(path: &Path, interrupt: &Interrupt) -> io::Result<Xxh3> {
    let mut file = open_uncached(path)?;
    copy(&mut file, &mut io::sink(), interrupt)
}

/// Opens a file with direct I/O if its file system supports that, else through the page cache.
pub fn open_direct(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let direct = options.clone().custom_flags(OFlags::DIRECT.bits() as i32).open(path);
    match direct {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => options.open(path),
        opened => opened,
    }
}

/// Copies all of `source` to `sink` and returns the hash of it; stops early if interrupted.
pub fn copy(source: &mut impl Read, sink: &mut impl Write, interrupt: &Interrupt) -> io::Result<Xxh3> {
    let (mut digest, mut buffer) = (Xxh3::new(), Aligned::zeroed(CHUNK));
    while !interrupt.is_set() {
        let length = source.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        digest.update(&buffer[..length]);
        sink.write_all(&buffer[..length])?;
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
    fn renamed_file_replaces_the_one_before() {
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
