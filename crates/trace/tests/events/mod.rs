//! The events of a trace, for tests of tables.

use std::path::Path;

use trimtab_core::trace::{EventKind, TraceEvent, TraceHeader};
use trimtab_trace::{Columns, TraceError, open};

/// Reads all events; every record must be one.
pub fn read(path: &Path) -> Result<(TraceHeader, Vec<TraceEvent>), TraceError> {
    let mut reader = open(path, None, Columns::All)?;
    let (mut events, mut batch) = (Vec::new(), Vec::new());
    loop {
        reader.next_batch(&mut batch)?;
        if batch.is_empty() {
            assert_eq!(reader.counts().records, reader.counts().events);
            return Ok((reader.header().clone(), events));
        }
        events.extend_from_slice(&batch);
    }
}

/// Time, kind, start, length and latency of an event.
pub type Brief = (u64, EventKind, u64, u64, Option<u64>);

pub fn brief(events: &[TraceEvent]) -> Vec<Brief> {
    let of = |event: &TraceEvent| {
        let latency = event.latency.map(|latency| latency.0);
        (event.at.0, event.kind, event.extent.start.0, event.extent.len().0, latency)
    };
    events.iter().map(of).collect()
}
