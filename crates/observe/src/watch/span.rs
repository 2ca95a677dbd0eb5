//! The events of a stretch of time.

use std::collections::BTreeMap;

use trimtab_core::Bytes;
use trimtab_core::trace::{DeviceIndex, FsIndex, Kind, Summary, Tally, TraceEvent};

use super::causes::{Cause, Causes};

/// Whose events: a device's requests, or a file system's frees and allocations.
pub type Key = (DeviceIndex, Option<FsIndex>, Kind);

/// Totals of a stretch.
#[derive(Debug, Default)]
pub struct Span {
    pub summary: Summary,
    /// How many of each length, for medians. The lengths are few: a device's requests have a
    /// longest one, and a file system frees whole blocks of one group at a time.
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

    /// The tally of one kind, if there was any.
    pub fn tally(&self, key: Key) -> Option<&Tally> {
        self.summary
            .tallies()
            .find(|(device, fs, kind, _)| (*device, *fs, *kind) == key)
            .map(|(.., tally)| tally)
    }

    /// The shortest length that at least half of the events don't exceed.
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
