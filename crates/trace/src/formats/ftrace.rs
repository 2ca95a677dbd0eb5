//! The text of the kernel's `trace` file (ftrace), as AOSP's tools pull it from phones: block and mmc events.
//!
//! Lines of `process-pid [cpu] flags seconds.microseconds: event: fields`, perhaps with the thread group in
//! parentheses before the processor, and without the flags in old kernels (Documentation/trace/ftrace.rst).
//! Block events have `major,minor rwbs [bytes (command)] sector + sectors [priority] [process or error]`
//! (include/trace/events/block.h). mmc events are read by the module `mmc`. If a trace has both, the layer of
//! the first event is taken and the other one skipped, since both report the same requests.

use std::mem;

use trimtab_core::trace::{Comm, EventKind};

use super::blkparse::{errno, kind_of};
use super::mmc::{self, Mmc};
use super::requests::{Action, Requests, Step};
use crate::error::RowError;
use crate::rows::Rows;
use crate::text::{Parse, number, scaled, seconds, unknown};

/// The layer whose events are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Block,
    Mmc,
}

#[derive(Default)]
pub(crate) struct Ftrace {
    requests: Requests,
    layer: Option<Layer>,
    mmc: Mmc,
}

/// A line with an event.
pub(super) struct Event<'a> {
    pub(super) process: &'a [u8],
    /// Nanoseconds.
    pub(super) time: u64,
    pub(super) name: &'a [u8],
    pub(super) text: &'a [u8],
}

impl<'a> Event<'a> {
    /// The event in a line; none if the line has another shape.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let (before, after) = split_at_processor(line)?;
        let mut words = after.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let stamp = words.by_ref().take(2).find(|word| word.contains(&b'.') && word.ends_with(b":"))?;
        let time = seconds("time", &stamp[..stamp.len() - 1]).ok()?;
        let name = words.next()?.strip_suffix(b":")?;
        let end = name.as_ptr() as usize - line.as_ptr() as usize + name.len() + 1;
        Some(Self { process: process_of(before), time, name, text: line.get(end..)?.trim_ascii() })
    }
}

/// Splits a line at `[cpu]`.
fn split_at_processor(line: &[u8]) -> Option<(&[u8], &[u8])> {
    memchr::memchr_iter(b'[', line).find_map(|open| {
        let rest = &line[open + 1..];
        let close = memchr::memchr(b']', rest)?;
        let is_processor = close > 0 && close < 6 && rest[..close].iter().all(u8::is_ascii_digit);
        is_processor.then(|| (&line[..open], &rest[close + 1..]))
    })
}

/// The name in `process-pid` or `process-pid (group)`; none in `<...>`.
pub(super) fn process_of(before: &[u8]) -> &[u8] {
    let before = before.trim_ascii();
    let before = match memchr::memrchr(b'(', before) {
        Some(group) if before.ends_with(b")") => before[..group].trim_ascii(),
        _ => before,
    };
    let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let name = before[..before.len() - digits].strip_suffix(b"-").unwrap_or(before);
    if name == b"<...>" { &[] } else { name }
}

impl Parse for Ftrace {
    fn line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        if line.starts_with(b"#") {
            rows.skip("comments");
            return Ok(());
        }
        if let Some(lost) = lost(line) {
            rows.header.lost = rows.header.lost.saturating_add(lost);
            rows.skip("lines about lost events");
            return Ok(());
        }
        let Some(event) = Event::parse(line) else {
            return Err(unknown("line", line, "is no event of ftrace"));
        };
        let layer = match action_of(event.name) {
            Some(_) => Layer::Block,
            None if mmc::is_event(event.name) => Layer::Mmc,
            None => {
                rows.skip("other events");
                return Ok(());
            }
        };
        if *self.layer.get_or_insert(layer) != layer {
            rows.skip("events of another layer for the same requests");
            return Ok(());
        }
        let step = match action_of(event.name) {
            Some(action) => block_step(&event, action, rows)?,
            None => self.mmc.step(&event, rows)?,
        };
        match step {
            Some(step) => self.requests.step(&step, rows),
            None => Ok(()),
        }
    }

    fn end(&mut self, rows: &mut Rows) -> Result<(), RowError> {
        mem::take(&mut self.requests).end(rows)
    }
}

/// The number in `CPU:1 [LOST 42 EVENTS]`.
fn lost(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"CPU:")?;
    let start = memchr::memmem::find(rest, b"[LOST ")? + b"[LOST ".len();
    let digits = rest[start..].split(|byte| !byte.is_ascii_digit()).next()?;
    number("lost", digits).ok()
}

fn action_of(name: &[u8]) -> Option<Action> {
    Some(match name {
        b"block_bio_queue" => Action::Queue,
        b"block_bio_backmerge" | b"block_bio_frontmerge" => Action::Merge,
        b"block_rq_issue" => Action::Issue,
        b"block_rq_requeue" => Action::Requeue,
        b"block_rq_complete" | b"block_bio_complete" => Action::Complete,
        _ => return None,
    })
}

/// The step that a block event reports; none for other commands than reads, writes, discards and flushes.
fn block_step(event: &Event, action: Action, rows: &mut Rows) -> Result<Option<Step>, RowError> {
    let wrong = || RowError::Fields { wanted: 5 };
    let mut words = event.text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (device, rwbs) = (words.next().ok_or_else(wrong)?, words.next().ok_or_else(wrong)?);
    let mut sector: &[u8] = &[];
    for word in words.by_ref().take_while(|word| *word != b"+") {
        sector = word;
    }
    let sectors = words.next().ok_or_else(wrong)?;
    let length = scaled("sectors", number("sectors", sectors)?, 512)?;
    let Some(kind) = kind_of(rwbs, length) else {
        rows.skip("commands that are no reads, writes, discards or flushes");
        return Ok(None);
    };
    let bracket = memchr::memrchr(b'[', event.text).map_or(&[][..], |at| &event.text[at + 1..]);
    let bracket = bracket.strip_suffix(b"]").unwrap_or(bracket);
    let complete = action == Action::Complete;
    Ok(Some(Step {
        action,
        time: event.time,
        device: rows.device(device)?,
        kind,
        // A flush names no address, or one that means nothing.
        start: if kind == EventKind::Flush { 0 } else { scaled("sector", number("sector", sector)?, 512)? },
        length: if kind == EventKind::Flush { 0 } else { length },
        process: if complete { Comm::default() } else { Comm::new(bracket) },
        error: if complete { errno(bracket)? } else { 0 },
    }))
}

/// Returns true if the first line of a file shows this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    line.starts_with(b"# tracer:") || Event::parse(line).is_some()
}
