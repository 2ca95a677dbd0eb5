//! The progress of several comparisons as one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trimtab_core::policy::PolicyChoice;

use crate::progress::Progress;

/// Passes the progress of comparisons, which may be made side by side, on as runs of one plan.
pub(super) struct Parts<'a>(Mutex<&'a mut (dyn Progress + Send)>);

impl<'a> Parts<'a> {
    /// There will be `runs` runs in all.
    pub fn new(progress: &'a mut (dyn Progress + Send), runs: usize) -> Self {
        progress.planned(runs);
        Self(Mutex::new(progress))
    }

    fn all(&self) -> MutexGuard<'_, &'a mut (dyn Progress + Send)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for &Parts<'_> {
    fn note(&mut self, text: &str) {
        self.all().note(text);
    }

    fn planned(&mut self, _: usize) {}

    fn run_started(&mut self, fs: &str, policy: PolicyChoice, idle: Duration, run: u32) {
        self.all().run_started(fs, policy, idle, run);
    }

    fn step(&mut self, name: &str) {
        self.all().step(name);
    }

    fn run_finished(&mut self) {
        self.all().run_finished();
    }
}
