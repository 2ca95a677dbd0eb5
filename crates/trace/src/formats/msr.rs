//! The block traces that Microsoft Research Cambridge published: a week of 36 volumes of its servers.
//!
//! Lines of `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: the timestamp is a Windows
//! file time (ticks of 100 ns since 1601), the type Read or Write, offset and size are in bytes, the
//! response time in ticks of 100 ns (SNIA IOTTA repository, trace set 388, README).

use std::time::Duration;

use trimtab_core::trace::EventKind;
use trimtab_core::units::Nanos;

use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::{Cursor, fields};
use crate::text::{scaled, unknown};

/// From 1601 to 1970, in ticks.
const EPOCH: u64 = 11_644_473_600 * 10_000_000;

#[derive(Clone, Default)]
pub(crate) struct Msr {
    device: Vec<u8>,
}

/// Returns the kind of a row, as the format writes it.
#[inline]
fn kind_of(text: &[u8]) -> Option<EventKind> {
    Some(match text {
        b"Read" => EventKind::Read,
        b"Write" => EventKind::Write,
        _ => return None,
    })
}

impl Parse for Msr {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        notes.clock()?;
        let ticks = line.number_and(b',')?.checked_sub(EPOCH)?;
        let (host, disk) = (line.until(b',')?, line.until(b',')?);
        let kind = kind_of(line.until(b',')?)?;
        let (start, length) = (line.number_and(b',')?, line.number_and(b',')?);
        let response = line.number_and(b'\n')?;
        let is_last = self.device.strip_prefix(host)?.strip_prefix(b"_")? == disk;
        is_last.then_some(())?;
        Some(Parsed::Content(Row {
            time: ticks.checked_mul(100)?,
            device: notes.known(&self.device)?,
            kind,
            start,
            length,
            latency: Some(Nanos(response.checked_mul(100)?)),
            ..Row::bare()
        }))
    }

    fn fork(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        let [timestamp, host, disk, kind, offset, size, response] = fields(line, b',')?;
        if timestamp.text == b"Timestamp" {
            return Ok(Parsed::Skip("column names"));
        }
        let kind =
            kind_of(kind.text).ok_or_else(|| unknown("Type", kind.text, "is neither Read nor Write"))?;
        let ticks = timestamp.number("Timestamp")?;
        let ticks = ticks.checked_sub(EPOCH);
        let ticks =
            ticks.ok_or_else(|| unknown("Timestamp", timestamp.text, "is no file time after 1970"))?;
        let time = scaled("Timestamp", ticks, 100)?;
        notes.set_clock(Duration::from_nanos(time));
        self.device.clear();
        self.device.extend_from_slice(host.text);
        self.device.push(b'_');
        self.device.extend_from_slice(disk.text);
        let device = notes.device(&self.device)?;
        Ok(Parsed::Content(Row {
            time,
            device,
            kind,
            start: offset.number("Offset")?,
            length: size.number("Size")?,
            latency: Some(Nanos(scaled("ResponseTime", response.number("ResponseTime")?, 100)?)),
            ..Row::bare()
        }))
    }
}
