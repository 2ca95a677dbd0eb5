//! Opens traces of all formats.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::counts::TraceReader;
use crate::error::{HeaderError, TraceError};
use crate::file::{Columns, TraceFile};
use crate::formats::alibaba::Alibaba;
use crate::formats::blkparse::Blkparse;
use crate::formats::blktrace;
use crate::formats::cloudphysics::CloudPhysics;
use crate::formats::fio::{Fio, Version};
use crate::formats::fiu::{self, Fiu};
use crate::formats::ftrace::{self, Ftrace};
use crate::formats::midas::{self, Midas};
use crate::formats::mobile::{self, Mobile};
use crate::formats::msr::Msr;
use crate::formats::spc::{self, Spc};
use crate::formats::systor::{self, Systor};
use crate::formats::tencent::Tencent;
use crate::input;
use crate::rows::Rows;
use crate::text::{self, fields, number};

/// A trace format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Our own: Parquet.
    Trimtab,
    /// blktrace's binary records.
    Blktrace,
    /// The default output of blkparse.
    Blkparse,
    /// fio's log of version 1.
    Fio1,
    /// fio's log of version 2.
    Fio2,
    /// fio's log of version 3.
    Fio3,
    /// Microsoft Research Cambridge's volumes.
    Msr,
    /// Alibaba's virtual disks.
    Alibaba,
    /// Tencent's volumes.
    Tencent,
    /// CloudPhysics's virtual disks.
    CloudPhysics,
    /// The LUNs of the SYSTOR '17 paper.
    Systor,
    /// The Storage Performance Council's format.
    Spc,
    /// Florida International University's disks.
    Fiu,
    /// The traces of MiDAS.
    Midas,
    /// The text of the kernel's ftrace, as AOSP has it.
    Ftrace,
    /// The applications of a Pixel 6a.
    Mobile,
}

/// A format's name that isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no trace format {0:?}; there are {names}", names = Format::ALL.map(Format::name).join(", "))]
pub struct UnknownFormat(pub String);

impl Format {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Trimtab,
        Self::Blktrace,
        Self::Blkparse,
        Self::Fio1,
        Self::Fio2,
        Self::Fio3,
        Self::Msr,
        Self::Alibaba,
        Self::Tencent,
        Self::CloudPhysics,
        Self::Systor,
        Self::Spc,
        Self::Fiu,
        Self::Midas,
        Self::Ftrace,
        Self::Mobile,
    ];

    /// The name that command lines use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trimtab => "trimtab",
            Self::Blktrace => "blktrace",
            Self::Blkparse => "blkparse",
            Self::Fio1 => "fio1",
            Self::Fio2 => "fio2",
            Self::Fio3 => "fio3",
            Self::Msr => "msr",
            Self::Alibaba => "alibaba",
            Self::Tencent => "tencent",
            Self::CloudPhysics => "cloudphysics",
            Self::Systor => "systor",
            Self::Spc => "spc",
            Self::Fiu => "fiu",
            Self::Midas => "midas",
            Self::Ftrace => "ftrace",
            Self::Mobile => "mobile",
        }
    }

    /// Returns true if traces of this format contain discards; false for our own, whose header says it.
    pub const fn has_discards(self) -> bool {
        matches!(self, Self::Blktrace | Self::Blkparse | Self::Fio2 | Self::Fio3 | Self::Midas | Self::Ftrace)
    }

    /// The format that the start of the file shows, after unpacking; none if it is none of them.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn detect(path: &Path) -> io::Result<Option<Self>> {
        Ok(Self::of(&start_of(path)?))
    }

    fn of(start: &[u8]) -> Option<Self> {
        if foreign(start).is_some() {
            return None;
        }
        if start.starts_with(b"PAR1") {
            return Some(Self::Trimtab);
        }
        let magic = start.first_chunk().copied().unwrap_or_default();
        if [u32::from_le_bytes(magic), u32::from_be_bytes(magic)]
            .map(|word| word & !0xff)
            .contains(&blktrace::MAGIC)
        {
            return Some(Self::Blktrace);
        }
        let mut lines = start.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let line = lines.find(|line| !line.is_empty())?;
        match line {
            b"fio version 2 iolog" => return Some(Self::Fio2),
            b"fio version 3 iolog" => return Some(Self::Fio3),
            b"device_id,opcode,offset,length,timestamp" => return Some(Self::Alibaba),
            b"Timestamp,Offset,Size,IOType,VolumeID" => return Some(Self::Tencent),
            b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime" => return Some(Self::Msr),
            b"Timestamp,Response,IOType,LUN,Offset,Size" => return Some(Self::Systor),
            _ if mobile::is_header(line) => return Some(Self::Mobile),
            _ => {}
        }
        Self::of_line(line)
    }

    /// The format of a line that names none.
    fn of_line(line: &[u8]) -> Option<Self> {
        let is_number = |text| number("", text).is_ok();
        if let Ok([_, _, _, b"Read" | b"Write", ..]) = fields::<7>(line, b',') {
            return Some(Self::Msr);
        }
        if let Ok([_, second, _, fourth, _]) = fields::<5>(line, b',') {
            return match (second, fourth) {
                (b"R" | b"W", _) => Some(Self::Alibaba),
                (_, b"0" | b"1") => Some(Self::Tencent),
                (_, b"r" | b"w" | b"R" | b"W") => Some(Self::Spc),
                _ => None,
            };
        }
        let known = [
            (Self::Systor, systor::is_line(line)),
            (Self::Mobile, mobile::is_line(line)),
            (Self::Spc, spc::is_line(line)),
            (Self::Ftrace, ftrace::is_line(line)),
            (Self::Fiu, fiu::is_line(line)),
            (Self::Midas, midas::is_line(line)),
        ];
        if let Some((format, _)) = known.into_iter().find(|(_, is_it)| *is_it) {
            return Some(format);
        }
        if let Ok([_, _, b"r" | b"w" | b"R" | b"W" | b"op", _]) = fields::<4>(line, b',') {
            return Some(Self::CloudPhysics);
        }
        if let Ok([b"0" | b"1", offset, length]) = fields::<3>(line, b',') {
            return (is_number(offset) && is_number(length)).then_some(Self::Fio1);
        }
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let [major, minor] = fields::<2>(words.next()?, b',').ok()?;
        let four = [words.next()?, words.next()?, words.next()?, words.next()?];
        let [cpu, sequence, time, _pid] = four;
        let numbers = [major, minor, cpu, sequence].into_iter().all(is_number);
        (numbers && time.contains(&b'.')).then_some(Self::Blkparse)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;
    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == name)
            .ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// The first bytes of the file, after unpacking.
fn start_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    input::open(path)?.take(1 << 12).read_to_end(&mut start)?;
    Ok(start)
}

/// Returns how to convert a file with this start to a trace; none if that isn't known.
fn foreign(start: &[u8]) -> Option<&'static str> {
    match start {
        [] => Some("it is empty"),
        [b'P', b'K', 3, 4, ..] => Some("a zip archive: unpack it (unzip), and name one of its files"),
        [b'B', b'Z', b'h', ..] => Some("packed with bzip2: unpack it (bunzip2) first"),
        _ if start.get(257..).is_some_and(|rest| rest.starts_with(b"ustar")) => {
            Some("a tar archive: unpack it (tar -xf), and name one of its files")
        }
        _ => None,
    }
}

/// The files of the trace at `path`, in order: that one, or those of all processors if it is one that blktrace wrote
/// (`NAME.blktrace.N`).
///
/// # Errors
/// If its directory can't be read.
pub fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    blktrace::processors(path)
}

/// Opens the trace at `path`, of the format that its content shows, or of `format`. Of a trace of our
/// own it reads only `columns`; lines of text and blktrace's records have to be read whole.
///
/// # Errors
/// If it can't be read, or is of no known format.
pub fn open(
    path: &Path,
    format: Option<Format>,
    columns: Columns,
) -> Result<Box<dyn TraceReader + Send>, TraceError> {
    let io = |source| TraceError::Io { path: path.to_owned(), source };
    let refuse = |reason| TraceError::Header { path: path.to_owned(), reason };
    let format = match format {
        Some(format) => format,
        None if fs::metadata(path).map_err(io)?.file_type().is_fifo() => {
            return Err(refuse(HeaderError::Pipe));
        }
        None => {
            let start = start_of(path).map_err(io)?;
            let unknown = || HeaderError::UnknownFormat { known: Format::ALL.map(Format::name).join(", ") };
            let reason = || foreign(&start).map_or_else(unknown, HeaderError::Unpack);
            Format::of(&start).ok_or_else(|| refuse(reason()))?
        }
    };
    let mut rows = Rows::new(format.name(), !matches!(format, Format::Fio1 | Format::Fio2));
    rows.header.has_discards = format.has_discards();
    let gaps = &mut rows.header.gaps;
    if !format.has_discards() {
        gaps.push(format!("traces of the format {format} have no discards"));
    }
    match format {
        Format::Fio1 => gaps.push("fio's logs of version 1 have no times".to_owned()),
        Format::Fio2 => gaps.push("fio's logs of version 2 have no times except waits".to_owned()),
        Format::Blktrace | Format::Blkparse => {
            gaps.push("blktrace reports secure erases as discards, and write-zeroes as writes".to_owned());
        }
        Format::Tencent => gaps.push("its times are whole seconds".to_owned()),
        Format::Ftrace => gaps.push("addresses of mmc events are taken as sectors of 512 bytes".to_owned()),
        _ => {}
    }
    Ok(match format {
        Format::Trimtab => Box::new(TraceFile::open(path)?.with_columns(columns)),
        Format::Blktrace => Box::new(blktrace::open(path, rows)?),
        Format::Blkparse => Box::new(text::open(path, Blkparse::default(), rows)?),
        Format::Fio1 => Box::new(text::open(path, Fio::new(Version::One), rows)?),
        Format::Fio2 => Box::new(text::open(path, Fio::new(Version::Two), rows)?),
        Format::Fio3 => Box::new(text::open(path, Fio::new(Version::Three), rows)?),
        Format::Msr => Box::new(text::open(path, Msr::default(), rows)?),
        Format::Alibaba => Box::new(text::open(path, Alibaba, rows)?),
        Format::Tencent => Box::new(text::open(path, Tencent, rows)?),
        Format::CloudPhysics => Box::new(text::open(path, CloudPhysics, rows)?),
        Format::Systor => Box::new(text::open(path, Systor::default(), rows)?),
        Format::Spc => Box::new(text::open(path, Spc::default(), rows)?),
        Format::Fiu => Box::new(text::open(path, Fiu::default(), rows)?),
        Format::Midas => Box::new(text::open(path, Midas, rows)?),
        Format::Ftrace => Box::new(text::open(path, Ftrace::default(), rows)?),
        Format::Mobile => Box::new(text::open(path, Mobile, rows)?),
    })
}
