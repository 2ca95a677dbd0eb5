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
pub(crate) const CHUNK: usize = 1 << 18;
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

/// A text in pieces of whole lines; only the last line of the text may have no end.
pub(crate) struct Pieces {
    input: Box<dyn Read + Send>,
    /// The least bytes of a piece, but for the last one.
    size: usize,
    /// The begin of the line behind the last piece.
    rest: Vec<u8>,
    has_ended: bool,
    /// The error that reading ended with.
    failure: Option<io::Error>,
}

impl Pieces {
    pub(crate) const fn new(input: Box<dyn Read + Send>, size: usize) -> Self {
        Self { input, size, rest: Vec::new(), has_ended: false, failure: None }
    }

    /// Puts the next piece in place of `piece`; false at the end of the text.
    pub(crate) fn next(&mut self, piece: &mut Piece) -> io::Result<bool> {
        piece.replace(&self.rest);
        self.rest.clear();
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        loop {
            let begin = piece.end;
            self.read(piece);
            let lines = memchr::memrchr(b'\n', &piece.bytes[begin..piece.end]);
            if let Some(length) = lines.filter(|_| !self.has_ended) {
                let end = begin + length + 1;
                self.rest.extend_from_slice(&piece.bytes[end..piece.end]);
                piece.end = end;
                return Ok(true);
            }
            if let Some(error) = self.failure.take() {
                return Err(error);
            }
            if self.has_ended {
                return Ok(piece.end > 0);
            }
            if piece.end > MAX_LINE {
                let reason = "a line is too long for a text trace";
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
            }
        }
    }

    /// Appends what is read next.
    fn read(&mut self, piece: &mut Piece) {
        let past = piece.end + self.size;
        if piece.bytes.len() < past {
            piece.bytes.resize(past, 0);
        }
        while piece.end < past {
            match self.input.read(&mut piece.bytes[piece.end..past]) {
                Ok(0) => {
                    self.has_ended = true;
                    break;
                }
                Ok(more) => piece.end += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some(error);
                    break;
                }
            }
        }
    }
}

/// Consecutive lines of a text.
#[derive(Default)]
pub(crate) struct Piece {
    bytes: Vec<u8>,
    /// The part of the bytes that was not handed out.
    start: usize,
    end: usize,
}

impl Piece {
    fn replace(&mut self, bytes: &[u8]) {
        (self.start, self.end) = (0, bytes.len());
        if self.bytes.len() < bytes.len() {
            self.bytes.resize(bytes.len(), 0);
        }
        self.bytes[..bytes.len()].copy_from_slice(bytes);
    }

    /// The lines that were not handed out.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Passes over the first bytes that were not handed out.
    pub(crate) const fn pass(&mut self, length: usize) {
        self.start += length;
    }

    /// The next line, without its end; none at the end of the piece.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        let unread = &self.bytes[self.start..self.end];
        if unread.is_empty() {
            return None;
        }
        let length = memchr::memchr(b'\n', unread);
        self.start += length.map_or(unread.len(), |length| length + 1);
        Some(trimmed(&unread[..length.unwrap_or(unread.len())]))
    }
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}
