//! Helpers that the tests of replays share.

use std::sync::LazyLock;

use trimtab_core::trace::{InMemory, TraceEvent, TraceHeader};

static HEADER: LazyLock<TraceHeader> = LazyLock::new(|| TraceHeader::new("a test"));

/// Events from memory, seven at a time.
pub fn in_memory(events: &[TraceEvent]) -> InMemory<'_> {
    InMemory::new(&HEADER, events, 7)
}
