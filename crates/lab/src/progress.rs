//! Progress of an experiment.

use std::time::Duration;

use trimtab_core::policy::PolicyChoice;

/// Receives the progress of an experiment; every call is short and cheap.
pub trait Progress {
    /// Something that the user should know before the runs start.
    fn note(&mut self, text: &str);
    /// There will be `runs` runs.
    fn planned(&mut self, runs: usize);
    /// A run starts, with pauses of `idle` in drive time.
    fn run_started(&mut self, fs: &str, policy: PolicyChoice, idle: Duration, run: u32);
    /// A step of the run starts.
    fn step(&mut self, name: &str);
    /// The run is over.
    fn run_finished(&mut self);
}
