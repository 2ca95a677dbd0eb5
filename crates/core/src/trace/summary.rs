//! The totals of a stretch of a trace.

use std::collections::BTreeMap;

use super::event::{DeviceIndex, EventKind, FsIndex, TraceEvent};
use crate::stats::{Latencies, SizeHistogram};
use crate::units::Bytes;

/// Totals of events, by device, file system and kind. Summaries of stretches merge.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    tallies: BTreeMap<(DeviceIndex, Option<FsIndex>, EventKind), Tally>,
}

/// Totals of one kind of event.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// Bytes they named; the most there can be where they name more.
    pub bytes: Bytes,
    /// How many ended with an error.
    pub errors: u64,
    /// Their sizes.
    pub sizes: SizeHistogram,
    /// How long they took, where that is known.
    pub latencies: Latencies,
}

impl Summary {
    /// Counts one event.
    pub fn record(&mut self, event: &TraceEvent) {
        self.tallies.entry((event.device, event.fs, event.kind)).or_default().record(event);
    }

    /// Adds another stretch.
    pub fn merge(&mut self, other: &Self) {
        for (key, tally) in &other.tallies {
            self.tallies.entry(*key).or_default().merge(tally);
        }
    }

    /// Every tally, by device, file system and kind.
    pub fn tallies(&self) -> impl Iterator<Item = (DeviceIndex, Option<FsIndex>, EventKind, &Tally)> {
        self.tallies.iter().map(|((device, fs, kind), tally)| (*device, *fs, *kind, tally))
    }

    /// All events of a kind, whatever the device and file system.
    pub fn of(&self, kind: EventKind) -> Tally {
        let mut all = Tally::default();
        self.tallies().filter(|(_, _, of, _)| *of == kind).for_each(|(_, _, _, tally)| all.merge(tally));
        all
    }

    /// How many events in all.
    pub fn total(&self) -> u64 {
        self.tallies.values().map(|tally| tally.count).sum()
    }
}

impl Tally {
    fn record(&mut self, event: &TraceEvent) {
        self.count += 1;
        self.bytes = Bytes(self.bytes.0.saturating_add(event.extent.len().0));
        self.errors += u64::from(event.error != 0);
        self.sizes.record(event.extent.len());
        if let Some(latency) = event.latency {
            self.latencies.record(latency);
        }
    }

    /// Adds the events of another tally.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes = Bytes(self.bytes.0.saturating_add(other.bytes.0));
        self.errors += other.errors;
        self.sizes.merge(&other.sizes);
        self.latencies.merge(&other.latencies);
    }

    /// The mean size; none of none.
    pub fn mean_size(&self) -> Option<Bytes> {
        self.bytes.0.checked_div(self.count).map(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::Extent;
    use crate::trace::Comm;
    use crate::units::Nanos;

    fn event(device: u16, kind: EventKind, length: u64, latency: Option<u64>) -> TraceEvent {
        TraceEvent {
            at: Nanos(7),
            device: DeviceIndex(device),
            kind,
            extent: Extent::at(Bytes(4096), Bytes(length)),
            latency: latency.map(Nanos),
            process: Comm::default(),
            error: 0,
            fs: None,
        }
    }

    #[test]
    fn stretches_merge_to_the_whole() {
        let events = [
            event(0, EventKind::Discard, 4096, Some(10_000)),
            event(1, EventKind::Discard, 8192, Some(30_000)),
            event(0, EventKind::Read, 4096, None),
            TraceEvent { error: 5, ..event(0, EventKind::Discard, 4096, Some(20_000)) },
        ];
        let mut parts = [Summary::default(), Summary::default()];
        for (place, event) in events.iter().enumerate() {
            parts[place % 2].record(event);
        }
        let [mut whole, rest] = parts;
        whole.merge(&rest);
        let discards = whole.of(EventKind::Discard);
        assert_eq!((discards.count, discards.bytes, discards.errors), (3, Bytes(16_384), 1));
        assert_eq!(discards.mean_size(), Some(Bytes(5461)));
        let latency = discards.latencies.summary();
        assert_eq!((latency.count, latency.p50_ns.0 / 100), (3, 200));
        assert_eq!(whole.total(), 4);
        assert_eq!(whole.tallies().count(), 3);
        assert_eq!(Summary::default().of(EventKind::Free).mean_size(), None);
        (0..5).for_each(|_| whole.record(&event(0, EventKind::Free, 1 << 62, None)));
        assert_eq!(whole.of(EventKind::Free).bytes, Bytes(u64::MAX), "a hostile trace is no overflow");
    }
}
