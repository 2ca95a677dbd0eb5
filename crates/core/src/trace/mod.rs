//! Traces: time-ordered streams of block events and free events.
//!
//! A [`TraceEvent`] is what happened once, a [`TraceHeader`] what holds for the whole trace, and a
//! [`TraceSource`] hands out the events batch by batch, so that no one needs to hold a whole trace in
//! memory. Where events come from (the kernel, a file) and where they go is not this room's concern.

mod event;
mod header;
mod memory;
pub mod operation;
mod ranges;
mod summary;

pub use event::{Comm, DeviceIndex, EventKind, FsIndex, TraceEvent, UnknownKind};
pub use header::{TRACE_SCHEMA, TraceDevice, TraceFileSystem, TraceHeader};
pub use memory::InMemory;
pub use ranges::{Range, Ranges};
pub use summary::{Summary, Tally};

/// A stream of events in the order of their times.
pub trait TraceSource {
    /// Why it can't go on.
    type Error;

    /// The header of the trace. Fields that only its end has (its duration, lost events) are
    /// there when all events are read, if not before.
    fn header(&self) -> &TraceHeader;

    /// Replaces what `batch` holds with the next events, as many as suit the source; leaves it empty
    /// at the end.
    ///
    /// # Errors
    /// The error of the source; `batch` holds the events before it that weren't handed out yet, and
    /// those are good.
    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), Self::Error>;
}

impl<S: TraceSource + ?Sized> TraceSource for Box<S> {
    type Error = S::Error;
    fn header(&self) -> &TraceHeader {
        (**self).header()
    }
    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), S::Error> {
        (**self).next_batch(batch)
    }
}
