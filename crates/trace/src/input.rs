//! Bytes and lines of a file, which may be compressed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;

/// The longest line that a text trace may have.
const MAX_LINE: usize = 1 << 16;
/// How much is read at once.
const CHUNK: usize = 1 << 18;
/// Chunks that wait to be read, at most.
const MOST_AHEAD: usize = 4;
/// How packed files begin.
const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const XZ: [u8; 6] = *b"\xfd7zXZ\0";
/// The most memory that unpacking xz may take, in KiB: `xz -9` needs 65 MiB, and a file can name 4 GiB.
const MOST_XZ_MEMORY: u32 = 256 << 10;
const TOO_LARGE_XZ: &str = "unpacking it takes more than 256 MiB of memory: unpack it (xz -d) first";

/// Returns a file's bytes as [`open`] does, unpacked as they are read: for a look at the begin.
pub(crate) fn open_here(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    unpacked(BufReader::with_capacity(CHUNK, File::open(path)?))
}

/// Returns a file's bytes, unpacked if they begin like gzip, zstd or xz: by another thread, a few chunks ahead.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    let mut file = BufReader::with_capacity(CHUNK, File::open(path)?);
    let begin = file.fill_buf()?;
    let is_packed = [&GZIP[..], &ZSTD, &XZ].iter().any(|magic| begin.starts_with(magic));
    let input = unpacked(file)?;
    Ok(if is_packed { Box::new(Ahead::new(input)?) } else { input })
}

fn unpacked(mut packed: impl BufRead + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let begin = packed.fill_buf()?;
    Ok(if begin.starts_with(&GZIP) {
        Box::new(MultiGzDecoder::new(packed))
    } else if begin.starts_with(&ZSTD) {
        Box::new(zstd::Decoder::with_buffer(packed)?)
    } else if begin.starts_with(&XZ) {
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

/// Bytes that another thread reads. The thread ends when this is dropped, or at the end of its input.
struct Ahead {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    /// The part of the chunk that was handed out.
    used: usize,
}

impl Ahead {
    fn new(mut input: Box<dyn Read + Send>) -> io::Result<Self> {
        let (sender, chunks) = mpsc::sync_channel(MOST_AHEAD);
        thread::Builder::new().name("unpack".to_owned()).spawn(move || {
            loop {
                let mut chunk = Vec::with_capacity(CHUNK);
                let read = input.by_ref().take(CHUNK as u64).read_to_end(&mut chunk);
                let is_last = chunk.is_empty() || read.is_err();
                // What was read before an error is good.
                let has_gone = !chunk.is_empty() && sender.send(Ok(chunk)).is_err();
                let has_gone = has_gone || read.is_err_and(|error| sender.send(Err(error)).is_err());
                if is_last || has_gone {
                    break;
                }
            }
        })?;
        Ok(Self { chunks, chunk: Vec::new(), used: 0 })
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.used == self.chunk.len() {
            let Ok(chunk) = self.chunks.recv() else { return Ok(0) };
            (self.chunk, self.used) = (chunk?, 0);
        }
        let length = buffer.len().min(self.chunk.len() - self.used);
        buffer[..length].copy_from_slice(&self.chunk[self.used..][..length]);
        self.used += length;
        Ok(length)
    }
}

/// Reads until `bytes` is full or the input ends; says how far it came.
pub(crate) fn fill(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
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
        // With room for a chunk behind the begin of a line, a reader of chunks need not copy them.
        Self { input, buffer: vec![0; 2 * CHUNK], start: 0, end: 0 }
    }

    /// The lines, and perhaps a part of one, that were read and not handed out.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Passes over the first bytes that were read and not handed out.
    pub(crate) const fn pass(&mut self, length: usize) {
        self.start += length;
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
