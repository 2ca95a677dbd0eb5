//! A trace whose events are in memory.

use std::convert::Infallible;
use std::slice::Chunks;

use super::{TraceEvent, TraceHeader, TraceSource};

/// Events from memory, some at a time.
#[derive(Debug)]
pub struct InMemory<'a> {
    header: &'a TraceHeader,
    batches: Chunks<'a, TraceEvent>,
}

impl<'a> InMemory<'a> {
    /// The trace of `events` with `header`. It hands out `batch` of them at a time, which is above 0.
    pub fn new(header: &'a TraceHeader, events: &'a [TraceEvent], batch: usize) -> Self {
        Self { header, batches: events.chunks(batch) }
    }
}

impl TraceSource for InMemory<'_> {
    type Error = Infallible;
    fn header(&self) -> &TraceHeader {
        self.header
    }
    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), Infallible> {
        batch.clear();
        batch.extend_from_slice(self.batches.next().unwrap_or_default());
        Ok(())
    }
}
