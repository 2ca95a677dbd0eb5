//! The text of the kernel's `trace` file (ftrace), as `trace-cmd report`, `perf script` and AOSP's tools write it, too:
//! block and mmc events, and the lines of the `blk` tracer.
//!
//! Lines of `process-pid [cpu] flags seconds.microseconds: event: fields`, perhaps with the thread group in
//! parentheses before the processor, and without the flags in old kernels (Documentation/trace/ftrace.rst). perf has a
//! space before the pid, and `block:` before the event; with `-F`, the processor may be missing, and a number of events
//! come before the event's name.
//! Block events have `major,minor rwbs [bytes (command)] sector + sectors [priority] [process or error]`
//! (include/trace/events/block.h). mmc events are read by the module `mmc`. If a trace has both, the layer of
//! the first event is taken and the other one skipped, since both report the same requests. The `blk` tracer has what
//! blkparse writes behind the time, or with `blk_classic` instead of the whole line (kernel/trace/blktrace.c).

use trimtab_core::trace::{Comm, EventKind};

use super::blkparse::{self, Blkparse, Entry, OTHER_COMMANDS, StepText, errno, is_device, kind_of};
use super::mmc::{self, Mmc};
use super::requests::{Action, Requests, Step};
use crate::error::RowError;
use crate::parse::{Content, Notes, Parse, Parsed};
use crate::rows::Rows;
use crate::scan::{Cursor, Field, Words};
use crate::text::{number, scaled, seconds, unknown};

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
    layer: Option<Layer>,
    mmc: Mmc,
    /// Parses lines of the `blk` tracer with `blk_classic`.
    classic: Blkparse,
}

/// The content of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Line {
    /// An event of a request.
    Step(Step),
    /// A line of the `blk` tracer.
    Tracer(Entry),
    /// One with `blk_classic`.
    Classic(blkparse::Line),
    /// The kernel dropped as many events.
    Lost(u64),
}

/// The requests under way.
#[derive(Default)]
pub(crate) struct State {
    requests: Requests,
    /// The actions of lines with `blk_classic`.
    classic: Requests,
    /// Whether it has lines of the `blk` tracer.
    has_tracer: bool,
}

/// A line with an event.
pub(super) struct Event<'a> {
    /// The text before the processor.
    before: &'a [u8],
    /// Nanoseconds.
    pub(super) time: u64,
    /// The event's name; empty in lines of the `blk` tracer.
    pub(super) name: &'a [u8],
    /// The words behind the name.
    words: Words<'a>,
}

impl<'a> Event<'a> {
    /// The event in a line; `None` if the line has another shape.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let by_processor = split_at_processor(line).and_then(|(before, after)| Self::behind(before, after));
        by_processor.or_else(|| {
            let (before, after) = split_at_time(line)?;
            Self::behind(without_flags(before), after)
        })
    }

    /// The event behind the process and the processor.
    fn behind(before: &'a [u8], after: &'a [u8]) -> Option<Self> {
        let mut words = Words::of(after);
        let mut stamp = words.next()?.text;
        if !is_stamp(stamp) {
            stamp = words.next()?.text;
            if !is_stamp(stamp) {
                return None;
            }
        }
        let time = seconds("time", &stamp[..stamp.len() - 1]).ok()?;
        let mut before_name = words.clone();
        let mut name = words.next()?;
        if name.is_number() {
            // perf's number of events.
            before_name = words.clone();
            name = words.next()?;
        }
        match name.text.strip_suffix(b":") {
            Some(name) => {
                let name = memchr::memrchr(b':', name).map_or(name, |colon| &name[colon + 1..]);
                Some(Self { before, time, name, words })
            }
            None => is_device(name.text).then_some(Self { before, time, name: &[], words: before_name }),
        }
    }

    /// Returns the name of the process.
    pub(super) fn process(&self) -> &'a [u8] {
        process_of(self.before).0
    }

    /// Returns the number of the task.
    fn pid(&self) -> u32 {
        process_of(self.before).1
    }

    /// Returns the text behind the name.
    pub(super) fn text(&self) -> &'a [u8] {
        self.words.rest().trim_ascii()
    }
}

fn is_stamp(word: &[u8]) -> bool {
    word.ends_with(b":") && memchr::memchr(b'.', word).is_some()
}

/// The text before the processor and the flags, as `trace-cmd report -l` writes them: `1d..2`.
fn without_flags(before: &[u8]) -> &[u8] {
    let before = before.trim_ascii();
    let start = before.iter().rposition(u8::is_ascii_whitespace).map_or(0, |blank| blank + 1);
    let has_flags = start > 0 && before[start].is_ascii_digit() && before[start..].contains(&b'.');
    if has_flags { &before[..start] } else { before }
}

/// Splits a line before its time.
fn split_at_time(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut words = <Words>::of(line);
    let mut before = 0;
    while let Some(word) = words.next() {
        if word.text.first().is_some_and(u8::is_ascii_digit) && is_stamp(word.text) {
            return Some(line.split_at(before));
        }
        before = line.len() - words.rest().len();
    }
    None
}

/// Splits a line at `[cpu]`.
fn split_at_processor(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut start = 0;
    while let Some(open) = memchr::memchr(b'[', &line[start..]) {
        let before = &line[..start + open];
        start += open + 1;
        let rest = &line[start..];
        let digits = rest.iter().take(6).take_while(|byte| byte.is_ascii_digit()).count();
        if (1..6).contains(&digits) && rest.get(digits) == Some(&b']') {
            return Some((before, &rest[digits + 1..]));
        }
    }
    None
}

/// The name and the number in `process-pid`, `process-pid (group)` and `process pid`; no name in `<...>`.
pub(super) fn process_of(before: &[u8]) -> (&[u8], u32) {
    let before = before.trim_ascii();
    let group = if before.ends_with(b")") { memchr::memrchr(b'(', before) } else { None };
    let before = group.map_or(before, |group| before[..group].trim_ascii());
    let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (name, pid) = before.split_at(before.len() - digits);
    let name = match name {
        [name @ .., b'-'] => name,
        [.., b' ' | b'\t'] => name.trim_ascii_end(),
        _ => before,
    };
    let pid = number("pid", pid).ok().and_then(|pid| u32::try_from(pid).ok());
    (if name == b"<...>" { &[] } else { name }, pid.unwrap_or_default())
}

impl Parse for Ftrace {
    type Content = Line;

    #[inline(always)]
    fn quick(&mut self, line: &mut Cursor, notes: &mut Notes) -> Option<Parsed<Line>> {
        if self.layer != Some(Layer::Block) || line.rest().first() == Some(&b'#') {
            return None;
        }
        line.before(b'[')?;
        let before = line.rest().len();
        line.number_and(b']')?;
        (before - line.rest().len() <= 6).then_some(())?;
        line.spaces()?;
        if !line.is_at_digit() {
            let flags = line.word()?;
            (!flags.ends_with(b":")).then_some(())?;
            line.spaces()?;
        }
        let (time, _) = line.seconds()?;
        line.byte(b':')?;
        line.spaces()?;
        let name = line.word()?.strip_suffix(b":")?;
        let action = action_of(name.strip_prefix(b"block:").unwrap_or(name))?;
        line.spaces()?;
        let step = quick_step(line, time, action, notes)?;
        Some(Parsed::Content(Line::Step(step)))
    }

    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Line>, RowError> {
        if line.starts_with(b"#") {
            return Ok(Parsed::Skip("comments"));
        }
        if let Some(lost) = lost(line) {
            return Ok(Parsed::Content(Line::Lost(lost)));
        }
        let Some(event) = Event::parse(line) else {
            return self.other_line(line, notes);
        };
        if event.name.is_empty() {
            let mut words = event.words.clone();
            let mut next = || blkparse::next(&mut words);
            let (device, action) = (next()?.text, next()?.text);
            let text = StepText { device, time: event.time, pid: event.pid(), action, words };
            return Ok(Parsed::Content(Line::Tracer(text.entry(notes)?)));
        }
        let action = action_of(event.name);
        let layer = match action {
            Some(_) => Layer::Block,
            None if mmc::is_event(event.name) => Layer::Mmc,
            None => return Ok(Parsed::Skip("other events")),
        };
        if self.layer.is_none() && layer == Layer::Mmc {
            notes.gap("addresses of mmc events are taken as sectors of 512 bytes".to_owned());
        }
        if *self.layer.get_or_insert(layer) != layer {
            return Ok(Parsed::Skip("events of another layer for the same requests"));
        }
        let step = match action {
            Some(action) => block_step(&event, action, notes)?.ok_or(OTHER_COMMANDS),
            None => self.mmc.step(&event, notes)?.ok_or(mmc::OTHER),
        };
        Ok(match step {
            Ok(step) => Parsed::Content(Line::Step(step)),
            Err(what) => Parsed::Skip(what),
        })
    }
}

impl Content for Line {
    type State = State;

    fn take(&self, state: &mut State, rows: &mut Rows) -> Result<(), RowError> {
        if !state.has_tracer && matches!(self, Self::Tracer(_) | Self::Classic(_)) {
            state.has_tracer = true;
            rows.gap(blkparse::GAP.to_owned());
        }
        match self {
            Self::Step(step) => state.requests.step(step, rows),
            Self::Tracer(entry) => entry.take(&mut state.requests, rows),
            Self::Classic(line) => line.take(&mut state.classic, rows),
            Self::Lost(lost) => {
                rows.header.lost = rows.header.lost.saturating_add(*lost);
                rows.skip("lines about lost events");
                state.requests.give_up();
                Ok(())
            }
        }
    }

    fn end(state: &mut State, rows: &mut Rows) -> Result<(), RowError> {
        // Events have the numbers and addresses of disks; the tracer is attached to one, or to a partition.
        let classic = if state.has_tracer { blkparse::Line::end(&mut state.classic, rows) } else { Ok(()) };
        state.requests.end(rows).and(classic)
    }
}

impl Ftrace {
    /// Parses a line that is no event in ftrace's form.
    fn other_line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Line>, RowError> {
        let text = line.trim_ascii();
        if text.split(u8::is_ascii_whitespace).next().is_some_and(is_device) {
            return Ok(match self.classic.line(line, notes)? {
                Parsed::Content(line) => Parsed::Content(Line::Classic(line)),
                Parsed::Skip(what) => Parsed::Skip(what),
            });
        }
        let is_header = ["cpus=", "version = "].iter().any(|begin| text.starts_with(begin.as_bytes()))
            || text.starts_with(b"CPU") && text.ends_with(b"is empty");
        if is_header {
            Ok(Parsed::Skip("lines about the recording"))
        } else if is_call(line) {
            Ok(Parsed::Skip("lines of call chains"))
        } else if notes.line <= MOST_BEFORE && self.layer.is_none() && is_prelude(text) {
            Ok(Parsed::Skip("lines before the trace"))
        } else if let Some(time) = other_time(line) {
            Err(unknown(
                "time",
                time,
                "is no number of seconds: record with another clock, such as local or mono",
            ))
        } else {
            Err(unknown("line", line, "is no event of ftrace"))
        }
    }
}

/// The time in the line of an event that is a whole number: of jiffies, of the processor's cycles or of events, by the
/// recording's clock.
fn other_time(line: &[u8]) -> Option<&[u8]> {
    let (_, after) = split_at_processor(line)?;
    let mut stamps = Words::<true>::of(after).take(2).filter_map(|word| word.text.strip_suffix(b":"));
    stamps.find(|stamp| number("time", stamp).is_ok())
}

/// Whether a line is of a call chain: a function, as perf (`address function`) and ftrace (`=> function`) write them, or
/// what ftrace writes before them.
fn is_call(line: &[u8]) -> bool {
    let text = line.trim_ascii_start();
    let address = text.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    text.starts_with(b"=> ")
        || [&b"<stack trace>"[..], b"<user stack trace>"].iter().any(|end| text.ends_with(end))
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
fn block_step(event: &Event, action: Action, notes: &mut Notes) -> Result<Option<Step>, RowError> {
    let mut words = event.words.clone();
    let mut next = || {
        let Some(word) = words.next() else { return Err(RowError::Fields { wanted: 5 }) };
        Ok(word)
    };
    let (device, rwbs) = (next()?.text, next()?.text);
    let (mut sector, mut separator) = (Field::default(), next()?);
    while !matches!(separator.text, b"+" | b"/") {
        sector = separator;
        separator = next()?;
    }
    let mut sectors = next()?.number("sectors")?;
    if separator.text == b"/" {
        let past = sectors.checked_sub(sector.number("sector")?);
        sectors = past.ok_or_else(|| unknown("sector", event.text(), "is split before it"))?;
    }
    let length = scaled("sectors", sectors, 512)?;
    let Some(kind) = kind_of(rwbs, length) else {
        return Ok(None);
    };
    let bracket = blkparse::bracket(words.rest());
    let complete = action == Action::Complete;
    Ok(Some(Step {
        action,
        time: event.time,
        device: notes.device(device)?,
        kind,
        // A flush names no address, or one that means nothing.
        start: if kind == EventKind::Flush { 0 } else { scaled("sector", sector.number("sector")?, 512)? },
        length: if kind == EventKind::Flush { 0 } else { length },
        // Ranges of discards are put together by the task that queued them.
        pid: if kind == EventKind::Discard { event.pid() } else { 0 },
        process: if complete { Comm::default() } else { blkparse::process(bracket) },
        error: if complete { errno(bracket)? } else { 0 },
    }))
}

/// Parses the fields of a block event, and the end of the line.
#[inline(always)]
fn quick_step(line: &mut Cursor, time: u64, action: Action, notes: &mut Notes) -> Option<Step> {
    let device = line.word()?;
    line.spaces()?;
    let rwbs = line.word()?;
    line.spaces()?;
    let mut sector = None;
    while line.rest().first() != Some(&b'+') {
        sector = if line.is_at_digit() { Some(line.number()?) } else { None };
        if sector.is_none() {
            (line.word()? != b"/").then_some(())?;
        }
        line.spaces()?;
    }
    line.text(b"+ ")?;
    let length = line.number()?.checked_mul(512)?;
    line.byte(b' ')?;
    let bracket = blkparse::bracket(line.until(b'\n')?);
    let kind = kind_of(rwbs, length)?;
    let complete = action == Action::Complete;
    // Discards need the task, too.
    (kind != EventKind::Discard && (!complete || bracket == b"0")).then_some(())?;
    let is_flush = kind == EventKind::Flush;
    Some(Step {
        action,
        time,
        device: notes.known(device)?,
        kind,
        start: if is_flush { 0 } else { sector?.checked_mul(512)? },
        length: if is_flush { 0 } else { length },
        pid: 0,
        process: if complete { Comm::default() } else { blkparse::process(bracket) },
        error: 0,
    })
}

/// Returns true if the first line of a file shows this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    line.starts_with(b"# tracer:")
        || line.starts_with(b"cpus=")
        || is_prelude(line)
        || Event::parse(line).is_some()
}
