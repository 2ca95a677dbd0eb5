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
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, operation};

use super::partitions::{self, Number, Remap, numbers};
use super::requests::{Action, Requests, Step};
use crate::error::RowError;
use crate::parse::{Content, Notes, Parse, Parsed};
use crate::rows::Rows;
use crate::scan::{Cursor, Field, Words};
use crate::text::{number, scaled, unknown};

/// The name under which commands that are no events are counted.
pub(super) const OTHER_COMMANDS: &str = "commands that are no reads, writes, discards or flushes";
/// The name under which steps that are no events are counted.
pub(super) const OTHER_STEPS: &str = "other steps and messages";

/// The operations that the letters of blktrace do not tell apart.
pub(crate) const GAP: &str = "blktrace reports secure erases as discards, and write-zeroes as writes";

#[derive(Default)]
pub(crate) struct Blkparse {
    /// Totals were read since the last line of a run.
    totals: bool,
    /// The time at which the run began whose lines are read, and the latest time.
    run_began: u64,
    latest: u64,
    /// The device of the last line.
    device: Vec<u8>,
}

/// The content of a line with a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    /// The line is the first of another run.
    begins_run: bool,
    entry: Entry,
}

/// A step, in the numbers of this crate.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entry {
    Step(Step),
    /// A remap from the device of the line.
    Partition(Remap, DeviceIndex),
    /// A remap from another device to the line's device.
    Remap(Remap, Number),
    /// Nothing; the name under which it is counted.
    Skip(&'static str),
}

impl Parse for Blkparse {
    type Content = Line;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Line>> {
        if self.totals || self.device.is_empty() {
            return None;
        }
        line.text(&self.device)?;
        line.spaces()?;
        let _cpu = line.number()?;
        line.spaces()?;
        let mut stamp = *line;
        let (time, decimals) = match stamp.seconds() {
            Some(time) => time,
            None => {
                stamp = *line;
                let _sequence = stamp.number()?;
                stamp.spaces()?;
                stamp.seconds()?
            }
        };
        *line = stamp;
        line.spaces()?;
        let time = time.checked_add(self.run_began).filter(|_| decimals == 9)?;
        let pid = u32::try_from(line.number()?).ok()?;
        line.spaces()?;
        let action = line.word()?;
        let entry = match action_of(action) {
            Some(action) => {
                line.spaces()?;
                Entry::Step(quick_step(line, time, pid, action, notes.known(&self.device)?)?)
            }
            None if action == REMAP => return None,
            None => {
                line.before(b'\n')?;
                Entry::Skip(OTHER_STEPS)
            }
        };
        self.latest = self.latest.max(time);
        Some(Parsed::Content(Line { begins_run: false, entry }))
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Line>, RowError> {
        let mut words = Words::of(line);
        let device = next(&mut words)?.text;
        if device != self.device && !is_device(device) {
            if !is_total(line) {
                return Err(unknown("device", device, "is no major and minor number"));
            }
            // A file name that was read first is no total.
            self.totals |= self.latest > 0 || !line.starts_with(b"Input file");
            return Ok(Parsed::Skip("lines of totals"));
        }
        let begins_run = std::mem::take(&mut self.totals);
        if begins_run {
            self.run_began = self.latest;
        }
        let _cpu = next(&mut words)?;
        let mut time = next(&mut words)?;
        if memchr::memchr(b'.', time.text).is_none() {
            time = next(&mut words)?;
        }
        let Some(time) = nanoseconds(time.text)?.checked_add(self.run_began) else {
            return Err(RowError::TooLong { time: u64::MAX });
        };
        self.latest = self.latest.max(time);
        let pid = pid_of(next(&mut words)?);
        let action = next(&mut words)?.text;
        // A remap may have the number of another device than the lines around it.
        if action != REMAP && device != self.device {
            self.device.clear();
            self.device.extend_from_slice(device);
        }
        let text = StepText { device, time, pid, action, words };
        Ok(Parsed::Content(Line { begins_run, entry: text.entry(notes)? }))
    }
}

impl Content for Line {
    type State = Requests;

    fn take(&self, requests: &mut Requests, rows: &mut Rows) -> Result<(), RowError> {
        if self.begins_run {
            requests.end(rows)?;
            *requests = Requests::default();
            rows.gap(format!(
                "the output of another run begins at line {}: its times are counted on from the end of the run before",
                rows.counts.records
            ));
        }
        self.entry.take(requests, rows)
    }

    fn end(requests: &mut Requests, rows: &mut Rows) -> Result<(), RowError> {
        partitions::name_gaps(rows);
        requests.end(rows)
    }
}

impl Entry {
    pub(super) fn take(&self, requests: &mut Requests, rows: &mut Rows) -> Result<(), RowError> {
        match self {
            Self::Step(step) => requests.step(step, rows),
            Self::Partition(remap, device) => {
                rows.skip(REMAPS);
                remap.take(remap.from, *device, rows)
            }
            Self::Remap(remap, on) => {
                rows.skip(REMAPS);
                requests.remap(*remap, *on);
                Ok(())
            }
            Self::Skip(what) => {
                rows.skip(what);
                Ok(())
            }
        }
    }
}

/// Returns the next word of a line that needs one more.
#[inline(always)]
pub(super) fn next<'a>(words: &mut Words<'a>) -> Result<Field<'a>, RowError> {
    let Some(word) = words.next() else { return Err(RowError::Fields { wanted: 7 }) };
    Ok(word)
}

/// A step as blkparse and the `blk` tracer write it.
pub(super) struct StepText<'a> {
    pub(super) device: &'a [u8],
    /// Nanoseconds.
    pub(super) time: u64,
    pub(super) pid: u32,
    pub(super) action: &'a [u8],
    /// The letters of the operation, and the words behind them.
    pub(super) words: Words<'a>,
}

impl StepText<'_> {
    pub(super) fn entry(self, notes: &mut Notes) -> Result<Entry, RowError> {
        if self.action == REMAP {
            return self.remap(notes);
        }
        let Some(action) = action_of(self.action) else { return Ok(Entry::Skip(OTHER_STEPS)) };
        let mut words = self.words.clone();
        let rwbs = next(&mut words)?.text;
        let (mut start, mut length, mut behind) = (0, 0, words.rest());
        let mut is_command = false;
        if let Some(word) = words.next()
            && !word.text.starts_with(b"[")
        {
            is_command = word.text.starts_with(b"(") && is_payload(behind);
            if !word.text.starts_with(b"(") {
                start = word.number("sector")?;
                behind = words.rest();
                let separator = words.next().map(|word| word.text);
                match separator {
                    Some(b"+") => length = next(&mut words)?.number("sectors")?,
                    Some(b"/") => {
                        let past = next(&mut words)?.number("sector")?;
                        length = past
                            .checked_sub(start)
                            .ok_or_else(|| unknown("sector", self.words.rest(), "is split before it"))?;
                    }
                    _ => is_command = is_payload(behind),
                }
                if matches!(separator, Some(b"+" | b"/")) {
                    behind = words.rest();
                }
            }
        }
        let Some(kind) = kind_of(rwbs, length).filter(|_| !is_command) else {
            return Ok(Entry::Skip(OTHER_COMMANDS));
        };
        let complete = action == Action::Complete;
        let bracket = bracket(behind);
        Ok(Entry::Step(Step {
            action,
            time: self.time,
            device: notes.device(self.device)?,
            kind,
            start: if kind == EventKind::Flush { 0 } else { scaled("sector", start, SECTOR.0)? },
            length: scaled("sectors", length, SECTOR.0)?,
            pid: self.pid,
            process: if complete { Comm::default() } else { process(bracket) },
            error: if complete { errno(bracket)? } else { 0 },
        }))
    }

    /// A remap says where a partition begins: `sector + sectors <- (major,minor) sector`.
    fn remap(self, notes: &mut Notes) -> Result<Entry, RowError> {
        let mut words = self.words;
        let mut next = || next(&mut words);
        let [_rwbs, to, plus, _sectors, arrow, from_device, from_place] =
            [next()?, next()?, next()?, next()?, next()?, next()?, next()?];
        let from_device = from_device.text.strip_prefix(b"(").and_then(|rest| rest.strip_suffix(b")"));
        let (Some(from), Some(on)) = (from_device.and_then(numbers), numbers(self.device)) else {
            return Ok(Entry::Skip(REMAPS));
        };
        if plus.text != b"+" || arrow.text != b"<-" {
            return Ok(Entry::Skip(REMAPS));
        }
        let (sector, from_sector) = (to.number("sector")?, from_place.number("sector")?);
        let remap = Remap { from, from_sector, sector };
        Ok(if from == on {
            Entry::Partition(remap, notes.device(self.device)?)
        } else {
            Entry::Remap(remap, on)
        })
    }
}

/// The name under which remaps are counted.
const REMAPS: &str = "remaps";
/// The action of a remap.
const REMAP: &[u8] = b"A";

/// Returns the step that an action is; none for others, and for remaps.
#[inline]
const fn action_of(action: &[u8]) -> Option<Action> {
    Some(match action {
        b"Q" => Action::Queue,
        b"X" => Action::Split,
        b"M" | b"F" => Action::Merge,
        b"D" => Action::Issue,
        b"R" => Action::Requeue,
        b"C" => Action::Complete,
        _ => return None,
    })
}

/// Parses `rwbs sector + sectors [process or error]`, and the end of the line.
#[inline(always)]
fn quick_step(line: &mut Cursor, time: u64, pid: u32, action: Action, device: DeviceIndex) -> Option<Step> {
    let rwbs = line.word()?;
    line.spaces()?;
    let sector = line.number()?;
    line.text(b" + ")?;
    let length = line.number()?.checked_mul(SECTOR.0)?;
    line.text(b" [")?;
    let bracket = line.until(b'\n')?.strip_suffix(b"]")?;
    let kind = kind_of(rwbs, length)?;
    let complete = action == Action::Complete;
    (!complete || bracket == b"0").then_some(())?;
    Some(Step {
        action,
        time,
        device,
        kind,
        start: if kind == EventKind::Flush { 0 } else { sector.checked_mul(SECTOR.0)? },
        length,
        pid,
        process: if complete { Comm::default() } else { process(bracket) },
        error: 0,
    })
}

/// Whether a text begins with the bytes of a command in parentheses, rather than with a time.
fn is_payload(text: &[u8]) -> bool {
    let inside = text.trim_ascii_start().strip_prefix(b"(").unwrap_or_default();
    let inside = &inside[..memchr::memchr(b')', inside).unwrap_or(0)];
    memchr::memchr(b' ', inside.trim_ascii()).is_some()
}

/// Returns true if a line of a file shows this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let mut words = <Words>::of(line);
    let mut next = || words.next().unwrap_or_default();
    let (device, cpu, time) = (next(), next(), next());
    let time = if time.is_number() { next() } else { time };
    is_device(device.text) && cpu.is_number() && nanoseconds(time.text).is_ok()
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
pub(super) fn pid_of(word: Field) -> u32 {
    word.number("pid").ok().and_then(|pid| u32::try_from(pid).ok()).unwrap_or_default()
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
