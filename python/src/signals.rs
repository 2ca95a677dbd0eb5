//! Ctrl-C while Rust works: the calling thread looks for signals whenever progress is reported.

use std::time::{Duration, Instant};

use pyo3::{PyErr, Python};
use trimtab_core::interrupt::Interrupt;
use trimtab_sim::simulate::SimulateProgress;
use trimtab_sim::sweep::{SweepProgress, SweepState};

/// Asks the work to stop once a signal handler of Python raised an exception, and keeps that.
#[derive(Default)]
pub struct Signals {
    pub interrupt: Interrupt,
    raised: Option<PyErr>,
    /// When it looked last, for [`goes_on`](Self::goes_on).
    looked: Option<Instant>,
}

/// The least time between two looks for signals.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

impl Signals {
    /// Looks for signals every 100 ms, and returns false once there was one.
    pub fn goes_on(&mut self) -> bool {
        // Another thread may hold Python for some milliseconds.
        if self.looked.is_none_or(|looked| looked.elapsed() >= BETWEEN_LOOKS) {
            self.look();
            self.looked = Some(Instant::now());
        }
        self.raised.is_none()
    }

    fn look(&mut self) {
        if self.raised.is_none()
            && let Err(error) = Python::attach(|py| py.check_signals())
        {
            self.raised = Some(error);
            self.interrupt.ask();
        }
    }

    /// The exception that a handler raised, such as `KeyboardInterrupt`.
    pub fn raised(self) -> Option<PyErr> {
        self.raised
    }
}

impl SimulateProgress for Signals {
    fn surveying(&mut self, _events: u64) {
        self.look();
    }

    fn replaying(&mut self, _done: usize, _replays: usize, _replayed: u64, _events: u64) {
        self.look();
    }
}

impl SweepProgress for Signals {
    fn at(&mut self, _state: &SweepState) {
        self.look();
    }
}
