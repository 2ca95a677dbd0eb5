//! What an ext4 gave up in transactions of its journal: its blocks can be taken again, and trimmed,
//! once that transaction has been committed.
//!
//! A handle that frees blocks is of the running transaction, and the journal tells of its flushing
//! (`jbd2_commit_flushing`) when the last of its handles is done and none of the next has begun. The
//! blocks are given to the allocator before the end of the commit is told (`jbd2_end_commit`); see
//! `jbd2_journal_commit_transaction` in the kernel's `fs/jbd2/commit.c`. Of one journal, one transaction
//! at a time is being committed.

use trimtab_core::{Bytes, Extent};

use super::devices::KernelNumber;
use super::hash::FastMap;

/// How many extents wait for one commit at most. Where there are more, those with the least between
/// them become one: a trim passes over what isn't free.
const MOST: usize = 1 << 15;

/// What waits for commits, by file system.
#[derive(Debug, Default)]
pub(super) struct Commits {
    journals: FastMap<KernelNumber, Journal>,
}

#[derive(Debug, Default)]
struct Journal {
    /// Given up in the transaction that goes on.
    running: Vec<Extent>,
    /// Given up in the one that is being committed.
    committing: Vec<Extent>,
}

impl Commits {
    /// Waits for the commits of this file system from now on.
    pub fn follow(&mut self, number: KernelNumber) {
        self.journals.entry(number).or_default();
    }

    /// Forgets what waits for those of this one.
    pub fn forget(&mut self, number: KernelNumber) {
        self.journals.remove(&number);
    }

    /// Whether anything of this file system waits.
    pub fn is_awaited(&self, number: KernelNumber) -> bool {
        let waits = |journal: &Journal| !journal.running.is_empty() || !journal.committing.is_empty();
        self.journals.get(&number).is_some_and(waits)
    }

    /// Keeps what was given up; false where nothing need be waited for.
    pub fn free(&mut self, number: KernelNumber, extent: Extent) -> bool {
        let Some(Journal { running, .. }) = self.journals.get_mut(&number) else { return false };
        match running.last_mut() {
            Some(last) if last.end == extent.start => last.end = extent.end,
            _ => running.push(extent),
        }
        if running.len() > MOST {
            coarsen(running, MOST / 2);
        }
        true
    }

    /// The running transaction is complete, and is being committed.
    pub fn flush(&mut self, number: KernelNumber) {
        if let Some(Journal { running, committing }) = self.journals.get_mut(&number) {
            // Where the end of one was missed, its extents wait for the next.
            committing.append(running);
        }
    }

    /// What can be trimmed now that a commit has ended, in the order of addresses.
    pub fn end(&mut self, number: KernelNumber) -> Vec<Extent> {
        let Some(journal) = self.journals.get_mut(&number) else { return Vec::new() };
        let mut settled = std::mem::take(&mut journal.committing);
        coarsen(&mut settled, usize::MAX);
        settled
    }
}

/// Sorts `extents` and joins those that touch; then those with ever more between them, until there are
/// at most `most`.
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
    fn what_is_given_up_during_a_commit_waits_for_the_next() {
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
    fn what_has_no_journal_does_not_wait() {
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
    fn too_many_become_fewer_and_none_is_missed() {
        let mut commits = Commits::default();
        commits.follow(ONE);
        let most = MOST as u64;
        let freed: Vec<_> = (0..3 * most).map(|at| extent(at * 7919 % (3 * most) * 8192, 4096)).collect();
        freed.iter().for_each(|extent| _ = commits.free(ONE, *extent));
        assert!(commits.journals[&ONE].running.len() <= MOST);
        commits.flush(ONE);
        let settled: ExtentSet = commits.end(ONE).into_iter().collect();
        assert!(settled.count() <= MOST);
        assert!(freed.iter().all(|extent| settled.gaps(*extent).next().is_none()));
    }

    proptest! {
        /// Whatever is lost of what the journal tells, nothing comes before the end of its commit.
        #[test]
        fn nothing_comes_too_early_or_twice(steps in prop::collection::vec((0..4_u8, any::<bool>()), 0..60)) {
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
