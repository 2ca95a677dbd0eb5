//! File systems that discard by themselves, with settings that hold the goals.

use std::fs;
use std::path::{Path, PathBuf};

use trimtab_core::Bytes;
use trimtab_core::error::chain;
use trimtab_core::policy::{Gain, Goals, Worth};
use trimtab_linux::file::{Output, OutputError, read_regular};
use trimtab_linux::steer::{Pace, SteerError, Steering};

use super::{ManagedFileSystem, OffReason, Work};
use crate::service::config::ServicePolicy;
use crate::service::log::{Log, LogEvent};
use crate::service::storage::Exclusion;
use crate::service::timeout::with_timeout;
use crate::trimmer::{MountedTrimmer, Trimmer};

/// The prefix of the files that save the original settings.
const SAVED: &str = "knobs-";
/// The maximum size of such a file in bytes.
const MAX_SIZE: u64 = 1 << 20;

/// Steers the discards of a file system. Dropping it restores the original settings. Until then a file saves
/// them, so that the next service can restore them if this one is killed.
pub(super) struct Steered {
    // Dropped in this order.
    steering: Steering,
    _saved: SavedFile,
}

/// Why the discards of a file system can't be steered.
#[derive(Debug, thiserror::Error)]
pub(in crate::service) enum SteeringError {
    /// Its settings can't be read or changed.
    #[error(transparent)]
    Steer(#[from] SteerError),
    /// The original settings can't be encoded.
    #[error("cannot encode the original settings")]
    Encode(#[from] serde_json::Error),
    /// The original settings can't be saved.
    #[error(transparent)]
    Save(#[from] OutputError),
}

/// A file that is removed on drop.
struct SavedFile(PathBuf);

impl Drop for SavedFile {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

impl Steered {
    fn start(steering: Steering, path: PathBuf) -> Result<Self, SteeringError> {
        let saved = SavedFile(path);
        let text = serde_json::to_vec(&steering)?;
        Output::open_private(&saved.0).and_then(|file| file.replace(&text))?;
        let steered = Self { steering, _saved: saved };
        steered.steering.set()?;
        Ok(steered)
    }
}

/// Restores the settings that a killed service changed; it saved the original ones in `run`.
pub(in crate::service) fn restore_knobs(run: &Path, log: Log) {
    for entry in fs::read_dir(run).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(SAVED) {
            continue;
        }
        let saved = SavedFile(entry.path());
        // If the file is incomplete, no setting was changed.
        let text = read_regular(&saved.0, MAX_SIZE).ok();
        let steering = text.and_then(|text| serde_json::from_slice::<Steering>(&text).ok());
        if let Some(Err(error)) = steering.map(Steering::stop) {
            log.warning(
                LogEvent::KnobNotRestored,
                "cannot restore a setting that a killed service changed",
                &[("error", &chain(&error))],
            );
        }
    }
}

impl ManagedFileSystem {
    /// Steers the file system's own discards to hold the goals. Returns `None` if the configuration or its
    /// storage rules that out, or if it has no settings for it.
    pub(super) fn steer(
        &self,
        policy: ServicePolicy,
        off: Option<&Exclusion>,
    ) -> Result<Option<Steered>, OffReason> {
        let is_wanted = match off {
            None => {
                policy == ServicePolicy::Smart
                    && self.found.discards_by_itself()
                    && !self.storage.drops_parts()
            }
            Some(off) => matches!(off, Exclusion::ByItself(_)),
        };
        if !is_wanted {
            return Ok(None);
        }
        let worth = self.beginning(self.settings.goals)?.worth();
        let pace = || {
            let shortest = match self.storage.gain() {
                Gain::Space { chunk } => chunk,
                Gain::Copies => {
                    let mut trimmer = MountedTrimmer::new(self.found.mount.target.clone(), Vec::new());
                    let free = with_timeout(move || trimmer.free()).unwrap_or_default();
                    worth.thresholds(free, Bytes::ZERO).idle
                }
            };
            pace(&self.settings.goals, &worth, shortest)
        };
        let sysfs = self.context.machine.sysfs();
        let plan = Steering::plan(&sysfs, &self.found.mount, pace).map_err(SteeringError::from)?;
        let path = self.context.run.join(format!("{SAVED}{}.json", self.found.number()));
        Ok(plan.map(|plan| Steered::start(plan, path)).transpose()?)
    }

    /// Returns the chosen settings as text; `None` if it is not steered.
    pub fn steered(&self) -> Option<String> {
        let Work::Steered(Steered { steering, .. }) = &self.work else { return None };
        let knobs = steering.knobs().iter().map(|(knob, _)| format!("{} = {}", knob.file, knob.value));
        Some(knobs.collect::<Vec<_>>().join(", "))
    }
}

/// Returns what discards on a drive may cost by the goals, if they are worth it from the length `shortest`
/// on. If even the shortest takes longer than the goals allow, it is also the longest.
fn pace(goals: &Goals, worth: &Worth, shortest: Bytes) -> Pace {
    let longest = if worth.shortest() <= goals.max_latency_added {
        worth.longest_within(goals.max_latency_added)
    } else {
        shortest
    };
    Pace {
        max_latency: goals.max_latency_added,
        max_share: goals.max_busy_share,
        max_age: goals.max_age,
        longest,
        takes: worth.time(longest),
        shortest,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trimtab_core::profile::Profile;

    use super::*;

    /// Returns the pace on a drive with this profile and this limit for the added latency.
    fn paced(profile: &str, max_latency_added: Duration) -> Pace {
        let goals = Goals { max_latency_added, max_busy_share: 0.25, ..Goals::default() };
        let worth = Worth::new(&Profile::named(profile).unwrap(), Bytes(64 << 30));
        pace(&goals, &worth, Bytes(64 << 10))
    }

    #[test]
    fn longest_discard_is_as_long_as_the_goals_allow() {
        let limit = Duration::from_millis(20);
        let pace = paced("micron-m500it", limit);
        assert_eq!((pace.max_latency, pace.max_share, pace.max_age), (limit, 0.25, Goals::default().max_age));
        assert!(pace.takes <= limit && pace.longest > pace.shortest, "{pace:?}");
        let half = paced("micron-m500it", limit / 2);
        assert!(half.longest < pace.longest && half.takes < pace.takes, "{half:?}");
    }

    #[test]
    fn drive_too_slow_for_the_goals_gets_the_shortest_worthwhile_discards() {
        let limit = Duration::from_micros(1);
        let pace = paced("ocz-agility-3", limit);
        assert_eq!((pace.longest, pace.shortest), (Bytes(64 << 10), Bytes(64 << 10)));
        assert!(pace.takes > limit, "{pace:?}");
    }
}
