//! Finds the format of a trace by its begin.

use std::io::{self, Read};
use std::path::Path;

use crate::error::HeaderError;
use crate::formats::simulator::Simulator::{DiskSim, MqSim};
use crate::formats::{
    biosnoop, blkparse, blktrace, cloudphysics, fiu, ftrace, midas, mobile, spc, systor, vscsi,
};
use crate::input;
use crate::open::Format;
use crate::scan::{Field, fields};
use crate::table;

/// How much of a file is looked at.
const START: u64 = 1 << 14;

/// A format, and how it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Detected {
    pub(crate) format: Format,
    /// The file names its format, or the columns; else only the shape of its lines shows it.
    pub(crate) is_named: bool,
}

/// The first bytes of the file, after unpacking.
pub(crate) fn start_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    input::open_here(path)?.take(START).read_to_end(&mut start)?;
    Ok(start)
}

/// Returns the format of a file that begins with `start`.
///
/// # Errors
/// If it is of no known format, or could be of several.
pub(crate) fn detect(start: &[u8]) -> Result<Detected, HeaderError> {
    if let Some(reason) = foreign(start) {
        return Err(HeaderError::Unpack(reason));
    }
    let named = |format| Ok(Detected { format, is_named: true });
    if start.starts_with(b"PAR1") {
        return named(Format::Trimtab);
    }
    if table::is_arrow(start) {
        return named(Format::Arrow);
    }
    let magic = start.first_chunk().copied().unwrap_or_default();
    if [u32::from_le_bytes(magic), u32::from_be_bytes(magic)]
        .map(|word| word & !0xff)
        .contains(&blktrace::MAGIC)
    {
        return named(Format::Blktrace);
    }
    // Binary records have zeroes, lines of a text have none.
    if memchr::memchr(0, start).is_some() {
        if vscsi::version_of(start).is_some() {
            return Ok(Detected { format: Format::Vscsi, is_named: false });
        }
        if vscsi::is_oracle_general(start) {
            return Err(HeaderError::NoOperations);
        }
    }
    let lines = lines_of(start);
    let Some(first) = lines.first() else { return Err(unknown()) };
    if let Some(format) = named_by(first)? {
        return named(format);
    }
    if lines.iter().any(|line| line.starts_with(b"# tracer:")) && ftrace::is_line(first) {
        return named(Format::Ftrace);
    }
    let first = lines.iter().find(|line| !blkparse::is_total(line)).unwrap_or(first);
    let candidates: Vec<_> = GUESSES.iter().filter(|(_, is_line)| is_line(first)).collect();
    let format = match candidates[..] {
        [] => return Err(unknown()),
        [&(format, _)] => format,
        _ => one_of(&candidates, &lines)?,
    };
    Ok(Detected { format, is_named: false })
}

/// The whole lines that a file begins with, without empty ones.
fn lines_of(start: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<_> = start.split(|byte| *byte == b'\n').collect();
    // The last one may be cut off.
    if lines.len() > 1 && start.len() as u64 >= START {
        lines.pop();
    }
    lines.into_iter().map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).collect()
}

/// The format that a line names itself, or by its columns' names.
fn named_by(line: &[u8]) -> Result<Option<Format>, HeaderError> {
    Ok(Some(match line {
        b"fio version 2 iolog" => Format::Fio2,
        b"fio version 3 iolog" => Format::Fio3,
        b"device_id,opcode,offset,length,timestamp" => Format::Alibaba,
        b"Timestamp,Offset,Size,IOType,VolumeID" => Format::Tencent,
        b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime" => Format::Msr,
        b"Timestamp,Response,IOType,LUN,Offset,Size" => Format::Systor,
        _ if cloudphysics::is_libcachesim(line) => Format::CloudPhysics,
        _ if mobile::is_header(line) => Format::Mobile,
        _ if table::is_header(line) => Format::Csv,
        _ if biosnoop::is_header(line) && biosnoop::lacks_places(line) => return Err(HeaderError::NoPlaces),
        _ if biosnoop::is_header(line) => Format::Biosnoop,
        _ => return Ok(None),
    }))
}

type IsLine = fn(&[u8]) -> bool;

/// The formats that only the shape of their lines shows.
const GUESSES: [(Format, IsLine); 14] = [
    (Format::Msr, |line| {
        fields(line, b',').is_ok_and(|[time, _, disk, kind, offset, size, response]| {
            matches!(kind.text, b"Read" | b"Write") && are_numbers([time, disk, offset, size, response])
        })
    }),
    (Format::Alibaba, |line| {
        fields(line, b',').is_ok_and(|[_, opcode, offset, length, _]| {
            matches!(opcode.text, b"R" | b"W") && are_numbers([offset, length])
        })
    }),
    (Format::Tencent, |line| {
        fields(line, b',').is_ok_and(|[time, offset, size, kind, _]| {
            matches!(kind.text, b"0" | b"1") && are_numbers([time, offset, size])
        })
    }),
    (Format::Spc, spc::is_line),
    (Format::Systor, systor::is_line),
    (Format::Mobile, |line| mobile::is_line(line) && !systor::is_line(line)),
    (Format::Ftrace, ftrace::is_line),
    (Format::Fiu, fiu::is_line),
    (Format::Midas, midas::is_line),
    (Format::DiskSim, |line| DiskSim.is_line(line)),
    (Format::MqSim, |line| MqSim.is_line(line)),
    (Format::CloudPhysics, |line| {
        fields(line, b',').is_ok_and(|[time, lba, op, size]| {
            let is_header = matches!(time.text, b"ts" | b"timestamp") && op.text == b"op";
            is_header || matches!(op.text, b"r" | b"w" | b"R" | b"W") && are_numbers([time, lba, size])
        })
    }),
    (Format::Fio1, |line| {
        fields(line, b',')
            .is_ok_and(|[rw, offset, length]| matches!(rw.text, b"0" | b"1") && are_numbers([offset, length]))
    }),
    (Format::Blkparse, blkparse::is_line),
];

fn are_numbers<const N: usize>(fields: [Field; N]) -> bool {
    fields.iter().all(Field::is_number)
}

/// Returns the format among several that all lines are of.
fn one_of(candidates: &[&(Format, IsLine)], lines: &[&[u8]]) -> Result<Format, HeaderError> {
    let is_of_all = |(_, is_line): &&(Format, IsLine)| lines.iter().all(|line| is_line(line));
    let left: Vec<_> = candidates.iter().copied().filter(is_of_all).collect();
    match left[..] {
        [&(format, _)] => Ok(format),
        // The lengths of simulators' requests are sectors; in 4 KiB blocks they would be 2 MiB and more, each of them.
        [(Format::Midas, _), ..] if lines.iter().all(|line| midas::has_blocks(line)) => Ok(Format::Midas),
        _ => {
            let could_be = if left.is_empty() { candidates } else { &left };
            Err(HeaderError::Ambiguous {
                formats: could_be.iter().map(|(format, _)| format.name()).collect::<Vec<_>>().join(", "),
            })
        }
    }
}

fn unknown() -> HeaderError {
    HeaderError::UnknownFormat { known: Format::ALL.map(Format::name).join(", ") }
}

/// Returns how to convert a file with this start to a trace; `None` if that isn't known.
fn foreign(start: &[u8]) -> Option<&'static str> {
    match start {
        [] => Some("it is empty"),
        [b'P', b'K', 3, 4, ..] => Some("a zip archive: unpack it (unzip), and name one of its files"),
        [b'B', b'Z', b'h', ..] => Some("packed with bzip2: unpack it (bunzip2) first"),
        [b'F', b'E', b'A', b'1', ..] => {
            Some("Feather of version 1: write it with version 2 (pyarrow.feather.write_feather)")
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            Some("a text in UTF-16: write it in UTF-8 (iconv -f UTF-16 -t UTF-8)")
        }
        [b'P', b'E', b'R', b'F', b'I', b'L', b'E', b'2', ..] => {
            Some("perf's recording: print it (perf script -i FILE)")
        }
        [0x17, 0x08, 0x44, b't', b'r', b'a', b'c', b'i', b'n', b'g', ..] => {
            Some("trace-cmd's recording: print it (trace-cmd report FILE)")
        }
        _ if start.get(257..).is_some_and(|rest| rest.starts_with(b"ustar")) => {
            Some("a tar archive: unpack it (tar -xf), and name one of its files")
        }
        _ => None,
    }
}
