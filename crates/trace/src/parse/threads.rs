//! The threads of a text. One reads pieces of whole lines; one or two parse them in turn; the caller's makes events of them, in
//! the order of the text.

use std::io;
use std::mem;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;

use super::{Content, Note, Notes, Numbers, Parse, Parsed};
use crate::error::RowError;
use crate::input::{Piece, Pieces};
use crate::reader::Records;
use crate::rows::Rows;
use crate::scan::Cursor;

/// The lines of a block.
const BLOCK: usize = 1024;
/// Blocks of a parser that wait for the caller, at most.
const MOST_AHEAD: usize = 4;

/// Consecutive lines.
struct Block<C> {
    lines: Vec<Parsed<C>>,
    /// With the places of their lines.
    notes: Vec<(usize, Note)>,
    /// None if more lines of the piece follow.
    end: Option<End>,
}

impl<C> Block<C> {
    const fn empty(end: Option<End>) -> Self {
        Self { lines: Vec::new(), notes: Vec::new(), end }
    }
}

/// The end of the parsed lines.
enum End {
    /// The end of the piece: the next parser has the next one.
    Piece,
    Text,
    /// The next line can't be parsed.
    Line(RowError),
    /// The next line can't be read.
    Input(io::Error),
}

/// Gives each parser a piece in turn, and takes back pieces that were parsed. Its thread ends with the text, or when a
/// parser has ended.
struct Feeder {
    pieces: Pieces,
    parsers: Vec<SyncSender<io::Result<Option<Piece>>>>,
    used: Receiver<Piece>,
}

impl Feeder {
    fn run(mut self) {
        for parser in self.parsers.iter().cycle() {
            let mut piece = self.used.try_recv().unwrap_or_default();
            let next = self.pieces.next(&mut piece).map(|is_one| is_one.then_some(piece));
            let is_last = !matches!(next, Ok(Some(_)));
            if parser.send(next).is_err() || is_last {
                break;
            }
        }
    }
}

/// A parser, in a thread of its own. The thread ends after the last piece, or when the receiver of blocks is dropped.
struct Parser<P: Parse> {
    parser: P,
    notes: Notes,
    piece: Piece,
    channels: Channels<P::Content>,
}

/// The channels into a parser and out of it.
struct Channels<C> {
    pieces: Receiver<io::Result<Option<Piece>>>,
    /// Pieces that were parsed.
    parsed: Sender<Piece>,
    blocks: SyncSender<Block<C>>,
    /// Blocks whose lines were taken.
    used: Receiver<Vec<Parsed<C>>>,
}

/// The state that the parser of the first piece gives to another one.
type Fork<P> = (P, Notes);

impl<P: Parse> Parser<P> {
    fn new((parser, notes): Fork<P>, channels: Channels<P::Content>) -> Self {
        Self { parser, notes, piece: Piece::default(), channels }
    }

    /// Parses the first piece, gives `forks` what they need for theirs, and parses its other pieces.
    fn run(mut self, forks: &[Sender<Fork<P>>]) {
        let mut has_more = self.next_piece();
        for fork in forks.iter().filter(|_| has_more) {
            let Some(parser) = self.parser.fork() else { return };
            // One that has ended needs nothing.
            let _ = fork.send((parser, self.notes.fork()));
        }
        while has_more {
            has_more = self.next_piece();
        }
    }

    /// Parses the next piece; false if it is the last one, or nobody needs more.
    fn next_piece(&mut self) -> bool {
        let Ok(next) = self.channels.pieces.recv() else { return false };
        let end = match next {
            Ok(Some(piece)) => {
                let before = mem::replace(&mut self.piece, piece);
                // Without a reader, there are no more pieces to fill.
                let _ = self.channels.parsed.send(before);
                loop {
                    let block = self.block();
                    let (has_ended, is_last) =
                        (block.end.is_some(), !matches!(block.end, None | Some(End::Piece)));
                    if self.channels.blocks.send(block).is_err() || is_last {
                        return false;
                    }
                    if has_ended {
                        return true;
                    }
                }
            }
            Ok(None) => End::Text,
            Err(error) => End::Input(error),
        };
        let _ = self.channels.blocks.send(Block::empty(Some(end)));
        false
    }

    fn block(&mut self) -> Block<P::Content> {
        let mut lines = self.channels.used.try_recv().unwrap_or_else(|_| Vec::with_capacity(BLOCK));
        lines.clear();
        let mut end = None;
        while lines.len() < BLOCK && end.is_none() {
            self.notes.place = lines.len();
            match self.line() {
                Ok(line) => lines.push(line),
                Err(reason) => end = Some(reason),
            }
        }
        Block { lines, notes: mem::take(&mut self.notes.notes), end }
    }

    #[inline]
    fn line(&mut self) -> Result<Parsed<P::Content>, End> {
        let unread = self.piece.unread();
        let mut cursor = Cursor::of(unread);
        if let Some(line) = self.parser.quick(&mut cursor, &mut self.notes) {
            let length = unread.len() - cursor.rest().len();
            self.piece.pass(length);
            self.notes.line += 1;
            return Ok(line);
        }
        self.full_line()
    }

    fn full_line(&mut self) -> Result<Parsed<P::Content>, End> {
        let Some(line) = self.piece.next() else { return Err(End::Piece) };
        self.notes.line += 1;
        if line.is_empty() {
            return Ok(Parsed::Skip("empty lines"));
        }
        self.parser.line(line, &mut self.notes).map_err(End::Line)
    }
}

/// The parsed lines of a parser.
struct Source<C> {
    blocks: Receiver<Block<C>>,
    used: Sender<Vec<Parsed<C>>>,
    numbers: Numbers,
}

/// The lines of a trace.
pub(crate) struct Text<C: Content> {
    sources: Vec<Source<C>>,
    /// The source of the lines at hand.
    turn: usize,
    /// The first piece was taken.
    has_begun: bool,
    block: Block<C>,
    /// The place of the next line in the block.
    next: usize,
    /// The place of the next note's line.
    next_note: usize,
    state: C::State,
}

impl<C: Content> Text<C> {
    /// Starts the threads that read and parse; `most` that parse, at most.
    pub(super) fn new<P: Parse<Content = C>>(pieces: Pieces, parser: P, most: usize) -> io::Result<Self> {
        let count = if parser.fork().is_some() { most } else { 1 };
        let (parsed, used) = mpsc::channel();
        let (mut sources, mut feeds, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let (feed, pieces) = mpsc::sync_channel(1);
            let (sender, blocks) = mpsc::sync_channel(MOST_AHEAD);
            let (used_lines, used) = mpsc::channel();
            feeds.push(feed);
            sources.push(Source { blocks, used: used_lines, numbers: Numbers::default() });
            all.push(Channels { pieces, parsed: parsed.clone(), blocks: sender, used });
        }
        let feeder = Feeder { pieces, parsers: feeds, used };
        start("read", move || feeder.run())?;
        let mut forks = Vec::new();
        let others = all.split_off(1);
        for channels in others {
            let (sender, fork) = mpsc::channel();
            forks.push(sender);
            start("parse", move || {
                if let Ok(fork) = fork.recv() {
                    Parser::new(fork, channels).run(&[]);
                }
            })?;
        }
        if let Some(channels) = all.pop() {
            let first = Parser::new((parser, Notes::default()), channels);
            start("parse", move || first.run(&forks))?;
        }
        Ok(Self {
            sources,
            turn: 0,
            has_begun: false,
            block: Block::empty(None),
            next: 0,
            next_note: usize::MAX,
            state: C::State::default(),
        })
    }

    /// Takes the notes of the lines before and at `self.next`.
    #[cold]
    fn take_notes(&mut self, rows: &mut Rows) -> Result<(), RowError> {
        let due = self.block.notes.partition_point(|(place, _)| *place <= self.next);
        let mut taken = Ok(());
        for (_, note) in self.block.notes.drain(..due) {
            taken = taken.and(note.take(&mut self.sources[self.turn].numbers, rows));
        }
        self.next_note = self.block.notes.first().map_or(usize::MAX, |(place, _)| *place);
        taken
    }

    /// Goes to the next parser, which has the next piece.
    fn next_turn(&mut self) {
        if !mem::replace(&mut self.has_begun, true) {
            // The others go on with the numbers of the first piece.
            let numbers = self.sources[0].numbers.clone();
            self.sources.iter_mut().skip(1).for_each(|source| source.numbers = numbers.clone());
        }
        self.turn = (self.turn + 1) % self.sources.len();
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
            Some(End::Piece) => self.next_turn(),
            None => {}
        }
        let ended = |_| io::Error::other("the thread that parses it has ended");
        let source = &self.sources[self.turn];
        let block = source.blocks.recv().map_err(ended)?;
        let before = mem::replace(&mut self.block, block);
        // Without a thread there are no more blocks to fill.
        let _ = source.used.send(before.lines);
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
            Parsed::Content(content) => {
                let numbers = &self.sources[self.turn].numbers;
                if numbers.differ {
                    let mut content = *content;
                    content.renumber(numbers);
                    content.take(&mut self.state, rows)?;
                } else {
                    content.take(&mut self.state, rows)?;
                }
            }
            Parsed::Skip(what) => rows.skip(what),
        }
        Ok(true)
    }

    fn end(&mut self, rows: &mut Rows) -> Result<(), RowError> {
        C::end(&mut self.state, rows)
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(|_| ())
}

#[cfg(test)]
mod tests;
