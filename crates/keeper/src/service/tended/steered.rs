//! File systems that discard by themselves, as the goals say.

use trimtab_core::Bytes;
use trimtab_core::policy::{Gain, Goals, Worth};
use trimtab_linux::stack::Machine;
use trimtab_linux::steer::{Pace, Steering};

use super::{Tended, Work, chain};
use crate::service::config::ServicePolicy;
use crate::service::ground::Off;
use crate::trims::{MountedTrims, Trims};

impl Tended {
    /// Has the file system's own discards hold the goals, unless it is to be left alone or trimmed whole
    /// all the same; none where it has no knobs for that.
    pub(super) fn steer(
        &self,
        machine: &Machine,
        policy: ServicePolicy,
        off: Option<&Off>,
    ) -> Result<Option<Steering>, String> {
        let may_be = match off {
            None => policy == ServicePolicy::Smart && self.found.discards_by_itself(),
            Some(off) => matches!(off, Off::ByItself(_)),
        };
        if !may_be {
            return Ok(None);
        }
        let worth = self.worth(machine)?;
        let shortest = match self.ground.gain() {
            Gain::Space { chunk } => chunk,
            Gain::Copies => {
                let free = MountedTrims::new(self.found.mount.target.clone(), Vec::new()).free();
                worth.thresholds(free, Bytes::ZERO).idle
            }
        };
        let pace = pace(&self.settings.goals, &worth, shortest);
        Steering::start(&machine.sysfs(), &self.found.mount, &pace)
            .map_err(|error| Off::Unsteerable(chain(&error)).to_string())
    }

    /// What the knobs of its own discards are set to; none where they aren't.
    pub fn steered(&self) -> Option<String> {
        let Work::Steered(steering) = &self.work else { return None };
        let knobs = steering.knobs().iter().map(|(knob, _)| format!("{} = {}", knob.file, knob.value));
        Some(knobs.collect::<Vec<_>>().join(", "))
    }
}

/// What discards on a drive may cost by the goals, where they are worth it from `shortest` on. Where even
/// the shortest takes longer than the goals allow, that is what is sent.
fn pace(goals: &Goals, worth: &Worth, shortest: Bytes) -> Pace {
    let longest = worth.longest_within(goals.max_latency_added).unwrap_or(shortest);
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
