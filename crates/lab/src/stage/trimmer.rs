//! The policy `batched`: FITRIM of the whole file system at the start of pauses, or by a timer.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::Trim;
use trimtab_linux::block::BlockDevice;
use trimtab_linux::trim::{EVERYTHING, trim};

use super::clock::DriveClock;
use crate::error::LabError;

/// When the whole file system is trimmed.
#[derive(Debug, Clone)]
pub enum Schedule {
    /// At the start of every pause that the workload names.
    Pauses,
    /// For a command that does not name its pauses: when nothing was written to the device for [`QUIET`],
    /// once per quiet time. The first quiet time counts even if nothing was written before.
    Quiet(BlockDevice),
    /// At the start, and from then on every so often, in drive time.
    Every(Duration),
}

/// The drive time without a write after which a device counts as idle.
const QUIET: Duration = Duration::from_secs(1);
/// The drive time from one reading of its counters to the next.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A thread that trims beside the workload, as `fstrim` does. It ends before this is dropped.
pub struct Trimmer {
    pauses: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<Vec<Trim>, LabError>>>,
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
        Self { pauses: Some(pauses), thread: Some(thread) }
    }

    /// The workload begins a pause. A trim that is under way is not followed by another.
    pub fn pause_begins(&self) {
        // A trimmer that failed reports that at the end.
        let _ = self.pauses.as_ref().map(|pauses| pauses.send(()));
    }

    /// Waits for the trim that is under way, and returns all of them.
    ///
    /// # Errors
    /// [`LabError::Trim`] if a trim failed.
    pub fn finish(mut self) -> Result<Vec<Trim>, LabError> {
        self.end().expect("it ends once")
    }

    /// Ends the thread; returns `None` if it has ended before.
    fn end(&mut self) -> Option<Result<Vec<Trim>, LabError>> {
        self.pauses.take();
        self.thread.take().map(|thread| thread.join().expect("the trimmer doesn't panic"))
    }
}

impl Drop for Trimmer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Decides when a device counts as idle.
struct Quiet {
    /// Bytes written until the last reading.
    written: Bytes,
    /// The drive time of the last reading that differed from the one before.
    since: Duration,
    /// Whether a trim began since then.
    is_trimmed: bool,
}

impl Quiet {
    /// Notes that `written` bytes have been written by the drive time `now`; returns whether a trim is due.
    fn is_due(&mut self, written: Bytes, now: Duration) -> bool {
        if written != self.written {
            *self = Self { written, since: now, is_trimmed: false };
        }
        !self.is_trimmed && now - self.since >= QUIET
    }

    /// A trim began. Writes from now on, also during the trim, may come with freed space that it does not
    /// reach.
    fn trim_begins(&mut self) {
        self.is_trimmed = true;
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
            // Intervals that passed during the trim start no further trims.
            while due <= self.clock.now() {
                due += interval;
            }
        }
        Ok(self.done)
    }

    fn when_quiet(mut self, device: &BlockDevice, begun: &Receiver<()>) -> Result<Vec<Trim>, LabError> {
        let written = || device.counters().map(|counters| counters.write_bytes);
        let mut quiet = Quiet { written: written()?, since: self.clock.now(), is_trimmed: false };
        while self.wait_until(self.clock.now() + POLL_INTERVAL, begun) {
            if quiet.is_due(written()?, self.clock.now()) {
                quiet.trim_begins();
                self.trim()?;
            }
        }
        Ok(self.done)
    }

    /// Waits until the drive time `at`; returns false if the run is over before.
    fn wait_until(&self, at: Duration, begun: &Receiver<()>) -> bool {
        loop {
            let left = self.clock.wall(at.saturating_sub(self.clock.now()));
            match begun.recv_timeout(left) {
                // Only the schedule for pauses depends on them.
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_freed_during_a_trim_is_trimmed_after_it() {
        let s = Duration::from_secs;
        let mut quiet = Quiet { written: Bytes(0), since: s(0), is_trimmed: false };
        assert!(!quiet.is_due(Bytes(4096), s(1)), "it has just written");
        assert!(quiet.is_due(Bytes(4096), s(2)));
        quiet.trim_begins();
        assert!(!quiet.is_due(Bytes(4096), s(9)), "nothing was written since");
        quiet.trim_begins();
        assert!(!quiet.is_due(Bytes(8192), s(12)), "something was written during the trim");
        assert!(quiet.is_due(Bytes(8192), s(13)));
    }
}
