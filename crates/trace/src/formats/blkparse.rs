//! The text that blkparse prints by default (blkparse's manual, "Output description"), and the kernel's `blk` tracer
//! with the option `blk_classic`.
//!
//! Lines of `major,minor cpu sequence seconds.nanoseconds pid action rwbs sector + sectors [process]`; the tracer's have
//! no sequence. A completion has the error in the brackets, a split `sector / sector behind the first part`, a remap
//! `sector + sectors <- (major,minor) sector`, a command that a program sent past the block layer its bytes in
//! parentheses, and with the option `-t` each line the time since the last step. Totals are skipped. If the text of
//! another run follows them, its times are counted on from the end of the first.
//!
//! The traces of YCSB on RocksDB by Yadgar and others (SNIA IOTTA repository, `ssdtrace-00` to `ssdtrace-26`)
//! are in this form: their README lists these fields.

use trimtab_core::SECTOR;
use trimtab_core::trace::{Comm, EventKind, operation};

use super::partitions::{self, Remap, numbers};
use super::requests::{Action, Requests, Step};
use crate::error::RowError;
use crate::rows::Rows;
use crate::text::{Parse, number, scaled, unknown};

/// The name under which commands that are no events are counted.
pub(super) const OTHER_COMMANDS: &str = "commands that are no reads, writes, discards or flushes";
/// The name under which steps that are no events are counted.
pub(super) const OTHER_STEPS: &str = "other steps and messages";

#[derive(Default)]
pub(crate) struct Blkparse {
    requests: Requests,
    /// Totals were read since the last line of a run.
    totals: bool,
    /// The time at which the run began whose lines are read, and the latest time.
    run_began: u64,
    latest: u64,
    /// The device of the last line.
    device: Vec<u8>,
}

impl Parse for Blkparse {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let mut words = Words(line);
        let device = words.next()?;
        if device != self.device && !is_device(device) {
            if !is_total(line) {
                return Err(unknown("device", device, "is no major and minor number"));
            }
            // A file name that was read first is no total.
            self.totals |= self.latest > 0 || !line.starts_with(b"Input file");
            rows.skip("lines of totals");
            return Ok(());
        }
        if std::mem::take(&mut self.totals) {
            self.requests.end(rows)?;
            self.requests = Requests::default();
            self.run_began = self.latest;
            rows.gap(format!(
                "the output of another run begins at line {}: its times are counted on from the end of the run before",
                rows.counts.records
            ));
        }
        if device != self.device {
            self.device.clear();
            self.device.extend_from_slice(device);
        }
        let _cpu = words.next()?;
        let mut time = words.next()?;
        if memchr::memchr(b'.', time).is_none() {
            time = words.next()?;
        }
        let time = nanoseconds(time)?.checked_add(self.run_began);
        let time = time.ok_or(RowError::TooLong { time: u64::MAX })?;
        self.latest = self.latest.max(time);
        let pid = words.next()?;
        let text = StepText { device, time, pid: pid_of(pid), action: words.next()?, rest: words.0 };
        text.take(&mut self.requests, rows)
    }

    fn end(&mut self, rows: &mut Rows) -> Result<(), RowError> {
        partitions::name_gaps(rows);
        self.requests.end(rows)
    }
}

/// The words of a line that were not read yet.
pub(super) struct Words<'a>(pub(super) &'a [u8]);

impl<'a> Words<'a> {
    #[inline]
    pub(super) fn next(&mut self) -> Result<&'a [u8], RowError> {
        let begin = self.0.iter().position(|byte| *byte > b' ').ok_or(RowError::Fields { wanted: 7 })?;
        let text = &self.0[begin..];
        let end = text.iter().position(|byte| *byte <= b' ').unwrap_or(text.len());
        self.0 = &text[end..];
        Ok(&text[..end])
    }
}

/// A step as blkparse and the `blk` tracer write it.
pub(super) struct StepText<'a> {
    pub(super) device: &'a [u8],
    /// Nanoseconds.
    pub(super) time: u64,
    pub(super) pid: u32,
    pub(super) action: &'a [u8],
    /// The letters of the operation, and what follows.
    pub(super) rest: &'a [u8],
}

impl StepText<'_> {
    pub(super) fn take(&self, requests: &mut Requests, rows: &mut Rows) -> Result<(), RowError> {
        let action = match self.action {
            b"Q" => Action::Queue,
            b"X" => Action::Split,
            b"M" | b"F" => Action::Merge,
            b"D" => Action::Issue,
            b"R" => Action::Requeue,
            b"C" => Action::Complete,
            b"A" => return self.remap(rows),
            _ => {
                rows.skip(OTHER_STEPS);
                return Ok(());
            }
        };
        let mut words = Words(self.rest);
        let rwbs = words.next()?;
        let (mut start, mut length, mut behind) = (0, 0, words.0);
        let mut is_command = false;
        if let Ok(word) = words.next()
            && !word.starts_with(b"[")
        {
            is_command = word.starts_with(b"(") && is_payload(behind);
            if !word.starts_with(b"(") {
                start = number("sector", word)?;
                behind = words.0;
                match words.next() {
                    Ok(b"+") => length = number("sectors", words.next()?)?,
                    Ok(b"/") => {
                        let past = number("sector", words.next()?)?;
                        length = past
                            .checked_sub(start)
                            .ok_or_else(|| unknown("sector", self.rest, "is split before it"))?;
                    }
                    _ => {
                        is_command = is_payload(behind);
                        words = Words(behind);
                    }
                }
                behind = words.0;
            }
        }
        let Some(kind) = kind_of(rwbs, length).filter(|_| !is_command) else {
            rows.skip(OTHER_COMMANDS);
            return Ok(());
        };
        let complete = action == Action::Complete;
        let bracket = bracket(behind);
        let step = Step {
            action,
            time: self.time,
            device: rows.device(self.device)?,
            kind,
            start: if kind == EventKind::Flush { 0 } else { scaled("sector", start, SECTOR.0)? },
            length: scaled("sectors", length, SECTOR.0)?,
            pid: self.pid,
            process: if complete { Comm::default() } else { process(bracket) },
            error: if complete { errno(bracket)? } else { 0 },
        };
        requests.step(&step, rows)
    }

    /// A remap says where a partition begins: `sector + sectors <- (major,minor) sector`.
    fn remap(&self, rows: &mut Rows) -> Result<(), RowError> {
        rows.skip("remaps");
        let mut words = Words(self.rest);
        let [_rwbs, to, plus, _sectors, arrow, from_device, from] = [
            words.next()?,
            words.next()?,
            words.next()?,
            words.next()?,
            words.next()?,
            words.next()?,
            words.next()?,
        ];
        let from_device = from_device.strip_prefix(b"(").and_then(|rest| rest.strip_suffix(b")"));
        let (Some(from_device), Some(traced)) = (from_device.and_then(numbers), numbers(self.device)) else {
            return Ok(());
        };
        if plus != b"+" || arrow != b"<-" {
            return Ok(());
        }
        let (sector, from_sector) = (number("sector", to)?, number("sector", from)?);
        let device = rows.device(self.device)?;
        Remap { from: from_device, from_sector, sector }.take(traced, device, rows)
    }
}

/// Whether a text begins with the bytes of a command in parentheses, rather than with a time.
fn is_payload(text: &[u8]) -> bool {
    let inside = text.trim_ascii_start().strip_prefix(b"(").unwrap_or_default();
    let inside = &inside[..memchr::memchr(b')', inside).unwrap_or(0)];
    memchr::memchr(b' ', inside.trim_ascii()).is_some()
}

/// Returns true if a line of a file shows this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let mut words = Words(line);
    let is_number = |text: &[u8]| number("", text).is_ok();
    let mut next = || words.next().unwrap_or_default();
    let (device, cpu, time) = (next(), next(), next());
    let time = if is_number(time) { next() } else { time };
    is_device(device) && is_number(cpu) && nanoseconds(time).is_ok()
}

/// Whether a word is `major,minor`.
pub(super) fn is_device(word: &[u8]) -> bool {
    let Some(comma) = memchr::memchr(b',', word) else { return false };
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number(&word[..comma]) && is_number(&word[comma + 1..])
}

/// Whether a line is one of those that blkparse prints before and behind the steps.
pub(crate) fn is_total(line: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 17] = [
        b"CPU",
        b"Total",
        b"Reads Queued:",
        b"Read Dispatches:",
        b"Reads Requeued:",
        b"Reads Completed:",
        b"Read Merges:",
        b"Read depth:",
        b"PC ",
        b"IO unplugs:",
        b"Allocation wait:",
        b"Dispatch wait:",
        b"Completion wait:",
        b"Throughput",
        b"Events (",
        b"Skips:",
        b"Input file ",
    ];
    let text = line.trim_ascii();
    let is_program = || {
        let number = text.strip_suffix(b")").and_then(|text| text.rsplit(|byte| *byte == b'(').next());
        number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
    };
    BEGINNINGS.iter().any(|beginning| text.starts_with(beginning)) || is_program()
}

/// Returns the kind of a request by `rwbs`, its letters; flags such as S (sync) are ignored. `length` may be in any unit.
pub(super) fn kind_of(rwbs: &[u8], length: u64) -> Option<EventKind> {
    if rwbs.strip_prefix(b"F").unwrap_or(rwbs).starts_with(b"Z") {
        // A command on zones (`blk_fill_rwbs` of Linux 6.18). Most move no data, and appends have no address before
        // they end.
        return None;
    }
    if length == 0 && memchr::memchr(b'D', rwbs).is_none() {
        // blkparse writes the flush of a write as FN.
        return memchr::memchr(b'F', rwbs).map(|_| EventKind::Flush);
    }
    operation::kind(rwbs, length)
}

/// The text in the brackets at the end of a line; empty if there are none.
pub(super) fn bracket(text: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'[', text) else { return &[] };
    let close = memchr::memrchr(b']', text).filter(|close| *close > open).unwrap_or(text.len());
    &text[open + 1..close]
}

/// The name of a process; blkparse writes `(null)` or `unknown` for one that it does not know.
pub(super) fn process(name: &[u8]) -> Comm {
    Comm::new(if matches!(name, b"(null)" | b"unknown") { &[] } else { name })
}

/// The errno in a completion. blkparse writes the 16 bits of its record without a sign: 65531 for -5.
pub(super) fn errno(text: &[u8]) -> Result<u16, RowError> {
    let wrong = || unknown("error", text, "is no errno");
    let value = number("error", text.strip_prefix(b"-").unwrap_or(text))?;
    let value = u16::try_from(value).map_err(|_| wrong())?;
    Ok((value as i16).unsigned_abs())
}

/// The number of a task; 0 for what is no number.
pub(super) fn pid_of(text: &[u8]) -> u32 {
    number("pid", text).ok().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default()
}

fn nanoseconds(time: &[u8]) -> Result<u64, RowError> {
    let wrong = || unknown("time", time, "is not seconds with 9 decimals");
    let dot = time.len().checked_sub(10).filter(|dot| time[*dot] == b'.').ok_or_else(wrong)?;
    let (seconds, decimals) = (&time[..dot], &time[dot + 1..]);
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
            ("FN", 0, Some(EventKind::Flush)),
            ("FWS", 0, Some(EventKind::Flush)),
            ("WS", 0, None),
            ("D", 0, None),
            ("DS", 8, Some(EventKind::Discard)),
            ("DE", 8, Some(EventKind::SecureErase)),
            ("N", 0, None),
            ("NS", 8, Some(EventKind::WriteZeroes)),
            ("WZS", 8, Some(EventKind::WriteZeroes)),
            ("ZAS", 8, None),
            ("FZA", 8, None),
            ("ZR", 524_288, None),
            ("ZRA", 524_288, None),
            ("ZF", 0, None),
        ] {
            assert_eq!(kind_of(rwbs.as_bytes(), length), kind, "{rwbs}");
        }
    }

    #[test]
    fn errors_are_read_with_and_without_sign() {
        for (text, errno) in [("0", 0), ("-5", 5), ("5", 5), ("65531", 5), ("65426", 110)] {
            assert_eq!(super::errno(text.as_bytes()).unwrap(), errno, "{text}");
        }
        assert!(errno(b"65536").is_err() && errno(b"x").is_err());
    }

    #[test]
    fn brackets_in_the_names_of_processes_belong_to_them() {
        for (text, name) in [
            (" [fio]", "fio"),
            (" (  640305) [0]", "0"),
            (" [a[1]]", "a[1]"),
            (" [x] y]", "x] y"),
            (" [fio] 1", "fio"),
            ("", ""),
        ] {
            assert_eq!(bracket(text.as_bytes()), name.as_bytes(), "{text}");
        }
    }
}
