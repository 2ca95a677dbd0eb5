//! What an experiment tells whoever watches it.

use trimtab_core::policy::PolicyKind;

/// Is told how far an experiment is; every call is short and cheap.
pub trait Progress {
    /// There will be `runs` runs.
    fn planned(&mut self, runs: usize);
    /// A run starts.
    fn run_started(&mut self, fs: &str, policy: PolicyKind, run: u32);
    /// A phase of the run starts.
    fn phase(&mut self, name: &str);
    /// Nothing will seem to happen for a while, because of `what`.
    fn waiting(&mut self, what: &str);
    /// The run is over.
    fn run_finished(&mut self);
}
