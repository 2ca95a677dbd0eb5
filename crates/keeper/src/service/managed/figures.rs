//! How a file system is tended, in figures.

use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::status::{FileSystemStatus, State};

use super::{ManagedFileSystem, Work};
use crate::service::config::ServicePolicy;
use crate::service::mounts::Found;

/// How long after a slice a file system counts as being trimmed.
const RECENT: Duration = Duration::from_secs(2);

impl ManagedFileSystem {
    /// How it is tended.
    pub fn status(&self, now: Duration) -> FileSystemStatus {
        let Found { mount, .. } = &self.found;
        let tender = match &self.work {
            Work::On { tender, .. } => Some(tender),
            Work::Off(_) | Work::Steered(_) => None,
        };
        let pending = tender.map(|tender| tender.pending());
        let totals = self.totals();
        let (state, reason) = self.state(now);
        let rfc3339 = |at| humantime::format_rfc3339_seconds(at).to_string();
        let max_age = self.settings.goals.max_age.as_secs_f64();
        FileSystemStatus {
            mount: mount.target.display().to_string(),
            device: mount.source.display().to_string(),
            fs: mount.fstype.clone(),
            policy: self.policy.to_string(),
            state,
            reason,
            pending: pending.map_or(Bytes::ZERO, |pending| pending.len()),
            pending_extents: pending.map_or(0, |pending| pending.iter().count() as u64),
            oldest_s: pending
                .and_then(|pending| pending.oldest())
                .map(|since| now.saturating_sub(since).as_secs_f64()),
            max_age_s: (tender.is_some() && self.policy == ServicePolicy::Smart).then_some(max_age),
            last_trim: self.last_trim.map(rfc3339),
            trimmed: totals.bytes,
            discards: totals.discards,
            trim_s: totals.took.as_secs_f64(),
            refusals: self.refusals.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
            latency_added_s: tender
                .map_or(0.0, |tender| tender.policy().pacer().latency_added().as_secs_f64()),
        }
    }

    fn state(&self, now: Duration) -> (State, Option<String>) {
        let tender = match &self.work {
            Work::Off(reason) => return (State::Off, Some(reason.clone())),
            Work::Steered(_) => return (State::Steered, self.steered()),
            Work::On { tender, .. } => tender,
        };
        if let Some(failure) = &self.failure {
            return (State::Failing, Some(failure.reason.clone()));
        }
        if self.lease.is_some() {
            return (State::Trimming, Some("trimtab trim does it".to_owned()));
        }
        if tender.pending().is_empty() {
            return (State::Idle, None);
        }
        let ended = tender.totals().last;
        if ended.is_some_and(|ended| now.saturating_sub(ended) < RECENT) {
            return (State::Trimming, None);
        }
        let reason = match tender.policy().pacer().is_idle() {
            true => "too little is pending to be worth a discard before it is as old as its goal",
            false => "others use its drive",
        };
        (State::Waiting, Some(reason.to_owned()))
    }
}
