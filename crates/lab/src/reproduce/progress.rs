//! The progress of several comparisons as one.

use std::time::Duration;

use trimtab_core::policy::PolicyChoice;

use crate::progress::Progress;

/// Passes the progress of comparisons on, as runs of one plan.
pub(super) struct Parts<'a>(&'a mut dyn Progress);

impl<'a> Parts<'a> {
    /// There will be `runs` runs in all.
    pub fn new(progress: &'a mut dyn Progress, runs: usize) -> Self {
        progress.planned(runs);
        Self(progress)
    }
}

impl Progress for Parts<'_> {
    fn planned(&mut self, _: usize) {}

    fn run_started(&mut self, fs: &str, policy: PolicyChoice, idle: Duration, run: u32) {
        self.0.run_started(fs, policy, idle, run);
    }

    fn step(&mut self, name: &str) {
        self.0.step(name);
    }

    fn run_finished(&mut self) {
        self.0.run_finished();
    }
}
