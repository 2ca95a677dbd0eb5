//! Guests that stay on one processor of this machine.
//!
//! The kernel and the processes of User Mode Linux take turns. On two processors each turn would wake the other one,
//! which takes twice the processor time and the wall time.

use std::process::Child;
use std::sync::{LazyLock, Mutex, PoisonError};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// The processors that guests of this process stay on.
static TAKEN: LazyLock<Mutex<CpuSet>> = LazyLock::new(Mutex::default);

/// A processor that a guest stays on, until this is dropped.
#[derive(Debug)]
pub(super) struct OneProcessor(usize);

impl OneProcessor {
    /// Keeps `child`, and all that it starts from now on, on a processor that no other guest of this process has: that
    /// of the calling thread, if possible. Does nothing if all have guests, or if the
    /// kernel refuses.
    pub(super) fn keep(child: &Child) -> Option<Self> {
        let allowed = sched_getaffinity(None).ok()?;
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let free = next(&allowed, &taken, sched_getcpu())?;
        let mut only = CpuSet::new();
        only.set(free);
        sched_setaffinity(Some(Pid::from_child(child)), &only).ok()?;
        taken.set(free);
        Some(Self(free))
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).unset(self.0);
    }
}

/// The first processor from `wanted` on that is allowed and not taken.
fn next(allowed: &CpuSet, taken: &CpuSet, wanted: usize) -> Option<usize> {
    let all = CpuSet::MAX_CPU;
    (0..all).map(|step| (wanted + step) % all).find(|cpu| allowed.is_set(*cpu) && !taken.is_set(*cpu))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guest_has_a_processor_of_its_own() {
        let set = |cpus: &[usize]| {
            let mut set = CpuSet::new();
            cpus.iter().for_each(|cpu| set.set(*cpu));
            set
        };
        let allowed = set(&[1, 2, 5]);
        assert_eq!(next(&allowed, &set(&[]), 2), Some(2));
        assert_eq!(next(&allowed, &set(&[2]), 2), Some(5));
        assert_eq!(next(&allowed, &set(&[2, 5]), 2), Some(1));
        assert_eq!(next(&allowed, &set(&[1, 2, 5]), 0), None);
    }
}
