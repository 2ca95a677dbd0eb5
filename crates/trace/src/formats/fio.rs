//! The logs that fio writes with `write_iolog`, versions 1 to 3 (fio's manual, "Trace file format").
//!
//! Version 1: lines of `rw, offset, length`, 0 for a read and 1 for a write. Version 2: lines of
//! `file action [offset length]`; the action `wait` has the microseconds since the last wait. Version 3:
//! the same without `wait`, each line after the microseconds since the start. Offsets and lengths are in
//! bytes.

use trimtab_core::trace::EventKind;

use super::kinds::by_digit;
use crate::error::RowError;
use crate::parse::{Notes, Parse, Parsed};
use crate::rows::Row;
use crate::scan::{Cursor, Words, fields};
use crate::text::{scaled, unknown};

/// The name of the file of a log of version 1, which names none.
const FILE: &[u8] = b"file";
/// The action that lets time pass in a log of version 2.
const WAIT: &[u8] = b"wait";
/// The name under which it is counted.
const WAITS: &str = "waits";

/// The version of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
    Three,
}

pub(crate) struct Fio {
    version: Version,
    /// The microseconds waited so far.
    waited: u64,
}

impl Fio {
    pub(crate) const fn new(version: Version) -> Self {
        Self { version, waited: 0 }
    }
}

/// Returns the kind of a request that has a place.
#[inline]
fn kind_of(text: &[u8]) -> Option<EventKind> {
    Some(match text {
        b"read" => EventKind::Read,
        b"write" => EventKind::Write,
        b"trim" => EventKind::Discard,
        _ => return None,
    })
}

impl Parse for Fio {
    type Content = Row;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Row>> {
        let (time, file, kind, start);
        if self.version == Version::One {
            (time, file) = (0, FILE);
            kind = by_digit(line.until(b',')?)?;
            line.spaces();
            start = line.number_and(b',')?;
            line.spaces();
        } else {
            time = if self.version == Version::Three { line.number_and(b' ')? } else { self.waited };
            file = line.word_and(b' ')?;
            let action = line.word_and(b' ')?;
            if action == WAIT && self.version == Version::Two {
                let more = line.number()?;
                matches!(line.rest().first()?, b' ' | b'\n').then_some(())?;
                line.before(b'\n')?;
                self.waited = self.waited.checked_add(more)?;
                return Some(Parsed::Skip(WAITS));
            }
            kind = kind_of(action)?;
            start = line.number_and(b' ')?;
        }
        let length = line.number_and(b'\n')?;
        let (time, device) = (time.checked_mul(1000)?, notes.known(file)?);
        Some(Parsed::Content(Row { time, device, kind, start, length, ..Row::bare() }))
    }

    fn fork(&self) -> Option<Self> {
        // Waits add up from line to line.
        (self.version != Version::Two).then(|| Self::new(self.version))
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Row>, RowError> {
        if self.version == Version::One {
            let [rw, offset, length] = fields(line, b',')?;
            let kind = by_digit(rw.text).ok_or_else(|| unknown("rw", rw.text, "is neither 0 nor 1"))?;
            return request(notes, 0, FILE, kind, offset.number("offset")?, length.number("length")?);
        }
        if line.starts_with(b"fio version") {
            return Ok(Parsed::Skip("version lines"));
        }
        let mut words = Words::<false>::of(line);
        let mut next = || {
            let Some(word) = words.next() else { return Err(RowError::Fields { wanted: 2 }) };
            Ok(word)
        };
        let time = match self.version {
            Version::Three => next()?.number("timestamp")?,
            _ => self.waited,
        };
        let (file, action) = (next()?.text, next()?.text);
        if let Some(kind) = kind_of(action) {
            let (offset, length) = (next()?.number("offset")?, next()?.number("length")?);
            return request(notes, time, file, kind, offset, length);
        }
        match action {
            b"sync" | b"datasync" => request(notes, time, file, EventKind::Flush, 0, 0),
            WAIT if self.version == Version::Two => {
                let more = next()?.number("offset")?;
                self.waited = self.waited.checked_add(more).ok_or_else(|| too_long(more))?;
                Ok(Parsed::Skip(WAITS))
            }
            b"add" | b"open" | b"close" => Ok(Parsed::Skip("file actions")),
            b"sync_file_range" => Ok(Parsed::Skip("partial syncs")),
            _ => Err(unknown("action", action, "fio has no action of")),
        }
    }
}

fn too_long(waited: u64) -> RowError {
    unknown("offset", waited.to_string().as_bytes(), "is too long to wait")
}

fn request(
    notes: &mut Notes,
    microseconds: u64,
    file: &[u8],
    kind: EventKind,
    start: u64,
    length: u64,
) -> Result<Parsed<Row>, RowError> {
    let (time, device) = (scaled("timestamp", microseconds, 1000)?, notes.device(file)?);
    Ok(Parsed::Content(Row { time, device, kind, start, length, ..Row::bare() }))
}
