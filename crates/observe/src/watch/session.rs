//! A watch of the kernel.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use trimtab_core::Nanos;
use trimtab_core::trace::{EventKind, TraceHeader};
use trimtab_linux::block::NamedError;
use trimtab_linux::tracefs::{RecordOptions, TracefsError};

use super::{Report, Watch};
use trimtab_core::interrupt::Interrupt;
use trimtab_linux::tracefs::{Listener, Settled, disks_behind};

/// The counted kinds of events: all except the free space at the start.
const KINDS: [EventKind; 7] = [
    EventKind::Discard,
    EventKind::SecureErase,
    EventKind::Write,
    EventKind::WriteZeroes,
    EventKind::Read,
    EventKind::Free,
    EventKind::Allocate,
];

/// Why a watch cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// There is no disk behind a path.
    #[error(transparent)]
    Named(#[from] NamedError),
    /// Kernel events can't be recorded.
    #[error(transparent)]
    Tracing(#[from] TracefsError),
}

/// A running watch of the kernel. Dropping it ends it.
pub struct Session {
    listener: Listener,
    watch: Watch,
    started: Instant,
}

impl Session {
    /// Starts to watch the disks behind `targets`, which are devices, mount points or any files; if empty, all
    /// disks.
    ///
    /// # Errors
    /// Any [`WatchError`]; nothing is left behind.
    pub fn start(targets: &[PathBuf]) -> Result<Self, WatchError> {
        let devices = disks_behind(targets)?;
        let options = RecordOptions { devices, kinds: KINDS.to_vec(), ..RecordOptions::default() };
        let listener = Listener::start(&options)?;
        Ok(Self { listener, watch: Watch::default(), started: Instant::now() })
    }

    /// Returns the watched devices and file systems, and the gaps.
    pub fn header(&self) -> &TraceHeader {
        self.listener.header()
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits for events, at most for `timeout`, and counts those that have come.
    ///
    /// # Errors
    /// Errors of the recording.
    pub fn follow(&mut self, timeout: Duration) -> Result<(), WatchError> {
        self.listener.follow(timeout)?;
        self.count();
        Ok(())
    }

    /// Returns the report since the last interval, or the start.
    pub fn interval(&mut self) -> Report {
        self.watch.interval(self.listener.header(), now(self.started))
    }

    /// Returns the report since the start.
    pub fn so_far(&mut self) -> Report {
        self.watch.summary(self.listener.header(), now(self.started))
    }

    /// Resets all counts.
    pub fn restart(&mut self) {
        self.watch = Watch::after(self.header().lost);
        self.started = Instant::now();
    }

    /// Syncs the watched file systems and waits until the devices have settled, as
    /// [`Listener::settle`] does.
    ///
    /// # Errors
    /// Errors of the recording.
    pub fn settle(&mut self, quiet: Duration, interrupt: &Interrupt) -> Result<Settled, WatchError> {
        let watch = &mut self.watch;
        self.listener.settle(quiet, interrupt, |listener| {
            listener.take().for_each(|event| watch.record(&event));
            Ok(())
        })
    }

    /// Ends the watch, and returns the summary of the whole time.
    ///
    /// # Errors
    /// Errors of the recording.
    pub fn finish(mut self) -> Result<Report, WatchError> {
        let now = now(self.started);
        self.listener.stop()?;
        self.count();
        Ok(self.watch.summary(self.listener.header(), now))
    }

    fn count(&mut self) {
        self.listener.take().for_each(|event| self.watch.record(&event));
    }
}

fn now(started: Instant) -> Nanos {
    Nanos(started.elapsed().as_nanos() as u64)
}
