//! Opens traces of all formats.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::counts::TraceReader;
use crate::detect::{self, Detected, detect};
use crate::error::{HeaderError, TraceError};
use crate::file::Columns;
use crate::formats::alibaba::Alibaba;
use crate::formats::biosnoop::Biosnoop;
use crate::formats::blkparse::{self, Blkparse};
use crate::formats::blktrace;
use crate::formats::cloudphysics::CloudPhysics;
use crate::formats::fio::{Fio, Version};
use crate::formats::fiu::Fiu;
use crate::formats::ftrace::Ftrace;
use crate::formats::midas::Midas;
use crate::formats::mobile::Mobile;
use crate::formats::msr::Msr;
use crate::formats::simulator::Simulator;
use crate::formats::spc::Spc;
use crate::formats::systor::Systor;
use crate::formats::tencent::Tencent;
use crate::formats::vscsi;
use crate::parse;
use crate::rows::Rows;
use crate::table::{self, Csv};

/// Declares the formats: each with its description and the name that command lines use.
macro_rules! formats {
    ($($(#[$description:meta])* $format:ident $name:literal)*) => {
        /// A trace format.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Format {
            $($(#[$description])* $format,)*
        }

        impl Format {
            /// All of them.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$format),*];

            /// The name that command lines use.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$format => $name,)*
                }
            }
        }
    };
}

formats! {
    /// Our own: Parquet.
    Trimtab "trimtab"
    /// blktrace's binary records.
    Blktrace "blktrace"
    /// The default output of blkparse.
    Blkparse "blkparse"
    /// fio's log of version 1.
    Fio1 "fio1"
    /// fio's log of version 2.
    Fio2 "fio2"
    /// fio's log of version 3.
    Fio3 "fio3"
    /// Microsoft Research Cambridge's volumes.
    Msr "msr"
    /// Alibaba's virtual disks.
    Alibaba "alibaba"
    /// Tencent's volumes.
    Tencent "tencent"
    /// CloudPhysics's virtual disks.
    CloudPhysics "cloudphysics"
    /// The LUNs of the SYSTOR '17 paper.
    Systor "systor"
    /// The Storage Performance Council's format.
    Spc "spc"
    /// Florida International University's disks.
    Fiu "fiu"
    /// The traces of MiDAS.
    Midas "midas"
    /// The text of the kernel's ftrace, as AOSP has it.
    Ftrace "ftrace"
    /// The applications of a Pixel 6a.
    Mobile "mobile"
    /// DiskSim's.
    DiskSim "disksim"
    /// The formats of MQSim and SSDsim.
    MqSim "mqsim"
    /// CloudPhysics's virtual disks in binary records.
    Vscsi "vscsi"
    /// The output of BCC's biosnoop.
    Biosnoop "biosnoop"
    /// A table with our columns as CSV.
    Csv "csv"
    /// A table with our columns as Arrow IPC.
    Arrow "arrow"
}

/// A format's name that isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no trace format {0:?}; there are {names}", names = Format::ALL.map(Format::name).join(", "))]
pub struct UnknownFormat(pub String);

impl Format {
    /// Returns true if traces of this format can contain discards; false for our own, whose header says it.
    pub const fn has_discards(self) -> bool {
        matches!(
            self,
            Self::Blktrace
                | Self::Blkparse
                | Self::Fio2
                | Self::Fio3
                | Self::Midas
                | Self::Ftrace
                | Self::Biosnoop
                | Self::Csv
                | Self::Arrow
        )
    }

    /// The format that the start of the file shows, after unpacking; `None` if it is none of them, or could be several.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn detect(path: &Path) -> io::Result<Option<Self>> {
        Ok(detect(&detect::start_of(path)?).ok().map(|detected| detected.format))
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

/// The files of the trace at `path`, in order: that one, or those of all processors if it is one that blktrace wrote
/// (`NAME.blktrace.N`) or the part of their names before `.blktrace`.
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
    let Detected { format, is_named } = match format {
        Some(format) => Detected { format, is_named: true },
        None => {
            let mut start = Vec::new();
            // The file of a processor that saw no request is empty.
            for file in files(path).map_err(io)? {
                if fs::metadata(&file).map_err(io)?.file_type().is_fifo() {
                    return Err(refuse(HeaderError::Pipe));
                }
                start = detect::start_of(&file).map_err(io)?;
                if !start.is_empty() {
                    break;
                }
            }
            detect(&start).map_err(refuse)?
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
        Format::Blktrace | Format::Blkparse => gaps.push(blkparse::GAP.to_owned()),
        Format::Tencent => gaps.push("its times are whole seconds".to_owned()),
        Format::Biosnoop => gaps.push(
            "biosnoop of BCC calls every command that is no write a read, so that discards and flushes may be among the \
             reads"
                .to_owned(),
        ),
        Format::Vscsi => gaps.push("it has the ranges of no UNMAP and WRITE SAME commands".to_owned()),
        _ => {}
    }
    if !is_named {
        gaps.push(format!(
            "that its format is {format} was concluded from the shape of its records, as nothing in it says so; \
             --format names another"
        ));
    }
    Ok(match format {
        Format::Trimtab => return table::open_parquet(path, columns),
        Format::Arrow => Box::new(table::open_arrow(path, columns)?),
        Format::Blktrace => Box::new(blktrace::open(path, rows)?),
        Format::Blkparse => Box::new(parse::open(path, Blkparse::default(), rows)?),
        Format::Fio1 => Box::new(parse::open(path, Fio::new(Version::One), rows)?),
        Format::Fio2 => Box::new(parse::open(path, Fio::new(Version::Two), rows)?),
        Format::Fio3 => Box::new(parse::open(path, Fio::new(Version::Three), rows)?),
        Format::Msr => Box::new(parse::open(path, Msr::default(), rows)?),
        Format::Alibaba => Box::new(parse::open(path, Alibaba, rows)?),
        Format::Tencent => Box::new(parse::open(path, Tencent, rows)?),
        Format::CloudPhysics => Box::new(parse::open(path, CloudPhysics::default(), rows)?),
        Format::Systor => Box::new(parse::open(path, Systor::default(), rows)?),
        Format::Spc => Box::new(parse::open(path, Spc::default(), rows)?),
        Format::Fiu => Box::new(parse::open(path, Fiu::default(), rows)?),
        Format::Midas => Box::new(parse::open(path, Midas, rows)?),
        Format::Ftrace => Box::new(parse::open(path, Ftrace::default(), rows)?),
        Format::Mobile => Box::new(parse::open(path, Mobile, rows)?),
        Format::DiskSim => Box::new(parse::open(path, Simulator::DiskSim, rows)?),
        Format::MqSim => Box::new(parse::open(path, Simulator::MqSim, rows)?),
        Format::Vscsi => Box::new(vscsi::open(path, rows)?),
        Format::Biosnoop => Box::new(parse::open(path, Biosnoop::default(), rows)?),
        Format::Csv => Box::new(parse::open(path, Csv::default(), rows)?),
    })
}
