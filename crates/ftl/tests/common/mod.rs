//! Helpers that the tests of replays share.

use std::convert::Infallible;

use trimtab_core::trace::{TraceEvent, TraceHeader, TraceSource};

/// Events from memory, some at a time.
pub struct Memory<'a> {
    header: TraceHeader,
    batches: std::slice::Chunks<'a, TraceEvent>,
}

impl<'a> Memory<'a> {
    pub fn new(events: &'a [TraceEvent]) -> Self {
        Self { header: TraceHeader::new("a test"), batches: events.chunks(7) }
    }
}

impl TraceSource for Memory<'_> {
    type Error = Infallible;
    fn header(&self) -> &TraceHeader {
        &self.header
    }
    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), Infallible> {
        batch.clear();
        batch.extend_from_slice(self.batches.next().unwrap_or_default());
        Ok(())
    }
}
