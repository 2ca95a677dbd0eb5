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
    #[inline]
    pub(crate) fn room_at(&self, count: u32) -> Nanos {
        let mut slot = self.next;
        let mut free = Nanos::ZERO;
        for _ in 0..count {
            free = free.max(self.slots[slot]);
            slot = self.after(slot);
        }
        free
    }

    /// Takes the next `count` slots until `drained`.
    #[inline]
    pub(crate) fn fill(&mut self, count: u32, drained: Nanos) {
        for _ in 0..count {
            self.slots[self.next] = drained;
            self.next = self.after(self.next);
        }
        self.empty = self.empty.max(drained);
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// When all that was written is on flash.
    pub(crate) fn empty_at(&self) -> Nanos {
        self.empty
    }
}
