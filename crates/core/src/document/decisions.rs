//! A log of decisions of the policy smart: all that it was told, and what it answered, so that every decision
//! can be made again. Each line is a JSON value: first a [`DecisionsHead`], then [`DecisionsStep`]s in order.

use serde::{Deserialize, Serialize};

use crate::discard_units::DiscardUnits;
use crate::policy::{Event, Gain, Goals, LearnedCosts, SmartPolicy, TrimRequest, Worth};
use crate::profile::Profile;
use crate::units::{Bytes, Nanos};

/// The schema name of [`DecisionsHead`].
pub const DECISIONS_SCHEMA: &str = "trimtab/decisions/1";

/// The first line of a log of decisions: how the policy began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionsHead {
    /// [`DECISIONS_SCHEMA`].
    pub schema: String,
    /// The version of the service.
    pub version: String,
    /// The mount point of the file system.
    pub mount: String,
    /// The goals.
    pub goals: Goals,
    /// The kind of gain that discards have there.
    pub gain: Gain,
    /// The units in which its storage gives back space.
    #[serde(default)]
    pub units: DiscardUnits,
    /// The size of its devices.
    pub size: Bytes,
    /// The profile of its drive.
    pub profile: Profile,
    /// The costs of discards that were learned before; `None` if nothing was.
    pub learned: Option<LearnedCosts>,
}

/// A later line: what the policy was told, and what it answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionsStep {
    /// The time on the service's clock.
    pub at: Nanos,
    /// The event.
    pub event: Event,
    /// The trims that the policy requested.
    pub requests: Vec<TrimRequest>,
}

impl DecisionsHead {
    /// Returns what discards cost and save, as far as it was known.
    pub fn worth(&self) -> Worth {
        let mut worth = Worth::new(&self.profile, self.size);
        if let Some(learned) = self.learned {
            worth.remember(learned);
        }
        worth
    }

    /// Returns the policy as it began.
    pub fn policy(&self) -> SmartPolicy {
        SmartPolicy::new(self.goals, self.worth(), self.gain).with_units(self.units)
    }
}
