//! The write buffer: a ring of the instants at which its pages are on flash.

use trimtab_core::{Nanos, Pages};

/// A drive's write buffer. Slots are taken in order, each free again once its page is on flash.
pub(crate) struct WriteBuffer {
    /// When each slot is free again.
    slots: Vec<Nanos>,
    next: usize,
    empty: Nanos,
}

impl WriteBuffer {
    /// A buffer of `size` pages; 0 is taken for 1.
    pub(crate) fn new(size: Pages) -> Self {
        Self { slots: vec![Nanos::ZERO; size.0.max(1) as usize], next: 0, empty: Nanos::ZERO }
    }

    /// When the next `count` slots are free; of a run longer than the buffer, when all are.
    pub(crate) fn room_at(&self, count: u32) -> Nanos {
        let (wrapped, straight) = self.slots.split_at(self.next);
        straight.iter().chain(wrapped).take(count as usize).copied().fold(Nanos::ZERO, Nanos::max)
    }

    /// Takes the next `count` slots until `drained`.
    pub(crate) fn fill(&mut self, count: u32, drained: Nanos) {
        for _ in 0..count {
            self.slots[self.next] = drained;
            self.next = if self.next + 1 == self.slots.len() { 0 } else { self.next + 1 };
        }
        self.empty = self.empty.max(drained);
    }

    /// When all that was written is on flash.
    pub(crate) fn empty_at(&self) -> Nanos {
        self.empty
    }
}
