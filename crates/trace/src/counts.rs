//! Counts the records that were read, and their fate.

use std::collections::BTreeMap;
use std::fmt;

use trimtab_core::trace::TraceSource;

use crate::error::TraceError;

/// A trace that is being read from a file.
///
/// ```
/// use trimtab_core::trace::EventKind;
/// use trimtab_trace::{Columns, open};
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("fio.log");
/// let log = "fio version 3 iolog\n0 sda add\n0 sda open\n5 sda write 0 4096\n9 sda trim 0 4096\n";
/// std::fs::write(&path, log)?;
///
/// let mut reader = open(&path, None, Columns::All)?; // the content shows the format
/// let (mut batch, mut kinds) = (Vec::new(), Vec::new());
/// loop {
///     reader.next_batch(&mut batch)?;
///     if batch.is_empty() {
///         break; // the end of the trace
///     }
///     kinds.extend(batch.iter().map(|event| event.kind));
/// }
/// assert_eq!(kinds, [EventKind::Write, EventKind::Discard]);
/// assert_eq!(reader.counts().events, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TraceReader: TraceSource<Error = TraceError> {
    /// Returns the counts so far.
    fn counts(&self) -> &ReadCounts;
}

/// The counts of a file: every record became an event, or was skipped for a reason; a discard of several ranges became
/// one for each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadCounts {
    /// Lines of a text, records of a binary file, rows of a table.
    pub records: u64,
    /// Events made of them.
    pub events: u64,
    /// Events beyond the first of their records: the further ranges of discards.
    pub more_events: u64,
    /// Records that made no event, by what they were.
    pub skipped: BTreeMap<&'static str, u64>,
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
