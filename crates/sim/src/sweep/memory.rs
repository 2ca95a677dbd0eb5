//! The memory that the cells in flight may take together.

use std::sync::{Condvar, Mutex, PoisonError};

use trimtab_core::Bytes;

/// Admits cells as long as their memory is within a budget; a cell that needs more runs alone.
#[derive(Debug)]
pub struct Memory {
    budget: Bytes,
    taken: Mutex<Bytes>,
    freed: Condvar,
}

/// A cell's memory, which is free again once this is dropped.
#[derive(Debug)]
pub struct Taken<'a> {
    memory: &'a Memory,
    bytes: Bytes,
}

impl Memory {
    /// A budget that is not touched yet.
    pub fn new(budget: Bytes) -> Self {
        Self { budget, taken: Mutex::new(Bytes::ZERO), freed: Condvar::new() }
    }

    /// Waits until `bytes` are within the budget, and takes them.
    pub fn take(&self, bytes: Bytes) -> Taken<'_> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken > Bytes::ZERO && *taken + bytes > self.budget {
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken += bytes;
        Taken { memory: self, bytes }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.memory.taken.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        self.memory.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn cells_in_flight_stay_within_the_budget() {
        let (memory, now, most) = (Memory::new(Bytes(10)), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for bytes in [4, 4, 4, 6, 10, 2] {
                let (memory, now, most) = (&memory, &now, &most);
                scope.spawn(move || {
                    let _taken = memory.take(Bytes(bytes));
                    most.fetch_max(now.fetch_add(bytes, Ordering::SeqCst) + bytes, Ordering::SeqCst);
                    thread::sleep(std::time::Duration::from_millis(2));
                    now.fetch_sub(bytes, Ordering::SeqCst);
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 10);
    }

    #[test]
    fn cell_above_the_budget_runs_alone() {
        let memory = Memory::new(Bytes(10));
        drop(memory.take(Bytes(100)));
        assert_eq!(*memory.taken.lock().unwrap(), Bytes::ZERO);
    }
}
