//! File systems that discard by themselves, as the goals say.

use std::fs;
use std::path::{Path, PathBuf};

use trimtab_core::Bytes;
use trimtab_core::error::chain;
use trimtab_core::policy::{Gain, Goals, Worth};
use trimtab_linux::file::{Output, read_regular};
use trimtab_linux::steer::{Pace, Steering};

use super::{ManagedFileSystem, Work};
use crate::service::config::ServicePolicy;
use crate::service::log::{Log, LogEvent};
use crate::service::storage::Off;
use crate::trims::{MountedTrims, Trims};

/// What the names of files begin with that keep what knobs held.
const KEPT: &str = "knobs-";
/// The most bytes of such a file.
const MOST: u64 = 1 << 20;

/// Discards that are steered. Dropping it puts the knobs back; what they held is kept until then, for the
/// service that follows one which is killed.
pub(super) struct Steered {
    // In this order they go.
    steering: Steering,
    _kept: Kept,
}

/// A file that goes when this does.
struct Kept(PathBuf);

impl Drop for Kept {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.0);
    }
}

impl Steered {
    fn start(steering: Steering, kept: PathBuf) -> Result<Self, String> {
        let kept = Kept(kept);
        let text = serde_json::to_vec(&steering).map_err(|error| chain(&error))?;
        let written = Output::open_private(&kept.0).and_then(|file| file.replace(&text));
        written.map_err(|error| chain(&error))?;
        let steered = Self { steering, _kept: kept };
        let set = steered.steering.set();
        set.map(|()| steered).map_err(|error| chain(&error))
    }
}

/// Puts back the knobs that a service had set which was killed. It kept what they held in `run`.
pub(in crate::service) fn put_back_knobs(run: &Path, log: Log) {
    for entry in fs::read_dir(run).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(KEPT) {
            continue;
        }
        let kept = Kept(entry.path());
        // Where not all of it was written, no knob was set.
        let text = read_regular(&kept.0, MOST).ok();
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
    /// Has the file system's own discards hold the goals, unless it is to be left alone or trimmed whole
    /// all the same; none where it has no knobs for that.
    pub(super) fn steer(&self, policy: ServicePolicy, off: Option<&Off>) -> Result<Option<Steered>, String> {
        let may_be = match off {
            None => policy == ServicePolicy::Smart && self.found.discards_by_itself(),
            Some(off) => matches!(off, Off::ByItself(_)),
        };
        if !may_be {
            return Ok(None);
        }
        let worth = self.worth()?;
        let shortest = match self.storage.gain() {
            Gain::Space { chunk } => chunk,
            Gain::Copies => {
                let free = MountedTrims::new(self.found.mount.target.clone(), Vec::new()).free();
                worth.thresholds(free, Bytes::ZERO).idle
            }
        };
        let pace = pace(&self.settings.goals, &worth, shortest);
        let sysfs = self.context.machine.sysfs();
        let plan = Steering::plan(&sysfs, &self.found.mount, &pace).map_err(|error| chain(&error));
        let kept = self.context.run.join(format!("{KEPT}{}.json", self.found.number()));
        let steered = plan.and_then(|plan| plan.map(|plan| Steered::start(plan, kept)).transpose());
        steered.map_err(|reason| Off::Unsteerable(reason).to_string())
    }

    /// What the knobs of its own discards are set to; none where they aren't.
    pub fn steered(&self) -> Option<String> {
        let Work::Steered(Steered { steering, .. }) = &self.work else { return None };
        let knobs = steering.knobs().iter().map(|(knob, _)| format!("{} = {}", knob.file, knob.value));
        Some(knobs.collect::<Vec<_>>().join(", "))
    }
}

/// What discards on a drive may cost by the goals, where they are worth it from `shortest` on. Where even
/// the shortest takes longer than the goals allow, that is what is sent.
fn pace(goals: &Goals, worth: &Worth, shortest: Bytes) -> Pace {
    let longest = match worth.shortest() <= goals.max_latency_added {
        true => worth.longest_within(goals.max_latency_added),
        false => shortest,
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

    /// The pace on a drive with such a profile, where discards may hold it for so long at once.
    fn paced(profile: &str, max_latency_added: Duration) -> Pace {
        let goals = Goals { max_latency_added, max_busy_share: 0.25, ..Goals::default() };
        let worth = Worth::new(&Profile::named(profile).unwrap(), Bytes(64 << 30));
        pace(&goals, &worth, Bytes(64 << 10))
    }

    #[test]
    fn the_longest_discard_is_as_long_as_the_goals_allow() {
        let limit = Duration::from_millis(20);
        let pace = paced("micron-m500it", limit);
        assert_eq!((pace.max_latency, pace.max_share, pace.max_age), (limit, 0.25, Goals::default().max_age));
        assert!(pace.takes <= limit && pace.longest > pace.shortest, "{pace:?}");
        let half = paced("micron-m500it", limit / 2);
        assert!(half.longest < pace.longest && half.takes < pace.takes, "{half:?}");
    }

    #[test]
    fn a_drive_that_is_too_slow_for_the_goals_gets_the_shortest_that_are_worth_it() {
        let limit = Duration::from_micros(1);
        let pace = paced("ocz-agility-3", limit);
        assert_eq!((pace.longest, pace.shortest), (Bytes(64 << 10), Bytes(64 << 10)));
        assert!(pace.takes > limit, "{pace:?}");
    }
}
