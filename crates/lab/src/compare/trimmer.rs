//! The policy `batched`: FITRIM of the whole file system at the start of pauses, or by a timer.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::Trim;
use trimtab_linux::block::{BlockDevice, BlockError};
use trimtab_linux::trim::{EVERYTHING, trim};

use super::clock::DriveClock;
use crate::error::LabError;

/// When the whole file system is trimmed.
#[derive(Debug, Clone)]
pub enum Schedule {
    /// At the start of every pause that the workload names.
    Pauses,
    /// Once the device had nothing to write or discard for [`QUIET`], for a command whose pauses
    /// nobody names; again only after it had. At the start it counts as not trimmed.
    Quiet(BlockDevice),
    /// At the start, and from then on every so often, in drive time.
    Every(Duration),
}

/// How long a device must have written and discarded nothing to count as idle, in drive time.
const QUIET: Duration = Duration::from_secs(1);
/// How often it is looked at, in drive time.
const LOOK: Duration = Duration::from_millis(100);

/// A thread that trims beside the workload, as `fstrim` does.
pub struct Trimmer {
    pauses: Sender<()>,
    thread: JoinHandle<Result<Vec<Trim>, LabError>>,
}

impl Trimmer {
    /// Starts to trim the file system mounted at `mount` by `schedule`.
    pub fn start(mount: PathBuf, schedule: Schedule, clock: DriveClock) -> Self {
        let (pauses, begun) = mpsc::channel();
        let thread = thread::spawn(move || {
            let trims = Trims { mount, clock, done: Vec::new() };
            match schedule {
                Schedule::Pauses => trims.at_pauses(&begun),
                Schedule::Every(interval) => trims.by_timer(interval, &begun),
                Schedule::Quiet(device) => trims.when_quiet(&device, &begun),
            }
        });
        Self { pauses, thread }
    }

    /// The workload begins a pause. A trim that is under way is not followed by another.
    pub fn pause_begins(&self) {
        // A trimmer that failed reports that at the end.
        let _ = self.pauses.send(());
    }

    /// Waits for the trim that is under way, and returns all of them.
    ///
    /// # Errors
    /// [`LabError::Trim`] where a trim failed.
    pub fn finish(self) -> Result<Vec<Trim>, LabError> {
        drop(self.pauses);
        self.thread.join().expect("the trimmer doesn't panic")
    }
}

struct Trims {
    mount: PathBuf,
    clock: DriveClock,
    done: Vec<Trim>,
}

impl Trims {
    fn trim(&mut self) -> Result<(), LabError> {
        let start = self.clock.now();
        trim(&self.mount, EVERYTHING, Bytes::ZERO)?;
        let length = self.clock.now() - start;
        self.done.push(Trim { start_s: start.as_secs_f64(), length_s: length.as_secs_f64() });
        Ok(())
    }

    fn at_pauses(mut self, begun: &Receiver<()>) -> Result<Vec<Trim>, LabError> {
        while begun.recv().is_ok() {
            self.trim()?;
            while begun.try_recv().is_ok() {}
        }
        Ok(self.done)
    }

    fn by_timer(mut self, interval: Duration, begun: &Receiver<()>) -> Result<Vec<Trim>, LabError> {
        let mut due = Duration::ZERO;
        while self.wait_until(due, begun) {
            self.trim()?;
            // A timer that elapsed meanwhile elapses once.
            while due <= self.clock.now() {
                due += interval;
            }
        }
        Ok(self.done)
    }

    fn when_quiet(mut self, device: &BlockDevice, begun: &Receiver<()>) -> Result<Vec<Trim>, LabError> {
        let work = || -> Result<_, BlockError> {
            let counters = device.counters()?;
            Ok((counters.write_bytes, counters.discards))
        };
        let (mut last, mut since, mut is_trimmed) = (work()?, self.clock.now(), false);
        while self.wait_until(self.clock.now() + LOOK, begun) {
            let (now, at) = (work()?, self.clock.now());
            if now != last {
                (last, since, is_trimmed) = (now, at, false);
            } else if !is_trimmed && at - since >= QUIET {
                self.trim()?;
                (last, since, is_trimmed) = (work()?, self.clock.now(), true);
            }
        }
        Ok(self.done)
    }

    /// Waits until the drive time `at`; returns false where the run is over before.
    fn wait_until(&self, at: Duration, begun: &Receiver<()>) -> bool {
        loop {
            let left = self.clock.wall(at.saturating_sub(self.clock.now()));
            match begun.recv_timeout(left) {
                // Pauses mean nothing to a timer.
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }
}
