//! The output of BCC's biosnoop.
//!
//! A line with the columns' names, then lines of `time process pid disk letter sector bytes [queued] latency`: seconds
//! and milliseconds; the time is the end of the request (tools/biosnoop.py and libbpf-tools/biosnoop.c of iovisor/bcc). biosnoop.py
//! writes W for a write and R for all else, the other program the kernel's letters. The columns' order is found by their names. The name of a
//! process may hold spaces. Of requests that began before biosnoop.py did it prints the process `?`, the sector 0, and as the disk
//! `<unknown>` or nothing. Its column P (`-P`), a letter, follows the bytes without a space if these have seven digits.

use trimtab_core::SECTOR;
use trimtab_core::trace::{Comm, EventKind};
use trimtab_core::units::Nanos;

use super::blkparse::kind_of;
use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::{Cursor, Words};
use crate::text::{milliseconds, number, scaled, seconds, unknown};

/// Added to all times: the first request may have begun before the time zero.
const EARLIER: u64 = 1 << 42;

#[derive(Default)]
pub(crate) struct Biosnoop {
    /// The columns behind the process, in their order.
    columns: Vec<Column>,
    /// The words of the line at hand: where they begin and end.
    words: Vec<(usize, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Disk,
    Letter,
    Sector,
    Bytes,
    Latency,
    /// Whether the request is sequential.
    Pattern,
    Other,
}

/// The disk of a request that biosnoop.py has not seen begin.
const UNKNOWN_DISK: &[u8] = b"<unknown>";
/// The name under which such requests are counted.
const NO_BEGIN: &str = "requests that began before biosnoop did, without their places";

/// Returns true for the names of the columns.
pub(crate) fn is_header(line: &[u8]) -> bool {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.next().is_some_and(|word| word.starts_with(b"TIME(")) && line.windows(4).any(|name| name == b"COMM")
}

/// Returns true if the columns have no places, as those of biosnoop.bt.
pub(crate) fn lacks_places(header: &[u8]) -> bool {
    let has = |name: &[u8]| header.split(u8::is_ascii_whitespace).any(|word| word == name);
    !(has(b"SECTOR") && has(b"BYTES"))
}

impl Biosnoop {
    fn set_columns(&mut self, header: &[u8]) -> Result<(), RowError> {
        let names: Vec<_> = header.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        let [b"TIME(s)", b"COMM", b"PID", rest @ ..] = &names[..] else {
            return Err(unknown("header", header, "has not the columns of biosnoop"));
        };
        let column = |name: &&[u8]| match *name {
            b"DISK" => Column::Disk,
            b"T" => Column::Letter,
            b"SECTOR" => Column::Sector,
            b"BYTES" => Column::Bytes,
            b"LAT(ms)" => Column::Latency,
            b"P" => Column::Pattern,
            _ => Column::Other,
        };
        self.columns = rest.iter().map(column).collect();
        for needed in [Column::Disk, Column::Letter, Column::Sector, Column::Bytes, Column::Latency] {
            if self.columns.iter().filter(|column| **column == needed).count() != 1 {
                return Err(unknown(
                    "header",
                    header,
                    "has not the columns DISK, T, SECTOR, BYTES and LAT(ms)",
                ));
            }
        }
        Ok(())
    }
}

impl Parse for Biosnoop {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        let (ended, _) = line.seconds()?;
        line.spaces()?;
        let process = line.word()?;
        line.spaces()?;
        let _pid = line.number()?;
        let (mut disk, mut letter, mut sector, mut bytes, mut latency) = (&b""[..], &b""[..], 0, 0, 0);
        for column in &self.columns {
            line.spaces()?;
            match column {
                Column::Disk => disk = line.word()?,
                Column::Letter => letter = line.word()?,
                Column::Sector => sector = line.number()?,
                Column::Bytes => bytes = line.number()?,
                // Milliseconds.
                Column::Latency => latency = line.seconds()?.0 / 1000,
                Column::Pattern | Column::Other => _ = line.word()?,
            }
        }
        line.byte(b'\n')?;
        let kind = kind_of(letter, bytes)?;
        (kind != EventKind::Flush && disk != UNKNOWN_DISK).then_some(())?;
        Some(Parsed::Content(Row {
            time: ended.checked_add(EARLIER)?.checked_sub(latency)?,
            device: notes.known(disk)?,
            kind,
            start: sector.checked_mul(SECTOR.0)?,
            length: bytes,
            latency: Some(Nanos(latency)),
            process: Comm::new(process),
            ..Row::bare()
        }))
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        if is_header(line) {
            self.set_columns(line)?;
            return Ok(Parsed::Skip("column names"));
        }
        let wrong = || RowError::Fields { wanted: self.columns.len() + 3 };
        if self.columns.is_empty() {
            return Err(unknown("line", line, "comes before the names of the columns"));
        }
        let (mut disk, mut letter, mut sector, mut bytes, mut latency) =
            (&b""[..], &b""[..], &b""[..], &b""[..], &b""[..]);
        self.words.clear();
        let has_pattern = self.columns.contains(&Column::Pattern);
        let mut words = Words::<false>::of(line);
        while let Some(word) = words.next() {
            let end = line.len() - words.rest().len();
            let start = end - word.text.len();
            let pattern = word.text.strip_suffix(b"S").or_else(|| word.text.strip_suffix(b"R"));
            let pattern = pattern.or_else(|| word.text.strip_suffix(b"?")).filter(|bytes| bytes.len() >= 7);
            if has_pattern && pattern.is_some_and(|bytes| bytes.iter().all(u8::is_ascii_digit)) {
                self.words.extend([(start, end - 1), (end - 1, end)]);
            } else {
                self.words.push((start, end));
            }
        }
        // The name of the process is between the first word and the last ones, and may be empty.
        let pid = self.words.len().checked_sub(self.columns.len() + 1).filter(|place| *place > 0);
        let pid = pid.ok_or_else(wrong)?;
        let word = |place: usize| &line[self.words[place].0..self.words[place].1];
        if word(pid) == b"?" && number("PID", word(pid + 1)).is_ok() {
            // The disk is missing.
            return Ok(Parsed::Skip(NO_BEGIN));
        }
        for (column, (start, end)) in self.columns.iter().zip(&self.words[pid + 1..]) {
            let word = &line[*start..*end];
            match column {
                Column::Disk => disk = word,
                Column::Letter => letter = word,
                Column::Sector => sector = word,
                Column::Bytes => bytes = word,
                Column::Latency => latency = word,
                Column::Pattern | Column::Other => {}
            }
        }
        let process = line[self.words[0].1..self.words[pid].0].trim_ascii();
        let (time, pid) = (word(0), word(pid));
        number("PID", pid)?;
        if disk == UNKNOWN_DISK {
            return Ok(Parsed::Skip(NO_BEGIN));
        }
        let bytes = number("BYTES", bytes)?;
        let latency = milliseconds("LAT(ms)", latency)?;
        let ended = seconds("TIME(s)", time)?.saturating_add(EARLIER);
        let Some(kind) = kind_of(letter, bytes) else {
            if bytes > 0 || !letter.first().is_some_and(|letter| b"RWDFNZ".contains(letter)) {
                return Err(unknown("T", letter, "is not the name of an operation"));
            }
            return Ok(Parsed::Skip("commands without bytes"));
        };
        let is_flush = kind == EventKind::Flush;
        let device = notes.device(disk)?;
        Ok(Parsed::Content(Row {
            time: ended.checked_sub(latency).ok_or(RowError::TooLong { time: latency })?,
            device,
            kind,
            start: if is_flush { 0 } else { scaled("SECTOR", number("SECTOR", sector)?, SECTOR.0)? },
            length: if is_flush { 0 } else { bytes },
            latency: Some(Nanos(latency)),
            process: Comm::new(process),
            error: 0,
        }))
    }
}
