//! Measures the load of the host.

use std::time::Duration;

use trimtab_core::policy::Load;
use trimtab_core::{Bytes, Nanos};

/// Counts the host's reads and writes since it was last asked.
#[derive(Default)]
pub(super) struct Meter {
    since: Nanos,
    completed: u64,
    waited: Nanos,
    written: Bytes,
}

impl Meter {
    /// The host read, and that took `latency`.
    pub(super) fn read(&mut self, latency: Nanos) {
        self.completed += 1;
        self.waited += latency;
    }

    /// The host wrote so many bytes, and that took `latency`.
    pub(super) fn written(&mut self, bytes: Bytes, latency: Nanos) {
        self.read(latency);
        self.written += bytes;
    }

    /// Returns the host's load since the last call; the time is now `now`.
    pub(super) fn take(&mut self, now: Nanos, in_flight: u64) -> Load {
        let Self { since, completed, waited, written } =
            std::mem::replace(self, Self { since: now, ..Self::default() });
        Load {
            span: Duration::from_nanos(now.saturating_sub(since).0),
            in_flight,
            completed,
            latency: Duration::from_nanos(waited.0.checked_div(completed).unwrap_or_default()),
            written,
        }
    }
}
