//! The discards that a drive works on.

use trimtab_core::profile::Discard;
use trimtab_core::{Bytes, Nanos};

/// The effect of a discard command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unmapped {
    /// The bytes that had data.
    pub(crate) bytes: Bytes,
    /// The ranges that lost a mapping.
    pub(crate) ranges: u64,
    /// When the map of all it names was in memory.
    pub(crate) known: Nanos,
}

/// The discards that a drive works on at once, each with the instant at which it ends. More wait for the first
/// to end.
pub(crate) struct Outstanding(Vec<Nanos>);

impl Outstanding {
    /// As many as a drive with these discards works on.
    pub(crate) fn new(discard: &Discard) -> Self {
        let depth = discard.queue_depth.as_ref().map_or(1, |depth| depth.value);
        Self(vec![Nanos::ZERO; depth as usize])
    }

    /// Works on a discard that takes `cost` from `ready`, or from when the first of others ends; returns when
    /// it does.
    #[inline]
    pub(crate) fn add(&mut self, ready: Nanos, cost: Nanos) -> Nanos {
        let first = self.0.iter_mut().min().expect("a drive works on one discard at least");
        *first = ready.max(*first) + cost;
        *first
    }
}
