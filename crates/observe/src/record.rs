//! Records kernel events into a trace file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

use trimtab_core::Nanos;
use trimtab_core::trace::{Summary, TraceHeader, TraceSource};
use trimtab_linux::block::NamedError;
use trimtab_linux::file::{Output, OutputError};
use trimtab_linux::tracefs::{RecordOptions, TracefsError};
use trimtab_trace::{TraceError, TraceFile, TraceWriter};

use crate::anonymous::Anonymous;
use crate::foreground::{CommandError, Foreground};
use trimtab_core::interrupt::Interrupt;
use trimtab_linux::tracefs::{Listener, Settled, disks_behind};

/// The longest wait for events, so that the command's end and an interrupt are noticed soon.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The longest time before few events are written to the file: a crash loses at most that.
const SAFE_AFTER: Duration = Duration::from_secs(5);
/// The discards of the command are complete after this time without any.
const QUIET: Duration = Duration::from_millis(500);

/// Options of a recording.
#[derive(Debug)]
pub struct RecordPlan {
    /// Devices, mount points or files; if empty, all disks.
    pub targets: Vec<PathBuf>,
    /// Further options; the devices are those of `targets`.
    pub recording: RecordOptions,
    /// The file to write.
    pub out: Output,
    /// Whether to replace an existing file.
    pub overwrite: bool,
    /// How long to record; if none, until the command ends or the user stops it.
    pub duration: Option<Duration>,
    /// The command to record, with its arguments; empty for none.
    pub command: Vec<OsString>,
    /// Whether to wait, after the command has ended, until its writes and frees are on the device.
    pub settle: bool,
    /// Whether names are replaced by hashes.
    pub anonymise: bool,
    /// Trimtab's own command line, for the header.
    pub invocation: Vec<String>,
}

/// The result of a recording.
#[derive(Debug)]
pub struct Recorded {
    /// The header of the trace.
    pub header: TraceHeader,
    /// The totals of the events in the file.
    pub summary: Summary,
    /// The command's exit status; none without a command, or if it was left running.
    pub status: Option<ExitStatus>,
    /// How the devices settled after it.
    pub settled: Option<Settled>,
    /// Why recording ended early; the file holds the events before that.
    pub stopped: Option<RecordError>,
}

/// Why a recording could not start or ended early.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is no disk behind a path.
    #[error(transparent)]
    Named(#[from] NamedError),
    /// Kernel events can't be recorded.
    #[error(transparent)]
    Tracing(#[from] TracefsError),
    /// The trace can't be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace can't be given its name.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The command can't be run.
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// A progress callback. It gets the header of the trace so far, its totals, and the elapsed time.
pub type Progress<'a> = &'a mut dyn FnMut(&TraceHeader, &Summary, Duration);

/// Records as `plan` says, and calls `progress` several times per second. Waits for the command even if
/// recording ends before it.
///
/// # Errors
/// [`RecordError`] if it cannot start; then there is no new file, and an existing one stays. The reason for a
/// later end is in [`Recorded`].
pub fn record(plan: &RecordPlan, interrupt: &Interrupt, progress: Progress) -> Result<Recorded, RecordError> {
    let options = RecordOptions { devices: disks_behind(&plan.targets)?, ..plan.recording.clone() };
    let mut listener = Listener::start(&options)?;
    let anonymous = plan.anonymise.then(Anonymous::default);
    let mut header = TraceHeader {
        command: plan.invocation.clone(),
        started: Some(humantime::format_rfc3339_seconds(SystemTime::now()).to_string()),
        ..listener.header().clone()
    };
    if let Some(anonymous) = &anonymous {
        anonymous.header(&mut header);
    }
    let (writer, mut command) = begin(plan, header)?;
    let now = Instant::now();
    let summary = Summary::default();
    let mut keeper = Keeper { writer, anonymous, summary, started: now, safe: now, progress };
    let went = keeper.run(plan, &mut listener, command.as_mut(), interrupt);
    // In any case, keep the events so far if possible.
    let ended = keeper.end(&mut listener);
    let settled = went.and_then(|settled| ended.and(Ok(settled)));
    let Keeper { mut writer, mut summary, .. } = keeper;
    let header = writer.header_mut().clone();
    let finished = writer.finish().map_err(RecordError::Trace);
    if finished.is_err() {
        // The file holds fewer events than came.
        summary = totals(plan.out.path()).unwrap_or_default();
    }
    let (settled, mut stopped) = match settled {
        Ok(settled) => (settled, finished.err()),
        Err(error) => (None, Some(error)),
    };
    // Nothing is recorded while the command is still running.
    drop(listener);
    let status = command.map(|mut command| command.wait(interrupt)).transpose().unwrap_or_else(|error| {
        stopped.get_or_insert(error.into());
        None
    });
    Ok(Recorded { header, summary, status, settled, stopped })
}

/// Starts the command, and gives the trace its name once the command runs. If it can't be started, there is
/// no new file, and an existing one stays.
fn begin(plan: &RecordPlan, header: TraceHeader) -> Result<(TraceWriter, Option<Foreground>), RecordError> {
    let path = plan.out.path();
    let draft = plan.out.draft()?;
    let file = draft.file().try_clone().map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
    let writer = TraceWriter::on(file, path, header)?;
    let words = plan.command.as_slice();
    let command = (!words.is_empty()).then(|| Foreground::start(words)).transpose()?;
    match if plan.overwrite { draft.replace() } else { draft.create() } {
        Ok(()) => Ok((writer, command)),
        Err(error) => {
            command.into_iter().for_each(Foreground::abandon);
            Err(error.into())
        }
    }
}

/// Returns the totals of the events in the trace file at `path`.
fn totals(path: &Path) -> Result<Summary, TraceError> {
    let (mut file, mut summary, mut batch) = (TraceFile::open(path)?, Summary::default(), Vec::new());
    loop {
        file.next_batch(&mut batch)?;
        if batch.is_empty() {
            return Ok(summary);
        }
        batch.iter().for_each(|event| summary.record(event));
    }
}

/// Writes events to the trace.
struct Keeper<'a> {
    writer: TraceWriter,
    /// Replaces names, if it is to.
    anonymous: Option<Anonymous>,
    summary: Summary,
    started: Instant,
    /// When the file last held all events.
    safe: Instant,
    progress: Progress<'a>,
}

impl Keeper<'_> {
    /// Writes events until the recording is over.
    fn run(
        &mut self,
        plan: &RecordPlan,
        listener: &mut Listener,
        mut command: Option<&mut Foreground>,
        interrupt: &Interrupt,
    ) -> Result<Option<Settled>, RecordError> {
        while plan.duration.is_none_or(|most| self.started.elapsed() < most) {
            listener.follow(POLL_INTERVAL)?;
            self.keep(listener)?;
            let ended = match &mut command {
                Some(command) => command.poll(interrupt)?.is_some(),
                None => interrupt.is_set(),
            };
            if ended {
                let settles = command.is_some() && plan.settle && !interrupt.is_set();
                let settled =
                    settles.then(|| listener.settle(QUIET, interrupt, |listener| self.keep(listener)));
                return settled.transpose();
            }
        }
        Ok(None)
    }

    /// Takes the new events, and flushes them to the file after a while.
    fn keep(&mut self, listener: &mut Listener) -> Result<(), RecordError> {
        let mut events: Vec<_> = listener.take().collect();
        if let Some(anonymous) = &self.anonymous {
            events.iter_mut().for_each(|event| event.process = anonymous.process(event.process));
        }
        events.iter().for_each(|event| self.summary.record(event));
        self.take_over(listener.header());
        self.writer.write(&events)?;
        if self.safe.elapsed() > SAFE_AFTER {
            self.writer.flush()?;
            self.safe = Instant::now();
        }
        (self.progress)(listener.header(), &self.summary, self.started.elapsed());
        Ok(())
    }

    /// Stops listening, and writes the remaining events.
    fn end(&mut self, listener: &mut Listener) -> Result<(), RecordError> {
        let stopped = listener.stop();
        self.keep(listener)?;
        stopped?;
        self.writer.header_mut().duration = Some(Nanos(self.started.elapsed().as_nanos() as u64));
        Ok(())
    }

    /// Copies the new parts of the recording's header.
    fn take_over(&mut self, found: &TraceHeader) {
        let header = self.writer.header_mut();
        header.devices.clone_from(&found.devices);
        header.file_systems.clone_from(&found.file_systems);
        header.gaps.clone_from(&found.gaps);
        header.lost = found.lost;
        if let Some(anonymous) = &self.anonymous {
            anonymous.header(header);
        }
    }
}
