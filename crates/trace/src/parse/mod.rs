//! Reading traces that are lines of text. One thread reads and parses lines; the caller's makes events of them.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;
use std::time::Duration;

use trimtab_core::trace::DeviceIndex;

use crate::error::{RowError, TraceError};
use crate::input::{self, Lines};
use crate::reader::{RecordReader, Records};
use crate::rows::{DeviceNames, Row, Rows};
use crate::scan::Cursor;

/// The lines of a block.
const BLOCK: usize = 1024;
/// Blocks that wait for the caller, at most.
const MOST_AHEAD: usize = 4;

/// The grammar of a format.
pub(crate) trait Parse: Send + 'static {
    /// The content of a line.
    type Content: Content;

    /// Parses the line at hand if it is laid out as the format's programs write it, and takes it with its end. If it
    /// returns none, [`line`](Self::line) parses the line, whatever was taken. Both have the same result where both have
    /// one, and this one changes nothing unless it has one. Implementations are inlined into the loop over lines: contents
    /// that are copied through memory soon after they were written make the processor wait.
    fn quick(&mut self, _line: &mut Cursor, _notes: &mut Notes) -> Option<Parsed<Self::Content>> {
        None
    }

    /// Parses a line that isn't empty.
    fn line(&mut self, line: &[u8], notes: &mut Notes) -> Result<Parsed<Self::Content>, RowError>;
}

/// A parsed line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Parsed<C> {
    /// Its content.
    Content(C),
    /// The line makes no event; the name under which it is counted.
    Skip(&'static str),
}

/// The content of a line, which is taken in the order of lines.
pub(crate) trait Content: Copy + Send + 'static {
    /// The state from one line to the next.
    type State: Default + Send;

    /// Takes the content of the next line in.
    fn take(&self, state: &mut Self::State, rows: &mut Rows) -> Result<(), RowError>;

    /// Takes the end of the text.
    fn end(state: &mut Self::State, rows: &mut Rows) -> Result<(), RowError>;
}

impl Content for Row {
    type State = ();

    fn take(&self, (): &mut (), rows: &mut Rows) -> Result<(), RowError> {
        rows.push(self)
    }

    fn end((): &mut (), _rows: &mut Rows) -> Result<(), RowError> {
        Ok(())
    }
}

/// Facts about the whole trace that lines show.
#[derive(Default)]
pub(crate) struct Notes {
    /// The number of the line at hand; the first is 1.
    pub(crate) line: u64,
    devices: DeviceNames,
    clock_is_set: bool,
    /// The notes of the block, each with the place of its line.
    notes: Vec<(usize, Note)>,
    place: usize,
}

/// A fact for the header.
#[derive(Debug)]
enum Note {
    Device(Vec<u8>),
    FileSystem(Vec<u8>),
    Clock(Duration),
    Gap(String),
}

impl Notes {
    /// Returns the device of a name, which the header names from now on.
    pub(crate) fn device(&mut self, name: &[u8]) -> Result<DeviceIndex, RowError> {
        let (device, is_new) = self.devices.find(name)?;
        if is_new {
            self.add(Note::Device(name.to_owned()));
        }
        Ok(device)
    }

    /// Returns the device of a name that is known.
    #[inline]
    pub(crate) fn known(&mut self, name: &[u8]) -> Option<DeviceIndex> {
        self.devices.known(name)
    }

    /// Returns none until it is known when the trace began.
    #[inline]
    pub(crate) fn clock(&self) -> Option<()> {
        self.clock_is_set.then_some(())
    }

    /// Adds a file system to the header.
    pub(crate) fn add_file_system(&mut self, mount_point: &[u8]) {
        self.add(Note::FileSystem(mount_point.to_owned()));
    }

    /// Says in the header when the trace began; later calls change nothing.
    #[inline]
    pub(crate) fn set_clock(&mut self, since_1970: Duration) {
        if !self.clock_is_set {
            self.clock_is_set = true;
            self.add(Note::Clock(since_1970));
        }
    }

    /// Names a gap in the header, once.
    pub(crate) fn gap(&mut self, gap: String) {
        self.add(Note::Gap(gap));
    }

    #[cold]
    fn add(&mut self, note: Note) {
        self.notes.push((self.place, note));
    }
}

impl Note {
    fn take(self, rows: &mut Rows) -> Result<(), RowError> {
        match self {
            Self::Device(name) => _ = rows.device(&name)?,
            Self::FileSystem(name) => rows.add_file_system(&name),
            Self::Clock(since_1970) => rows.set_clock(since_1970),
            Self::Gap(gap) => rows.gap(gap),
        }
        Ok(())
    }
}

/// Consecutive lines.
struct Block<C> {
    lines: Vec<Parsed<C>>,
    /// With the places of their lines.
    notes: Vec<(usize, Note)>,
    /// None if more lines follow.
    end: Option<End>,
}

/// The end of the parsed lines.
enum End {
    Text,
    /// The next line can't be parsed.
    Line(RowError),
    /// The next line can't be read.
    Input(io::Error),
}

/// Opens the text at `path`, which has the grammar of `parser`.
pub(crate) fn open<P: Parse>(
    path: &Path,
    parser: P,
    rows: Rows,
) -> Result<RecordReader<Text<P::Content>>, TraceError> {
    let text = input::open(path).and_then(|input| Text::new(Lines::new(input), parser));
    let text = text.map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
    Ok(RecordReader::new(path, text, rows))
}

/// The parser and its input, in a thread of their own. The thread ends at the end of the text, or when the receiver of
/// blocks is dropped.
struct Parser<P: Parse> {
    lines: Lines,
    parser: P,
    notes: Notes,
    blocks: SyncSender<Block<P::Content>>,
    /// Blocks whose lines were taken.
    used: Receiver<Vec<Parsed<P::Content>>>,
}

impl<P: Parse> Parser<P> {
    fn run(mut self) {
        loop {
            let block = self.block();
            let is_last = block.end.is_some();
            if self.blocks.send(block).is_err() || is_last {
                break;
            }
        }
    }

    fn block(&mut self) -> Block<P::Content> {
        let mut lines = self.used.try_recv().unwrap_or_else(|_| Vec::with_capacity(BLOCK));
        lines.clear();
        let mut end = None;
        while lines.len() < BLOCK && end.is_none() {
            self.notes.place = lines.len();
            match self.line() {
                Ok(line) => lines.push(line),
                Err(reason) => end = Some(reason),
            }
        }
        Block { lines, notes: std::mem::take(&mut self.notes.notes), end }
    }

    #[inline]
    fn line(&mut self) -> Result<Parsed<P::Content>, End> {
        let unread = self.lines.unread();
        let mut cursor = Cursor::of(unread);
        if let Some(line) = self.parser.quick(&mut cursor, &mut self.notes) {
            let length = unread.len() - cursor.rest().len();
            self.lines.pass(length);
            self.notes.line += 1;
            return Ok(line);
        }
        self.full_line()
    }

    fn full_line(&mut self) -> Result<Parsed<P::Content>, End> {
        let line = match self.lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => return Err(End::Text),
            Err(error) => return Err(End::Input(error)),
        };
        self.notes.line += 1;
        if line.is_empty() {
            return Ok(Parsed::Skip("empty lines"));
        }
        self.parser.line(line, &mut self.notes).map_err(End::Line)
    }
}

/// The lines of a trace.
pub(crate) struct Text<C: Content> {
    blocks: Receiver<Block<C>>,
    used: Sender<Vec<Parsed<C>>>,
    block: Block<C>,
    /// The place of the next line in the block.
    next: usize,
    /// The place of the next note's line.
    next_note: usize,
    state: C::State,
}

impl<C: Content> Text<C> {
    fn new<P: Parse<Content = C>>(lines: Lines, parser: P) -> io::Result<Self> {
        let (sender, blocks) = mpsc::sync_channel(MOST_AHEAD);
        let (used, receiver) = mpsc::channel();
        let parser = Parser { lines, parser, notes: Notes::default(), blocks: sender, used: receiver };
        thread::Builder::new().name("parse".to_owned()).spawn(move || parser.run())?;
        let block = Block { lines: Vec::new(), notes: Vec::new(), end: None };
        Ok(Self { blocks, used, block, next: 0, next_note: usize::MAX, state: C::State::default() })
    }

    /// Takes the notes of the lines before and at `self.next`.
    #[cold]
    fn take_notes(&mut self, rows: &mut Rows) -> Result<(), RowError> {
        let due = self.block.notes.partition_point(|(place, _)| *place <= self.next);
        let mut taken = Ok(());
        for (_, note) in self.block.notes.drain(..due) {
            taken = taken.and(note.take(rows));
        }
        self.next_note = self.block.notes.first().map_or(usize::MAX, |(place, _)| *place);
        taken
    }

    /// Goes to the next block; false at the end of the text.
    #[cold]
    fn next_block(&mut self, rows: &mut Rows) -> Result<bool, RowError> {
        match self.block.end.take() {
            Some(End::Text) => return Ok(false),
            Some(End::Input(error)) => return Err(error.into()),
            Some(End::Line(reason)) => {
                rows.counts.records += 1;
                return self.take_notes(rows).and(Err(reason));
            }
            None => {}
        }
        let ended = |_| io::Error::other("the thread that parses it has ended");
        let block = self.blocks.recv().map_err(ended)?;
        let before = std::mem::replace(&mut self.block, block);
        // Without a thread there are no more blocks to fill.
        let _ = self.used.send(before.lines);
        self.next = 0;
        self.next_note = self.block.notes.first().map_or(usize::MAX, |(place, _)| *place);
        Ok(true)
    }
}

impl<C: Content> Records for Text<C> {
    #[inline]
    fn next(&mut self, rows: &mut Rows) -> Result<bool, RowError> {
        while self.next == self.block.lines.len() {
            if !self.next_block(rows)? {
                return Ok(false);
            }
        }
        rows.counts.records += 1;
        if self.next_note <= self.next {
            self.take_notes(rows)?;
        }
        let line = &self.block.lines[self.next];
        self.next += 1;
        match line {
            Parsed::Content(content) => content.take(&mut self.state, rows)?,
            Parsed::Skip(what) => rows.skip(what),
        }
        Ok(true)
    }

    fn end(&mut self, rows: &mut Rows) -> Result<(), RowError> {
        C::end(&mut self.state, rows)
    }
}

#[cfg(test)]
mod tests;
