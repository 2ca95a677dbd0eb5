//! Contents of test files: incompressible, and made again from their numbers.

use std::io::{self, Read, Write};
use std::ops::Range;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::aligned::Aligned;
use crate::interrupt::{Interrupt, Interrupted};
use crate::units::Bytes;

/// How much is written or read at a time: what programs that copy files use.
pub const CHUNK: usize = 1 << 20;
/// The span that carries a stamp of its own, so that a page that lands elsewhere is noticed.
pub const PAGE: usize = 4096;

/// Incompressible, deterministic file contents: every page differs from every other page.
///
/// A page is filled once and only stamped for each write, so that preparing data takes no time
/// beside writing it.
pub struct Contents {
    chunk: Aligned,
}

impl Contents {
    /// The contents that belong to this seed.
    pub fn new(seed: u64) -> Self {
        let mut chunk = Aligned::zeroed(CHUNK);
        SmallRng::seed_from_u64(seed).fill_bytes(&mut chunk);
        Self { chunk }
    }

    /// The bytes of file number `file` from byte `offset`, a multiple of the chunk, at most a chunk.
    fn at(&mut self, file: u64, offset: u64, length: usize) -> &[u8] {
        let bytes = &mut self.chunk[..length];
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
        source: &mut impl Read,
        file: u64,
        length: Bytes,
        interrupt: &Interrupt,
    ) -> io::Result<bool> {
        let mut read = Aligned::zeroed(CHUNK);
        for offset in (0..length.0).step_by(CHUNK) {
            if interrupt.is_set() {
                return Ok(true);
            }
            let wanted = (length.0 - offset).min(CHUNK as u64) as usize;
            if fill(source, &mut read)? != wanted || read[..wanted] != *self.at(file, offset, wanted) {
                return Ok(false);
            }
        }
        Ok(fill(source, &mut read)? == 0)
    }
}

/// Reads until `buffer` is full or the file ends; returns how much was read.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
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
    Interrupted(#[from] Interrupted),
    /// The file system said no.
    #[error(transparent)]
    Io(#[from] io::Error),
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
    fn contents_written_in_parts_equal_those_written_at_once() {
        let ends = [0, 3, 9, 4099, CHUNK as u64 - 1, CHUNK as u64 + 5, 2 * CHUNK as u64 + 77];
        let (mut contents, mut sink) = (Contents::new(1), Vec::new());
        for span in ends.windows(2) {
            contents.write_span(&mut sink, 7, span[0]..span[1], &Interrupt::never()).unwrap();
        }
        assert_eq!(sink, written(1, 7, 2 * CHUNK as u64 + 77));
    }

    #[test]
    fn page_is_distinguished_from_every_other() {
        let whole = written(1, 7, 2 * CHUNK as u64);
        let mut contents = Contents::new(1);
        for page in [0, 5, CHUNK / PAGE + 1] {
            let found = &whole[page * PAGE..][..PAGE];
            assert!(contents.is_page(7, page as u64, found));
            assert!(!contents.is_page(7, page as u64 + 1, found) && !contents.is_page(8, page as u64, found));
        }
    }
}
