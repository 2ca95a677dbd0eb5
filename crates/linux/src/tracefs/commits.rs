//! Extents that an ext4 freed in a transaction of its journal. They can be reused, and trimmed, once that
//! transaction has been committed.
//!
//! A handle that frees blocks belongs to the running transaction. The journal reports that it flushes the
//! transaction (`jbd2_commit_flushing`) after its last handle has ended and before the next transaction's
//! first one begins. The blocks return to the allocator before the journal reports the end of the commit
//! (`jbd2_end_commit`); see `jbd2_journal_commit_transaction` in the kernel's `fs/jbd2/commit.c`. A journal
//! commits one transaction at a time.

use trimtab_core::{Bytes, Extent};

use super::devices::KernelNumber;
use trimtab_core::hash::FastMap;

/// The most extents that wait for one commit. Beyond that, the extents with the smallest gaps are joined: a
/// trim skips the blocks in the gaps that are not free.
const MOST_EXTENTS: usize = 1 << 15;

/// The extents that wait for a commit, by file system.
#[derive(Debug, Default)]
pub(super) struct Commits {
    journals: FastMap<KernelNumber, Journal>,
}

#[derive(Debug, Default)]
struct Journal {
    /// Freed in the running transaction.
    running: Vec<Extent>,
    /// Freed in the transaction that is being committed.
    committing: Vec<Extent>,
}

impl Commits {
    /// Tracks the commits of this file system from now on.
    pub fn follow(&mut self, number: KernelNumber) {
        self.journals.entry(number).or_default();
    }

    /// Forgets this file system and its waiting extents.
    pub fn forget(&mut self, number: KernelNumber) {
        self.journals.remove(&number);
    }

    /// Returns true if an extent of this file system waits for a commit.
    pub fn is_awaited(&self, number: KernelNumber) -> bool {
        let waits = |journal: &Journal| !journal.running.is_empty() || !journal.committing.is_empty();
        self.journals.get(&number).is_some_and(waits)
    }

    /// Keeps a freed extent until its commit; returns false if the file system's commits are not tracked.
    pub fn free(&mut self, number: KernelNumber, extent: Extent) -> bool {
        let Some(Journal { running, .. }) = self.journals.get_mut(&number) else { return false };
        match running.last_mut() {
            Some(last) if last.end == extent.start => last.end = extent.end,
            _ => running.push(extent),
        }
        if running.len() > MOST_EXTENTS {
            coarsen(running, MOST_EXTENTS / 2);
        }
        true
    }

    /// Notes that the running transaction is complete and now being committed.
    pub fn flush(&mut self, number: KernelNumber) {
        if let Some(Journal { running, committing }) = self.journals.get_mut(&number) {
            // If the end of a commit was missed, its extents wait for the next one.
            committing.append(running);
        }
    }

    /// Notes that a commit has ended, and returns the extents that can be trimmed now, in address order.
    pub fn end(&mut self, number: KernelNumber) -> Vec<Extent> {
        let Some(journal) = self.journals.get_mut(&number) else { return Vec::new() };
        let mut settled = std::mem::take(&mut journal.committing);
        coarsen(&mut settled, usize::MAX);
        settled
    }
}

/// Sorts `extents` and joins those that touch, then those with larger and larger gaps until at most `most`
/// are left.
fn coarsen(extents: &mut Vec<Extent>, most: usize) {
    extents.sort_unstable();
    let mut between = Bytes::ZERO;
    loop {
        extents.dedup_by(|next, last| {
            let joined = next.start <= last.end + between;
            if joined {
                last.end = last.end.max(next.end);
            }
            joined
        });
        if extents.len() <= most {
            return;
        }
        between = (between + between).max(Bytes(4096));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trimtab_core::ExtentSet;

    use super::*;

    const ONE: KernelNumber = KernelNumber(1);

    fn extent(start: u64, length: u64) -> Extent {
        Extent::at(Bytes(start), Bytes(length))
    }

    #[test]
    fn extents_freed_during_a_commit_wait_for_the_next() {
        let mut commits = Commits::default();
        commits.follow(ONE);
        assert!(commits.free(ONE, extent(50, 5)));
        commits.free(ONE, extent(10, 5));
        commits.flush(ONE);
        commits.free(ONE, extent(70, 5));
        assert_eq!(commits.end(ONE), [extent(10, 5), extent(50, 5)]);
        assert!(commits.is_awaited(ONE));
        assert_eq!(commits.end(ONE), []);
        commits.flush(ONE);
        assert_eq!(commits.end(ONE), [extent(70, 5)]);
        assert!(!commits.is_awaited(ONE));
    }

    #[test]
    fn file_system_without_a_journal_does_not_wait() {
        let mut commits = Commits::default();
        assert!(!commits.free(ONE, extent(0, 1)));
        commits.flush(ONE);
        assert_eq!(commits.end(ONE), []);
        commits.follow(ONE);
        commits.free(ONE, extent(0, 1));
        commits.forget(ONE);
        assert!(!commits.is_awaited(ONE));
    }

    #[test]
    fn many_extents_are_joined_and_none_is_lost() {
        let mut commits = Commits::default();
        commits.follow(ONE);
        let most = MOST_EXTENTS as u64;
        let freed: Vec<_> = (0..3 * most).map(|at| extent(at * 7919 % (3 * most) * 8192, 4096)).collect();
        freed.iter().for_each(|extent| _ = commits.free(ONE, *extent));
        assert!(commits.journals[&ONE].running.len() <= MOST_EXTENTS);
        commits.flush(ONE);
        let settled: ExtentSet = commits.end(ONE).into_iter().collect();
        assert!(settled.count() <= MOST_EXTENTS);
        assert!(freed.iter().all(|extent| settled.gaps(*extent).next().is_none()));
    }

    proptest! {
        /// No extent comes before the end of its commit, whichever of the journal's events are lost.
        #[test]
        fn extents_come_once_and_after_their_commit(steps in prop::collection::vec((0..4_u8, any::<bool>()), 0..60)) {
            let mut commits = Commits::default();
            commits.follow(ONE);
            let (mut running, mut committed) = (ExtentSet::new(), ExtentSet::new());
            let mut came = ExtentSet::new();
            let mut flushed = ExtentSet::new();
            for (at, (step, is_lost)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        running.insert(extent(at as u64 * 2, 1));
                        commits.free(ONE, extent(at as u64 * 2, 1));
                    }
                    2 => {
                        std::mem::take(&mut running).iter().for_each(|extent| flushed.insert(extent));
                        if !is_lost {
                            commits.flush(ONE);
                        }
                    }
                    _ => {
                        std::mem::take(&mut flushed).iter().for_each(|extent| committed.insert(extent));
                        if !is_lost {
                            for extent in commits.end(ONE) {
                                prop_assert!(came.gaps(extent).eq([extent]));
                                came.insert(extent);
                            }
                        }
                    }
                }
                prop_assert_eq!(came.intersect(&committed), came.clone());
            }
        }

        #[test]
        fn joined_extents_hold_all_bytes(
            extents in prop::collection::vec((0..200_u64, 1..20_u64), 0..40),
            most in 1..10_usize,
        ) {
            let extents: Vec<_> = extents.into_iter().map(|(start, length)| extent(start, length)).collect();
            let (mut exact, mut coarse) = (extents.clone(), extents.clone());
            coarsen(&mut exact, usize::MAX);
            coarsen(&mut coarse, most);
            let set: ExtentSet = extents.into_iter().collect();
            prop_assert!(exact.into_iter().eq(set.iter()));
            prop_assert!(coarse.len() <= most);
            let coarse: ExtentSet = coarse.into_iter().collect();
            prop_assert_eq!(coarse.intersect(&set), set);
        }
    }
}
