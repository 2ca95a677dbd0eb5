//! Several writers at once: each does its part of a workload in a thread and a directory of its own.
//!
//! They go through the steps of the workload together. A step begins for all of them at the same moment and ends
//! when the last one has done its part, so that pauses are pauses for all, and each step's figures are those of
//! one kind of work. Within a step, every writer waits for its own operations alone; the kernel decides whose are
//! next.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use trimtab_core::document::StepKind;
use trimtab_core::interrupt::{Interrupt, Interrupted};

use super::{Course, Stage};
use crate::error::LabError;
use crate::share::Share;
use crate::work::Work;
use crate::workload::Workload;

/// The next step of a writer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    /// An activity of this name.
    Activity(String),
    /// A pause of this name and length; without one, of the length that the user chose.
    Pause(String, Option<Duration>),
}

/// A message from a writer. When it has ended, it sends no more.
#[derive(Debug)]
enum Message {
    /// It waits for its next step.
    Next(Next),
    /// It has done its part of an activity, which took so long by this machine's clock.
    Done(Duration),
}

/// A writer's end: it waits for its turn in every step.
pub(super) struct Turns {
    messages: Sender<Message>,
    go: Receiver<()>,
}

impl Turns {
    /// Does `action` when all writers are at the activity `name`.
    pub(super) fn activity(
        &self,
        name: &str,
        action: impl FnOnce() -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        self.wait(Next::Activity(name.to_owned()))?;
        let start = Instant::now();
        let outcome = action();
        // Without a receiver, the run has failed, and the next step says so.
        let _ = self.messages.send(Message::Done(start.elapsed()));
        outcome
    }

    /// Waits until the pause `name` is over.
    pub(super) fn pause(&self, name: &str, length: Option<Duration>) -> Result<(), LabError> {
        self.wait(Next::Pause(name.to_owned(), length))
    }

    fn wait(&self, next: Next) -> Result<(), LabError> {
        let sent = self.messages.send(Message::Next(next)).is_ok();
        if sent && self.go.recv().is_ok() { Ok(()) } else { Err(Interrupted.into()) }
    }
}

/// The thread of a writer, which gives back its work.
type WriterThread<'scope> = ScopedJoinHandle<'scope, (Work, Result<(), LabError>)>;

/// Asks the other writers to stop when it is dropped, also by a panic.
struct StopOthers(Option<Interrupt>);

impl Drop for StopOthers {
    fn drop(&mut self) {
        if let Some(stop) = &self.0 {
            stop.ask();
        }
    }
}

/// A writer that runs, seen from the stage of all.
struct Writer {
    number: usize,
    messages: Receiver<Message>,
    go: Sender<()>,
    next: Option<Next>,
}

impl Writer {
    /// Starts a thread that does `workload` with `work`; it asks all others to stop if that fails.
    fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        workload: &'scope dyn Workload,
        work: Work,
        stop: Interrupt,
    ) -> (Self, WriterThread<'scope>) {
        let ((messages, received), (go, turn)) = (channel(), channel());
        let number = work.share().number() as usize;
        let thread = scope.spawn(move || {
            let mut stage =
                Stage { work, course: Course::Shared(Turns { messages, go: turn }), stderr: None };
            let mut unless_done = StopOthers(Some(stop));
            let outcome = workload.run(&mut stage);
            if outcome.is_ok() {
                unless_done.0 = None;
            }
            (stage.work, outcome)
        });
        (Self { number, messages: received, go, next: None }, thread)
    }

    /// Waits until it names its next step; returns false if it has ended.
    fn names_next(&mut self) -> bool {
        while self.next.is_none() {
            match self.messages.recv() {
                Ok(Message::Next(next)) => self.next = Some(next),
                Ok(Message::Done(_)) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Lets it begin its next step.
    fn begin(&mut self) {
        self.next = None;
        // One that has ended meanwhile is found when it names no further step.
        let _ = self.go.send(());
    }

    /// Waits until it has done its part; returns how long that took.
    fn done(&self) -> Duration {
        match self.messages.recv() {
            Ok(Message::Done(span)) => span,
            Ok(Message::Next(_)) | Err(_) => Duration::ZERO,
        }
    }
}

impl Stage<'_> {
    /// Does the parts of a workload at the same time, a writer each. Writers whose next steps differ do them one
    /// after the other.
    ///
    /// # Errors
    /// The first error of a writer, in their order, or of a device that is gone.
    pub(crate) fn writers(&mut self, parts: &[Box<dyn Workload>], seed: u64) -> Result<(), LabError> {
        let stop = self.work.interrupt().child();
        let works: Vec<Work> = Share::all(parts.len() as u32)
            .map(|share| self.work.of_writer(share, seed, stop.clone()))
            .collect::<Result<_, _>>()?;
        thread::scope(|scope| {
            let parts = parts.iter().zip(works);
            let (writers, threads): (Vec<_>, Vec<_>) =
                parts.map(|(part, work)| Writer::start(scope, part.as_ref(), work, stop.clone())).unzip();
            let conducted = self.conduct(writers);
            if conducted.is_err() {
                stop.ask();
            }
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            let (works, mut outcomes): (Vec<Work>, Vec<_>) = ended.unzip();
            self.recorder()?.writers = works;
            outcomes.push(conducted);
            first_cause(outcomes)
        })
    }

    /// Leads the writers through their steps until all have ended.
    fn conduct(&mut self, mut writers: Vec<Writer>) -> Result<(), LabError> {
        let count = writers.len();
        loop {
            writers.retain_mut(Writer::names_next);
            let Some(next) = writers.first().and_then(|first| first.next.clone()) else { return Ok(()) };
            let taking = writers.iter_mut().filter(|writer| writer.next.as_ref() == Some(&next));
            let mut taking: Vec<&mut Writer> = taking.collect();
            match next {
                Next::Activity(name) => {
                    let mut spans = vec![Duration::ZERO; count];
                    self.step(&name, StepKind::Activity, |_| {
                        taking.iter_mut().for_each(|writer| writer.begin());
                        taking.iter().for_each(|writer| spans[writer.number] = writer.done());
                        Ok(Duration::ZERO)
                    })?;
                    let recorder = self.recorder()?;
                    let spans = spans.into_iter().map(|span| recorder.clock.drive(span)).collect();
                    if let Some(step) = recorder.measured.last_mut() {
                        step.writers = spans;
                    }
                }
                Next::Pause(name, length) => {
                    let length = length.unwrap_or(self.recorder()?.idle);
                    self.pause_for(&name, length)?;
                    taking.iter_mut().for_each(|writer| writer.begin());
                }
            }
        }
    }
}

/// The first error that is no request to stop, or such a request: a writer that fails stops the others.
fn first_cause(outcomes: Vec<Result<(), LabError>>) -> Result<(), LabError> {
    let (stopped, failed): (Vec<_>, Vec<_>) = outcomes
        .into_iter()
        .filter_map(Result::err)
        .partition(|error| matches!(error, LabError::Interrupted(_)));
    failed.into_iter().chain(stopped).next().map_or(Ok(()), Err)
}
