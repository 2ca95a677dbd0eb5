//! The block traces of applications on a Pixel 6a (MobileBlockIOTraces), which come with the paper
//! "Space-efficient FTL for Mobile Storage via Tiny Neural Nets" (SYSTOR '24).
//!
//! Lines of `process,device,rw_flag,sector,size,timestamp`: the type R or W, address and size in sectors of 512
//! bytes, the timestamp in seconds; a line `preconditioning_ended` separates the installation of an application
//! from its use (README of acsl-technion/MobileBlockIOTraces). The README has the seconds count since 1970, but
//! those in its files are too few (`cod_exec.csv.gz` begins at 159273), so the header has no date. There the
//! process is a name and its id (`kworker/4:1H-225`), and the first column is called `proces`. Discards are not
//! in the traces.

use trimtab_core::trace::Comm;

use super::ftrace::process_of;
use super::kinds::by_letter;
use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::Cursor;
use crate::text::{number, scaled, seconds, unknown};

/// The fields of a line.
const FIELDS: usize = 6;

pub(crate) struct Mobile;

/// Returns the fields of a line; the name of a process may hold commas.
fn split(line: &[u8]) -> Result<[&[u8]; FIELDS], RowError> {
    let mut back = line.rsplitn(FIELDS, |byte| *byte == b',').map(<[u8]>::trim_ascii);
    let mut last = || back.next().ok_or(RowError::Fields { wanted: FIELDS });
    let [timestamp, size, sector, kind, device, process] =
        [last()?, last()?, last()?, last()?, last()?, last()?];
    Ok([process, device, kind, sector, size, timestamp])
}

impl Parse for Mobile {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        let process = line.until(b',')?;
        (process.first() != Some(&b'"') && !process.starts_with(MARKER)).then_some(())?;
        let device = line.until(b',')?;
        let kind = by_letter(line.until(b',')?)?;
        let (start, length) = (line.number_and(b',')?, line.number_and(b',')?);
        let (time, _) = line.seconds()?;
        line.byte(b'\n')?;
        Some(Parsed::Content(Row {
            time,
            device: notes.known(device)?,
            kind,
            start: start.checked_mul(512)?,
            length: length.checked_mul(512)?,
            process: Comm::new(process_of(process).0),
            ..Row::bare()
        }))
    }

    fn fork(&self) -> Option<Self> {
        Some(Self)
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        if line.strip_prefix(b"\"").unwrap_or(line).starts_with(MARKER) {
            return Ok(Parsed::Skip("markers"));
        }
        let [process, device, kind, sector, size, timestamp] = split(line)?;
        if is_header(line) {
            return Ok(Parsed::Skip("column names"));
        }
        let kind = by_letter(kind).ok_or_else(|| unknown("rw_flag", kind, "is neither R nor W"))?;
        let device = notes.device(device)?;
        Ok(Parsed::Content(Row {
            time: seconds("timestamp", timestamp)?,
            device,
            kind,
            start: scaled("sector", number("sector", sector)?, 512)?,
            length: scaled("size", number("size", size)?, 512)?,
            process: Comm::new(process_of(unquoted(process)).0),
            ..Row::bare()
        }))
    }
}

/// The field without the quotes that CSV has around commas.
fn unquoted(field: &[u8]) -> &[u8] {
    let inner = field.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    inner.unwrap_or(field)
}

/// The begin of the line between installation and use.
const MARKER: &[u8] = b"preconditioning_ended";

/// Returns true for the names of the columns; the first may be misspelt.
pub(crate) fn is_header(line: &[u8]) -> bool {
    line.ends_with(b",device,rw_flag,sector,size,timestamp")
}

/// Returns true if a line is of this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    split(line).is_ok_and(|[_process, _device, kind, sector, size, timestamp]| {
        let numbers = [sector, size].into_iter().all(|text| number("", text).is_ok());
        matches!(kind, b"R" | b"W") && numbers && seconds("", timestamp).is_ok()
    })
}
