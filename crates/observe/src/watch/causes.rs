//! Counts events by process.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use trimtab_core::Bytes;
use trimtab_core::trace::{Comm, EventKind};

/// The most process names that are counted separately.
const LIMIT: usize = 1 << 10;
/// The name of all other processes.
const OTHERS: &[u8] = b"(others)";

/// The events of one kind that a process caused.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cause {
    pub count: u64,
    pub bytes: Bytes,
}

/// Events by process name and kind, in bounded memory: when there are too many names, those with the fewest
/// discards, then frees, then other events are merged into one.
#[derive(Debug)]
pub struct Causes {
    by_name: BTreeMap<Comm, BTreeMap<EventKind, Cause>>,
    limit: usize,
}

impl Default for Causes {
    fn default() -> Self {
        Self { by_name: BTreeMap::new(), limit: LIMIT }
    }
}

impl Causes {
    pub fn add(&mut self, name: Comm, kind: EventKind, more: Cause) {
        let sum = self.by_name.entry(name).or_default().entry(kind).or_default();
        sum.count += more.count;
        sum.bytes += more.bytes;
        if self.by_name.len() > self.limit {
            self.fold();
        }
    }

    pub fn merge(&mut self, later: &Self) {
        for (name, kinds) in later.iter() {
            kinds.iter().for_each(|(kind, cause)| self.add(*name, *kind, *cause));
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Comm, &BTreeMap<EventKind, Cause>)> {
        self.by_name.iter()
    }

    /// Merges names until half the limit is left.
    fn fold(&mut self) {
        let mut all: Vec<_> = std::mem::take(&mut self.by_name).into_iter().collect();
        all.sort_by_cached_key(|(_, kinds)| {
            let count = |kind| kinds.get(&kind).map_or(0, |cause: &Cause| cause.count);
            let all = kinds.values().map(|cause| cause.count).sum::<u64>();
            Reverse((count(EventKind::Discard), count(EventKind::Free), all))
        });
        let others = all.split_off(self.limit / 2);
        self.by_name = all.into_iter().collect();
        for (kind, cause) in others.into_iter().flat_map(|(_, kinds)| kinds) {
            self.add(Comm::new(OTHERS), kind, cause);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn names_are_bounded_and_every_event_is_counted(
            limit in 2usize..12,
            events in prop::collection::vec((0u32..40, prop::bool::ANY, 1u64..9), 0..200),
        ) {
            let mut causes = Causes { limit, ..Causes::default() };
            let mut totals = BTreeMap::<EventKind, (u64, Bytes)>::new();
            let discarder = Comm::new(b"fstrim");
            for (name, is_free, kib) in &events {
                let kind = if *is_free { EventKind::Free } else { EventKind::Write };
                causes.add(Comm::new(format!("kworker/{name}").as_bytes()), kind, Cause { count: 1, bytes: Bytes(*kib) });
                causes.add(discarder, EventKind::Discard, Cause { count: 1, bytes: Bytes(1) });
                let (count, bytes) = totals.entry(kind).or_default();
                *count += 1;
                *bytes += Bytes(*kib);
                prop_assert!(causes.iter().count() <= limit);
            }
            for (kind, total) in totals {
                let counted: Vec<_> = causes.iter().filter_map(|(_, kinds)| kinds.get(&kind)).collect();
                let count = counted.iter().map(|cause| cause.count).sum::<u64>();
                prop_assert_eq!((count, counted.iter().map(|cause| cause.bytes).sum()), total);
            }
            let discards = causes.by_name.get(&discarder).map_or(0, |kinds| kinds[&EventKind::Discard].count);
            prop_assert_eq!(discards, events.len() as u64);
        }
    }
}
