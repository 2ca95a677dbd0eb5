//! Reading traces that are lines of text: what a format has to say of its lines.

mod threads;

use std::num::NonZero;
use std::path::Path;
use std::thread;
use std::time::Duration;

use trimtab_core::trace::{DeviceIndex, FsIndex};

use crate::error::{RowError, TraceError};
use crate::input::{self, CHUNK, Pieces};
use crate::reader::RecordReader;
use crate::rows::{DeviceNames, Row, Rows};
use crate::scan::Cursor;

use self::threads::Text;

/// Parsers of a text: parsing takes twice as long as making events.
const PARSERS: usize = 2;

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

    /// Returns a parser of other lines of the text, after its first lines were parsed. Returns nothing if lines have to be
    /// parsed one after the other.
    fn fork(&self) -> Option<Self>
    where
        Self: Sized,
    {
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

    /// Puts the trace's numbers in place of the parser's. They differ only with several parsers.
    fn renumber(&mut self, _numbers: &Numbers) {}

    /// Takes the content of the next line in.
    fn take(&self, state: &mut Self::State, rows: &mut Rows) -> Result<(), RowError>;

    /// Takes the end of the text.
    fn end(state: &mut Self::State, rows: &mut Rows) -> Result<(), RowError>;
}

impl Content for Row {
    type State = ();

    fn renumber(&mut self, numbers: &Numbers) {
        self.device = numbers.device(self.device);
    }

    fn take(&self, (): &mut (), rows: &mut Rows) -> Result<(), RowError> {
        rows.push(self)
    }

    fn end((): &mut (), _rows: &mut Rows) -> Result<(), RowError> {
        Ok(())
    }
}

/// The trace's numbers of the devices and file systems that a parser has numbered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Numbers {
    devices: Vec<DeviceIndex>,
    file_systems: Vec<FsIndex>,
    /// Some differ.
    differ: bool,
}

impl Numbers {
    pub(crate) fn device(&self, device: DeviceIndex) -> DeviceIndex {
        self.devices[usize::from(device.0)]
    }

    pub(crate) fn file_system(&self, file_system: FsIndex) -> FsIndex {
        self.file_systems[usize::from(file_system.0)]
    }

    fn add_device(&mut self, device: DeviceIndex) {
        self.differ |= usize::from(device.0) != self.devices.len();
        self.devices.push(device);
    }

    fn add_file_system(&mut self, file_system: FsIndex) {
        self.differ |= usize::from(file_system.0) != self.file_systems.len();
        self.file_systems.push(file_system);
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

    /// The notes of a parser of other lines.
    fn fork(&self) -> Self {
        Self { devices: self.devices.clone(), clock_is_set: self.clock_is_set, ..Self::default() }
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
    fn take(self, numbers: &mut Numbers, rows: &mut Rows) -> Result<(), RowError> {
        match self {
            Self::Device(name) => numbers.add_device(rows.device(&name)?),
            Self::FileSystem(name) => numbers.add_file_system(rows.file_system(&name)?),
            Self::Clock(since_1970) => rows.set_clock(since_1970),
            Self::Gap(gap) => rows.gap(gap),
        }
        Ok(())
    }
}

/// Opens the text at `path`, which has the grammar of `parser`.
pub(crate) fn open<P: Parse>(
    path: &Path,
    parser: P,
    rows: Rows,
) -> Result<RecordReader<Text<P::Content>>, TraceError> {
    let text = input::open(path).and_then(|input| Text::new(Pieces::new(input, CHUNK), parser, parsers()));
    let text = text.map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
    Ok(RecordReader::new(path, text, rows))
}

/// The parsers of a text on this machine.
fn parsers() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get).min(PARSERS)
}
