//! Totals of the events in a period.

use std::collections::BTreeMap;

use trimtab_core::Bytes;
use trimtab_core::trace::{DeviceIndex, EventKind, FsIndex, Summary, Tally, TraceEvent};

use super::causes::{Cause, Causes};

/// The source of events: a device's requests, or a file system's frees and allocations.
pub type Key = (DeviceIndex, Option<FsIndex>, EventKind);

/// The totals of a period.
#[derive(Debug, Default)]
pub struct Span {
    pub summary: Summary,
    /// The number of events of each length, for medians. There are few lengths: a device limits its requests,
    /// and a file system frees whole blocks of one group at a time.
    lengths: BTreeMap<Key, BTreeMap<Bytes, u64>>,
    pub causes: Causes,
}

impl Span {
    pub fn record(&mut self, event: &TraceEvent) {
        let length = event.extent.len();
        self.summary.record(event);
        let lengths = self.lengths.entry((event.device, event.fs, event.kind)).or_default();
        *lengths.entry(length).or_default() += 1;
        self.causes.add(event.process, event.kind, Cause { count: 1, bytes: length });
    }

    pub fn merge(&mut self, later: &Self) {
        self.summary.merge(&later.summary);
        for (key, lengths) in &later.lengths {
            let all = self.lengths.entry(*key).or_default();
            lengths.iter().for_each(|(length, count)| *all.entry(*length).or_default() += count);
        }
        self.causes.merge(&later.causes);
    }

    /// Returns the tally of one kind, if there were events.
    pub fn tally(&self, key: Key) -> Option<&Tally> {
        self.summary
            .tallies()
            .find(|(device, fs, kind, _)| (*device, *fs, *kind) == key)
            .map(|(.., tally)| tally)
    }

    /// Returns the median length.
    pub fn median_length(&self, key: Key) -> Option<Bytes> {
        let lengths = self.lengths.get(&key)?;
        let half = lengths.values().sum::<u64>().div_ceil(2);
        let mut seen = 0;
        lengths
            .iter()
            .find(|(_, count)| {
                seen += **count;
                seen >= half
            })
            .map(|(length, _)| *length)
    }
}
