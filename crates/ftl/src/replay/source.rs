//! Where the discards of a replay come from.

use trimtab_core::policy::Policy;
use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Nanos};

use super::recorded::Recorded;

/// Where discards come from.
pub enum Discards {
    /// They are the trace's own.
    Trace,
    /// This policy makes them of what is freed.
    Policy(Box<dyn Policy>),
    /// There are none: the drive knows at once of all that is free, which takes no time. What it is then
    /// like bounds what any policy can make of it, but for chance in what garbage collection picks.
    Ideal,
}

/// The source of discards.
pub(super) enum Source {
    Recorded(Recorded),
    Policy(Box<dyn Policy>),
    Ideal {
        /// The size of the pages that the drive maps.
        page: Bytes,
    },
}

impl Source {
    /// The source that `discards` names, on a drive of this profile.
    pub(super) fn new(discards: Discards, profile: &Profile) -> Self {
        match discards {
            Discards::Trace => Self::Recorded(Recorded::default()),
            Discards::Policy(policy) => Self::Policy(policy),
            Discards::Ideal => Self::Ideal { page: profile.geometry.mapping_page.value },
        }
    }

    /// Whether a policy asks again for what is refused.
    pub(super) fn takes_refusals(&self) -> bool {
        matches!(self, Self::Policy(policy) if policy.takes_refusals())
    }

    /// When a policy wants to be woken, on its clock; never where that is past the end of all time.
    pub(super) fn next_wake(&self) -> Option<Nanos> {
        match self {
            Self::Policy(policy) => {
                let at = policy.next_wake()?.as_nanos().try_into().ok()?;
                (at < u64::MAX).then_some(Nanos(at))
            }
            Self::Recorded(_) | Self::Ideal { .. } => None,
        }
    }

    /// Whether the drive knows of all that is free.
    pub(super) fn knows_all(&self) -> bool {
        matches!(self, Self::Ideal { .. })
    }
}
