//! The text of the kernel's `trace` file (ftrace), as `trace-cmd report`, `perf script` and AOSP's tools write it, too:
//! block and mmc events, and the lines of the `blk` tracer.
//!
//! Lines of `process-pid [cpu] flags seconds.microseconds: event: fields`, perhaps with the thread group in
//! parentheses before the processor, and without the flags in old kernels (Documentation/trace/ftrace.rst). perf has a
//! space before the pid, and `block:` before the event.
//! Block events have `major,minor rwbs [bytes (command)] sector + sectors [priority] [process or error]`
//! (include/trace/events/block.h). mmc events are read by the module `mmc`. If a trace has both, the layer of
//! the first event is taken and the other one skipped, since both report the same requests. The `blk` tracer has what
//! blkparse writes behind the time, or with `blk_classic` instead of the whole line (kernel/trace/blktrace.c).

use trimtab_core::trace::{Comm, EventKind};

use super::blkparse::{self, Blkparse, OTHER_COMMANDS, StepText, Words, errno, is_device, kind_of, pid_of};
use super::mmc::{self, Mmc};
use super::requests::{Action, Requests, Step};
use crate::error::RowError;
use crate::rows::Rows;
use crate::text::{Parse, number, scaled, seconds, unknown};

/// The most lines that atrace writes before the trace.
const MOST_BEFORE: u64 = 16;

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
    /// Reads lines of the `blk` tracer with `blk_classic`.
    classic: Blkparse,
    /// Whether it has lines of the `blk` tracer.
    has_tracer: bool,
}

/// A line with an event.
pub(super) struct Event<'a> {
    pub(super) process: &'a [u8],
    pid: u32,
    /// Nanoseconds.
    pub(super) time: u64,
    /// The event's name; empty in lines of the `blk` tracer.
    pub(super) name: &'a [u8],
    pub(super) text: &'a [u8],
}

impl<'a> Event<'a> {
    /// The event in a line; none if the line has another shape.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let (before, after) = split_at_processor(line)?;
        let mut words = Words(after);
        let mut stamp = words.next().ok()?;
        if !is_stamp(stamp) {
            stamp = words.next().ok().filter(|word| is_stamp(word))?;
        }
        let time = seconds("time", &stamp[..stamp.len() - 1]).ok()?;
        let text = words.0.trim_ascii();
        let (process, pid) = process_of(before);
        let name = words.next().ok()?;
        if is_device(name) {
            return Some(Self { process, pid, time, name: &[], text });
        }
        let name = name.strip_suffix(b":")?;
        let name = name.rsplit(|byte| *byte == b':').next()?;
        Some(Self { process, pid, time, name, text: words.0.trim_ascii() })
    }
}

fn is_stamp(word: &[u8]) -> bool {
    word.ends_with(b":") && memchr::memchr(b'.', word).is_some()
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

/// The name and the number in `process-pid`, `process-pid (group)` and `process pid`; no name in `<...>`.
pub(super) fn process_of(before: &[u8]) -> (&[u8], u32) {
    let before = before.trim_ascii();
    let before = match memchr::memrchr(b'(', before) {
        Some(group) if before.ends_with(b")") => before[..group].trim_ascii(),
        _ => before,
    };
    let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (name, pid) = before.split_at(before.len() - digits);
    let name = match name {
        [name @ .., b'-'] => name,
        [.., b' ' | b'\t'] => name.trim_ascii_end(),
        _ => before,
    };
    (if name == b"<...>" { &[] } else { name }, pid_of(pid))
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
            self.requests.give_up();
            return Ok(());
        }
        let Some(event) = Event::parse(line) else {
            return self.other_line(line, rows);
        };
        if event.name.is_empty() {
            self.has_tracer = true;
            let mut words = Words(event.text);
            let (device, action) = (words.next()?, words.next()?);
            let text = StepText { device, time: event.time, pid: event.pid, action, rest: words.0 };
            return text.take(&mut self.requests, rows);
        }
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
        // Events have the numbers and addresses of disks; the tracer is attached to one, or to a partition.
        let classic = if self.has_tracer { self.classic.end(rows) } else { Ok(()) };
        self.requests.end(rows).and(classic)
    }
}

impl Ftrace {
    /// Takes a line that is no event in ftrace's form.
    fn other_line(&mut self, line: &[u8], rows: &mut Rows) -> Result<(), RowError> {
        let text = line.trim_ascii();
        if text.split(u8::is_ascii_whitespace).next().is_some_and(is_device) {
            self.has_tracer = true;
            return self.classic.line(line, rows);
        }
        let is_header = ["cpus=", "version = "].iter().any(|begin| text.starts_with(begin.as_bytes()))
            || text.starts_with(b"CPU") && text.ends_with(b"is empty");
        if is_header {
            rows.skip("lines about the recording");
        } else if is_call(line) {
            rows.skip("lines of call chains");
        } else if rows.counts.records <= MOST_BEFORE
            && rows.counts.events == 0
            && self.layer.is_none()
            && is_prelude(text)
        {
            rows.skip("lines before the trace");
        } else {
            return Err(unknown("line", line, "is no event of ftrace"));
        }
        Ok(())
    }
}

/// Whether a line is a function of a call chain, as perf (`address function`) and ftrace (`=> function`) write them.
fn is_call(line: &[u8]) -> bool {
    let text = line.trim_ascii_start();
    let address = text.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    text.starts_with(b"=> ")
        || line.starts_with(b"\t") && address.len() >= 4 && address.iter().all(u8::is_ascii_hexdigit)
}

/// Whether a line is one that atrace writes before the trace.
pub(crate) fn is_prelude(text: &[u8]) -> bool {
    text == b"TRACE:" || text.starts_with(b"capturing trace") || text == b"done"
}

/// The number in `CPU:1 [LOST 42 EVENTS]`, and in trace-cmd's `CPU:1 [3 EVENTS DROPPED]`; 1 if it is not said.
fn lost(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"CPU:")?;
    let inside = &rest[memchr::memchr(b'[', rest)? + 1..];
    let inside = &inside[..memchr::memchr(b']', inside)?];
    let is_loss = inside.starts_with(b"LOST ") || inside.ends_with(b"EVENTS DROPPED");
    let digits = inside.split(|byte| !byte.is_ascii_digit()).find(|digits| !digits.is_empty());
    is_loss.then(|| digits.map_or(Some(1), |digits| number("lost", digits).ok()))?
}

fn action_of(name: &[u8]) -> Option<Action> {
    Some(match name {
        b"block_bio_queue" => Action::Queue,
        b"block_split" => Action::Split,
        b"block_bio_backmerge" | b"block_bio_frontmerge" | b"block_rq_merge" => Action::Merge,
        b"block_rq_issue" => Action::Issue,
        b"block_rq_requeue" => Action::Requeue,
        b"block_rq_complete" | b"block_bio_complete" => Action::Complete,
        _ => return None,
    })
}

/// The step that a block event reports; none for other commands than reads, writes, discards and flushes.
fn block_step(event: &Event, action: Action, rows: &mut Rows) -> Result<Option<Step>, RowError> {
    let fields = |_| RowError::Fields { wanted: 5 };
    let mut words = Words(event.text);
    let (device, rwbs) = (words.next().map_err(fields)?, words.next().map_err(fields)?);
    let (mut sector, mut separator) = (&b""[..], words.next().map_err(fields)?);
    while !matches!(separator, b"+" | b"/") {
        sector = separator;
        separator = words.next().map_err(fields)?;
    }
    let mut sectors = number("sectors", words.next().map_err(fields)?)?;
    if separator == b"/" {
        let past = sectors.checked_sub(number("sector", sector)?);
        sectors = past.ok_or_else(|| unknown("sector", event.text, "is split before it"))?;
    }
    let length = scaled("sectors", sectors, 512)?;
    let Some(kind) = kind_of(rwbs, length) else {
        rows.skip(OTHER_COMMANDS);
        return Ok(None);
    };
    let bracket = blkparse::bracket(words.0);
    let complete = action == Action::Complete;
    Ok(Some(Step {
        action,
        time: event.time,
        device: rows.device(device)?,
        kind,
        // A flush names no address, or one that means nothing.
        start: if kind == EventKind::Flush { 0 } else { scaled("sector", number("sector", sector)?, 512)? },
        length: if kind == EventKind::Flush { 0 } else { length },
        pid: event.pid,
        process: if complete { Comm::default() } else { blkparse::process(bracket) },
        error: if complete { errno(bracket)? } else { 0 },
    }))
}

/// Returns true if the first line of a file shows this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    line.starts_with(b"# tracer:")
        || line.starts_with(b"cpus=")
        || is_prelude(line)
        || Event::parse(line).is_some()
}
