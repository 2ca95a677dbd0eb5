//! File contents that can be made again, and the ledger of what must still read back.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{Advice, OFlags};
use trimtab_core::Bytes;
use xxhash_rust::xxh3::Xxh3;

use crate::error::LabError;
use crate::interrupt::Interrupt;

/// How much is written or read at a time.
const CHUNK: usize = 4 << 20;
/// How many different bytes contents are drawn from.
const POOL: usize = 1 << 20;
/// The span that carries a stamp of its own, so that a page that lands elsewhere is noticed.
const PAGE: usize = 4096;

/// Incompressible, deterministic file contents: every page differs from every other page.
pub struct Contents {
    pool: Vec<u8>,
}

impl Contents {
    /// The contents that belong to this seed.
    pub fn new(seed: u64) -> Self {
        let mut pool = vec![0; POOL + PAGE];
        SmallRng::seed_from_u64(seed).fill_bytes(&mut pool);
        Self { pool }
    }

    /// Fills `buffer` with what file number `file` holds from byte `offset`, a multiple of 4 KiB.
    fn fill(&self, file: u64, offset: u64, buffer: &mut [u8]) {
        for (page, bytes) in (offset / PAGE as u64..).zip(buffer.chunks_mut(PAGE)) {
            let stamp = (file << 32) ^ page;
            let from = (stamp.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44) as usize % POOL;
            bytes.copy_from_slice(&self.pool[from..from + bytes.len()]);
            let stamped = bytes.len().min(8);
            bytes[..stamped].copy_from_slice(&stamp.to_le_bytes()[..stamped]);
        }
    }

    /// Writes `length` bytes of file number `file` from byte `offset`, a multiple of 4 KiB, into
    /// `sink`, and feeds them to `digest`.
    pub fn write(
        &self,
        sink: &mut impl Write,
        digest: &mut Xxh3,
        file: u64,
        offset: Bytes,
        length: Bytes,
        interrupt: &Interrupt,
    ) -> Result<(), WriteError> {
        let mut memory = Vec::new();
        let buffer = aligned(&mut memory, CHUNK.min(length.0 as usize));
        let end = offset.0 + length.0;
        let mut at = offset.0;
        while at < end {
            interrupt.check()?;
            let bytes = &mut buffer[..(end - at).min(CHUNK as u64) as usize];
            self.fill(file, at, bytes);
            digest.update(bytes);
            sink.write_all(bytes)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }
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

/// Which files must be there, and the hash of what they hold.
#[derive(Debug, Default)]
pub struct Ledger {
    files: BTreeMap<PathBuf, u128>,
}

impl Ledger {
    /// Notes that the file at `path`, relative to the workload's directory, holds what `digest`
    /// was fed.
    pub fn record(&mut self, path: PathBuf, digest: &Xxh3) {
        self.files.insert(path, digest.digest128());
    }

    /// Notes that the file at `path` is gone.
    pub fn forget(&mut self, path: &Path) {
        self.files.remove(path);
    }

    /// Reads every live file under `root` and compares its hash.
    ///
    /// # Errors
    /// [`LabError::Damaged`] names the first file that is missing, unreadable or different.
    pub fn verify(&self, root: &Path, interrupt: &Interrupt) -> Result<(), LabError> {
        for (path, expected) in &self.files {
            let full = root.join(path);
            let found = digest_of(&full, interrupt)
                .map_err(|source| LabError::Unreadable { path: full.clone(), source })?;
            interrupt.check()?;
            if found.digest128() != *expected {
                return Err(LabError::Damaged { path: full });
            }
        }
        Ok(())
    }
}

/// The hash of a file's contents, read from the device and not from the page cache; that of a
/// part of it if interrupted.
pub fn digest_of(path: &Path, interrupt: &Interrupt) -> io::Result<Xxh3> {
    let mut file = open_direct(OpenOptions::new().read(true), path)?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
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

/// `length` bytes of `memory`, aligned to pages as direct I/O wants them.
fn aligned(memory: &mut Vec<u8>, length: usize) -> &mut [u8] {
    // Zeroed by the kernel where it is touched: small files don't pay for a large buffer.
    *memory = vec![0; length + PAGE];
    let skip = memory.as_ptr().align_offset(PAGE);
    &mut memory[skip..skip + length]
}

/// Copies all of `source` to `sink` and returns the hash of it; stops early if interrupted.
pub fn copy(source: &mut impl Read, sink: &mut impl Write, interrupt: &Interrupt) -> io::Result<Xxh3> {
    let (mut digest, mut memory) = (Xxh3::new(), Vec::new());
    let buffer = aligned(&mut memory, CHUNK);
    while !interrupt.is_set() {
        let length = source.read(buffer)?;
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

    fn written(seed: u64, file: u64, from: u64, length: u64) -> (Vec<u8>, u128) {
        let (mut sink, mut digest) = (Vec::new(), Xxh3::new());
        Contents::new(seed)
            .write(&mut sink, &mut digest, file, Bytes(from), Bytes(length), &Interrupt::never())
            .unwrap();
        (sink, digest.digest128())
    }

    #[test]
    fn contents_depend_on_seed_file_and_place_only() {
        let (whole, digest) = written(1, 7, 0, 3 * CHUNK as u64 + 77);
        assert_eq!(written(1, 7, 0, 3 * CHUNK as u64 + 77), (whole.clone(), digest));
        assert_eq!(written(1, 7, 8192, 5000).0, whole[8192..13192]);
        let mut pages: Vec<_> = whole.chunks(PAGE).collect();
        pages.sort_unstable();
        pages.dedup();
        assert_eq!(pages.len(), 3 * CHUNK / PAGE + 1, "every page is unlike every other");
        assert_ne!(written(1, 8, 0, 4096).0, written(1, 7, 0, 4096).0);
        assert_ne!(written(2, 7, 8, 4096).0, written(1, 7, 8, 4096).0);
    }

    #[test]
    fn the_ledger_notices_one_flipped_bit_and_a_missing_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let (mut bytes, _) = written(1, 7, 0, 10_000);
        std::fs::write(&path, &bytes).unwrap();
        let mut ledger = Ledger::default();
        let never = Interrupt::never();
        ledger.record("file".into(), &digest_of(&path, &never).unwrap());
        ledger.verify(dir.path(), &never).unwrap();
        bytes[5_000] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(matches!(ledger.verify(dir.path(), &never), Err(LabError::Damaged { .. })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(ledger.verify(dir.path(), &never), Err(LabError::Unreadable { .. })));
        ledger.forget(Path::new("file"));
        ledger.verify(dir.path(), &never).unwrap();
    }
}
