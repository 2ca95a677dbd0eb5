//! Ctrl-C while Rust works: the calling thread looks for signals whenever progress is reported.

use pyo3::{PyErr, Python};
use trimtab_core::interrupt::Interrupt;
use trimtab_lab::simulate::SimulateProgress;
use trimtab_lab::sweep::{SweepProgress, SweepState};

/// Asks the work to stop once a signal handler of Python raised an exception, and keeps that.
#[derive(Default)]
pub struct Signals {
    pub interrupt: Interrupt,
    raised: Option<PyErr>,
}

impl Signals {
    /// Looks for signals, and returns false once there was one.
    pub fn goes_on(&mut self) -> bool {
        self.look();
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
