//! A watch of the kernel.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use trimtab_core::Nanos;
use trimtab_core::trace::{Kind, TraceHeader};
use trimtab_linux::block::NamedError;
use trimtab_linux::tracefs::{RecordOptions, TracefsError};

use super::{Report, Watch};
use trimtab_core::interrupt::Interrupt;
use trimtab_linux::tracefs::{Listener, Settled, disks_behind};

/// What a watch counts. What was unused before it began is no concern of it.
const KINDS: [Kind; 7] = [
    Kind::Discard,
    Kind::SecureErase,
    Kind::Write,
    Kind::WriteZeroes,
    Kind::Read,
    Kind::Free,
    Kind::Allocate,
];

/// Why a watch can't begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// There is no disk behind a path.
    #[error(transparent)]
    Named(#[from] NamedError),
    /// The kernel can't be recorded.
    #[error(transparent)]
    Tracing(#[from] TracefsError),
}

/// A watch of the kernel that is going on. Dropping it ends it.
pub struct Session {
    listener: Listener,
    watch: Watch,
    started: Instant,
}

impl Session {
    /// Begins to watch the disks behind `targets`, which are devices, mount points or any files; all
    /// disks where there are none.
    ///
    /// # Errors
    /// Any [`WatchError`]; nothing is left behind.
    pub fn start(targets: &[PathBuf]) -> Result<Self, WatchError> {
        let devices = disks_behind(targets)?;
        let options = RecordOptions { devices, kinds: KINDS.to_vec(), ..RecordOptions::default() };
        let listener = Listener::start(&options)?;
        Ok(Self { listener, watch: Watch::default(), started: Instant::now() })
    }

    /// What is watched: devices, file systems, and what can't be.
    pub fn header(&self) -> &TraceHeader {
        self.listener.header()
    }

    /// How long it has gone on.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits for events for `timeout` at most, and counts those that are there.
    ///
    /// # Errors
    /// What the recording fails with.
    pub fn follow(&mut self, timeout: Duration) -> Result<(), WatchError> {
        self.listener.follow(timeout)?;
        self.count();
        Ok(())
    }

    /// What happened since the last interval, or the beginning.
    pub fn interval(&mut self) -> Report {
        self.watch.interval(self.listener.header(), now(self.started))
    }

    /// What happened since the beginning.
    pub fn so_far(&mut self) -> Report {
        self.watch.summary(self.listener.header(), now(self.started))
    }

    /// Forgets what was counted, and begins anew.
    pub fn restart(&mut self) {
        self.watch = Watch::after(self.header().lost);
        self.started = Instant::now();
    }

    /// Syncs the watched file systems and waits until the devices have come to rest, as
    /// [`Listener::settle`] does.
    ///
    /// # Errors
    /// What the recording fails with.
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
    /// What the recording fails with.
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
