//! Bytes and lines of a file, which may be compressed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;

/// The longest line that a text trace may have.
const MAX_LINE: usize = 1 << 16;
/// How much is read at once.
const CHUNK: usize = 1 << 18;
/// The most memory that unpacking xz may take, in KiB: `xz -9` needs 65 MiB, and a file can name 4 GiB.
const MOST_XZ_MEMORY: u32 = 256 << 10;
const TOO_LARGE_XZ: &str = "unpacking it takes more than 256 MiB of memory: unpack it (xz -d) first";

/// Returns a file's bytes, unpacked if they begin like gzip, zstd or xz.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    unpacked(BufReader::with_capacity(CHUNK, File::open(path)?))
}

fn unpacked(mut packed: impl BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let begin = packed.fill_buf()?;
    Ok(if begin.starts_with(&[0x1f, 0x8b]) {
        Box::new(MultiGzDecoder::new(packed))
    } else if begin.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(zstd::Decoder::with_buffer(packed)?)
    } else if begin.starts_with(b"\xfd7zXZ\0") {
        let unpacking = XzReader::new_mem_limit(packed, true, MOST_XZ_MEMORY);
        Box::new(BufReader::with_capacity(CHUNK, Xz(unpacking)))
    } else {
        Box::new(packed)
    })
}

/// Unpacks xz, and says what to do with a file that takes too much memory.
struct Xz<R: Read>(XzReader<R>);

impl<R: Read> Read for Xz<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::OutOfMemory => io::Error::new(io::ErrorKind::OutOfMemory, TOO_LARGE_XZ),
            _ => error,
        })
    }
}

/// The lines of a text.
pub(crate) struct Lines {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// The part of the buffer that was read and not yet handed out.
    start: usize,
    end: usize,
}

impl Lines {
    pub(crate) fn new(input: Box<dyn Read + Send>) -> Self {
        Self { input, buffer: vec![0; CHUNK], start: 0, end: 0 }
    }

    /// The next line, without its end; none at the end of the text.
    pub(crate) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(length) = memchr::memchr(b'\n', &unread[searched..]) {
                let line = self.start..self.start + searched + length;
                self.start = line.end + 1;
                return Ok(Some(trimmed(&self.buffer[line])));
            }
            searched = unread.len();
            if searched > MAX_LINE {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a line is too long for a text trace",
                ));
            }
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, searched);
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) if searched == 0 => return Ok(None),
                Ok(0) => {
                    self.start = self.end;
                    return Ok(Some(trimmed(&self.buffer[..searched])));
                }
                Ok(more) => self.end += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
