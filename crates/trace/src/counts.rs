//! Counts the records that were read, and their fate.

use std::collections::BTreeMap;
use std::fmt;

use trimtab_core::trace::TraceSource;

use crate::error::TraceError;

/// A trace that is being read from a file.
pub trait TraceReader: TraceSource<Error = TraceError> {
    /// Returns the counts so far.
    fn counts(&self) -> &ReadCounts;
}

/// The counts of a file: every record became an event, or was skipped for a reason.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadCounts {
    /// Lines of a text, records of a binary file, rows of a table.
    pub records: u64,
    /// Events made of them.
    pub events: u64,
    /// Records that made no event, by what they were.
    pub skipped: BTreeMap<&'static str, u64>,
}

impl ReadCounts {
    /// Counts a record that makes no event.
    pub(crate) fn skip(&mut self, what: &'static str) {
        *self.skipped.entry(what).or_default() += 1;
    }
}

impl fmt::Display for ReadCounts {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "records {}, events {}", self.records, self.events)?;
        let mut separator = "; skipped: ";
        self.skipped.iter().try_for_each(|(what, count)| {
            write!(f, "{}{what} {count}", std::mem::replace(&mut separator, ", "))
        })
    }
}
