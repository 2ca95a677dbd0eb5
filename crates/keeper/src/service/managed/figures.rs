//! The status of a managed file system.

use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::status::{FileSystemStatus, State};
use trimtab_core::error::chain;
use trimtab_linux::block::BlockDevice;

use super::{ManagedFileSystem, Work};
use crate::pause::in_seconds;
use crate::service::config::ServicePolicy;
use crate::service::mounts::MountedFileSystem;
use crate::service::survey::own_discards;

/// How long after a trim a file system counts as being trimmed.
const RECENT: Duration = Duration::from_secs(2);

impl ManagedFileSystem {
    /// Returns its status.
    pub fn status(&self, now: Duration) -> FileSystemStatus {
        let MountedFileSystem { mount, .. } = &self.found;
        let driver = match &self.work {
            Work::On { driver, .. } => Some(driver),
            Work::Off(_) | Work::Steered(_) => None,
        };
        let pending = driver.map(|driver| driver.pending());
        let totals = self.totals();
        let (state, reason) = self.state(now);
        let unmanaged = match &self.work {
            Work::Off(reason) => Some(reason.kind().to_owned()),
            Work::On { .. } | Work::Steered(_) => None,
        };
        // The kernel counts from its start on, and a trim may have been before that.
        let is_sent = driver.is_some() && !totals.took.is_zero();
        let rfc3339 = |at| humantime::format_rfc3339_seconds(at).to_string();
        let max_age = self.settings.goals.max_age.as_secs_f64();
        FileSystemStatus {
            mount: mount.target.display().to_string(),
            device: mount.source.display().to_string(),
            fs: mount.fstype.clone(),
            policy: self.policy.to_string(),
            state,
            reason,
            unmanaged,
            unread: driver.is_some() && self.unread().is_some(),
            pending: pending.map_or(Bytes::ZERO, |pending| pending.len()),
            pending_extents: pending.map_or(0, |pending| pending.iter().count() as u64),
            oldest_s: pending
                .and_then(|pending| pending.oldest())
                .map(|since| now.saturating_sub(since).as_secs_f64()),
            max_age_s: (driver.is_some() && self.policy == ServicePolicy::Smart).then_some(max_age),
            last_trim: self.statistics.last_trim.map(rfc3339),
            trimmed: totals.bytes,
            discards: totals.discards,
            trim_s: totals.took.as_secs_f64(),
            refusals: self
                .statistics
                .failures
                .iter()
                .map(|(reason, count)| ((*reason).to_owned(), *count))
                .collect(),
            latency_added_s: driver
                .map_or(0.0, |driver| driver.policy().pacer().latency_added().as_secs_f64()),
            decision: driver
                .filter(|_| self.policy == ServicePolicy::Smart)
                .map(|driver| driver.policy().explain(now)),
            btrfs: self.btrfs.as_deref().and_then(own_discards),
            untrimmed: self.found.realtime_device().map(str::to_owned),
            uncounted: if is_sent { BlockDevice::hiding_discards(&self.devices()) } else { Vec::new() },
        }
    }

    fn state(&self, now: Duration) -> (State, Option<String>) {
        let driver = match &self.work {
            Work::Off(reason) => return (State::Off, Some(chain(reason))),
            Work::Steered(_) => return (State::Steered, self.steered()),
            Work::On { driver, .. } => driver,
        };
        if let Some(failure) = &self.failure {
            return (State::Failing, Some(failure.reason.clone()));
        }
        if self.lease.is_some() {
            return (State::Trimming, Some("by trimtab trim".to_owned()));
        }
        if self.is_paused(now) {
            let left = in_seconds(self.paused - now);
            return (
                State::Waiting,
                Some(format!("paused for another {left}; {} ends that", self.resumption)),
            );
        }
        if self.is_frozen {
            return (State::Waiting, Some("frozen (fsfreeze, or a snapshot below it)".to_owned()));
        }
        let unread = self.unread();
        if driver.pending().is_empty() {
            return (if unread.is_some() { State::Waiting } else { State::Idle }, unread);
        }
        let ended = driver.totals().last;
        let is_trimming = ended.is_some_and(|ended| now.saturating_sub(ended) < RECENT);
        let state = if is_trimming { State::Trimming } else { State::Waiting };
        let reason = match self.policy {
            ServicePolicy::Batched(_) => format!("{} of a full trim are left", driver.pending().len()),
            _ => driver.policy().explain(now).to_string(),
        };
        let reasons: Vec<_> = [Some(reason), unread].into_iter().flatten().collect();
        (state, Some(reasons.join("; ")))
    }
}
