//! The text that blkparse prints by default (blkparse's manual, "Output description").
//!
//! Lines of `major,minor cpu sequence seconds.nanoseconds pid action rwbs sector + sectors [process]`;
//! a completion has the error in the brackets. The totals at the end are skipped.
//!
//! The traces of YCSB on RocksDB by Yadgar and others (SNIA IOTTA repository, `ssdtrace-00` to `ssdtrace-26`)
//! are in this form: their README lists these fields.

use trimtab_core::trace::{Comm, EventKind};

use super::requests::{Action, Requests, Step};
use crate::error::RowError;
use crate::rows::Rows;
use crate::text::{Parse, number, scaled, unknown};

#[derive(Default)]
pub(crate) struct Blkparse {
    requests: Requests,
    totals: bool,
}

impl Parse for Blkparse {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        self.totals |= line.starts_with(b"CPU") || line.starts_with(b"Total");
        if self.totals {
            rows.skip("lines of totals");
            return Ok(());
        }
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let mut next = || words.next().ok_or(RowError::Fields { wanted: 7 });
        let [device, _cpu, _sequence, time, _pid, action, rwbs] =
            [next()?, next()?, next()?, next()?, next()?, next()?, next()?];
        if memchr::memchr(b',', device).is_none() {
            return Err(unknown("device", device, "is no major and minor number"));
        }
        let action = match action {
            b"Q" => Action::Queue,
            b"M" | b"F" => Action::Merge,
            b"D" => Action::Issue,
            b"R" => Action::Requeue,
            b"C" => Action::Complete,
            _ => {
                rows.skip("other steps and messages");
                return Ok(());
            }
        };
        let (start, length) = match next() {
            Ok(sector) if !sector.starts_with(b"[") => match next() {
                Ok(b"+") => (number("sector", sector)?, number("sectors", next()?)?),
                _ => (number("sector", sector)?, 0),
            },
            _ => (0, 0),
        };
        let Some(kind) = kind_of(rwbs, length) else {
            rows.skip("commands that are no reads, writes, discards or flushes");
            return Ok(());
        };
        let bracket = memchr::memrchr(b'[', line).map_or(&[][..], |at| &line[at + 1..]);
        let bracket = bracket.strip_suffix(b"]").unwrap_or(bracket);
        let complete = action == Action::Complete;
        let step = Step {
            action,
            time: nanoseconds(time)?,
            device: rows.device(device)?,
            kind,
            start: if kind == EventKind::Flush { 0 } else { scaled("sector", start, 512)? },
            length: scaled("sectors", length, 512)?,
            process: if complete { Comm::default() } else { Comm::new(bracket) },
            error: if complete { errno(bracket)? } else { 0 },
        };
        self.requests.step(&step, rows)
    }

    fn end(&mut self, rows: &mut Rows) -> Result<(), RowError> {
        self.requests.end(rows)
    }
}

/// Returns the kind of a request by `rwbs`, its letters; flags such as S (sync) are ignored.
pub(super) fn kind_of(rwbs: &[u8], length: u64) -> Option<EventKind> {
    let has = |letter| memchr::memchr(letter, rwbs).is_some();
    if rwbs.strip_prefix(b"F").unwrap_or(rwbs).starts_with(b"Z") {
        // A command on zones (`blk_fill_rwbs` of Linux 6.18). Most move no data, and appends have no address before they end.
        return None;
    }
    if has(b'D') {
        Some(if has(b'E') { EventKind::SecureErase } else { EventKind::Discard })
    } else if length == 0 {
        has(b'F').then_some(EventKind::Flush)
    } else if has(b'R') {
        Some(EventKind::Read)
    } else if has(b'W') {
        Some(EventKind::Write)
    } else {
        None
    }
}

pub(super) fn errno(text: &[u8]) -> Result<u16, RowError> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    u16::try_from(number("error", digits)?).map_err(|_| unknown("error", text, "is no errno"))
}

fn nanoseconds(time: &[u8]) -> Result<u64, RowError> {
    let wrong = || unknown("time", time, "is not seconds with 9 decimals");
    let dot = memchr::memchr(b'.', time).ok_or_else(wrong)?;
    let (seconds, decimals) = (&time[..dot], &time[dot + 1..]);
    if decimals.len() != 9 {
        return Err(wrong());
    }
    let seconds = scaled("time", number("time", seconds)?, 1_000_000_000)?;
    seconds.checked_add(number("time", decimals)?).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_give_the_kind_of_a_request() {
        for (rwbs, length, kind) in [
            ("R", 8, Some(EventKind::Read)),
            ("RA", 8, Some(EventKind::Read)),
            ("FWFS", 8, Some(EventKind::Write)),
            ("FF", 0, Some(EventKind::Flush)),
            ("DS", 8, Some(EventKind::Discard)),
            ("DE", 8, Some(EventKind::SecureErase)),
            ("N", 8, None),
            ("WZS", 8, Some(EventKind::Write)),
            ("ZAS", 8, None),
            ("FZA", 8, None),
            ("ZR", 524_288, None),
            ("ZRA", 524_288, None),
            ("ZF", 0, None),
        ] {
            assert_eq!(kind_of(rwbs.as_bytes(), length), kind, "{rwbs}");
        }
    }
}
