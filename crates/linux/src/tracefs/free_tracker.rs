//! From the kernel's events to what followed file systems gave up, in order and once it can be trimmed.

use std::collections::HashSet;
use std::time::Duration;

use trimtab_core::trace::Kind;
use trimtab_core::{Bytes, Extent, Nanos};

use super::commits::Commits;
use super::devices::KernelNumber;
use super::event::{CommitStep, Event, FsEvent, FsId};
use super::frees::Freed;
use super::hash::FastMap;
use super::layout::Layout;

/// How many events of file systems that nobody follows yet are kept, and for how long.
const MOST_STRANGE: usize = 4096;
const STRANGE_FOR: Nanos = Nanos(60_000_000_000);

/// What is known of the file systems that tell.
#[derive(Debug)]
pub(super) struct FreeTracker {
    began: Nanos,
    followed: FastMap<FsId, Followed>,
    /// Those of which not all was heard since they were mounted.
    unheard: HashSet<FsId>,
    /// What those told that nobody follows yet: they may have been mounted a moment ago.
    strange: Vec<(Nanos, Event)>,
    /// What was told and may yet be preceded by what was not.
    entries: Vec<Entry>,
    commits: Commits,
}

/// A file system that is followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Followed {
    pub number: KernelNumber,
    /// None where its events have the addresses that a trim takes.
    pub layout: Option<Layout>,
    /// Whether what it gives up can be trimmed only when its journal has committed that.
    pub has_journal: bool,
}

#[derive(Debug)]
struct Entry {
    at: Nanos,
    number: KernelNumber,
    what: What,
}

#[derive(Debug)]
enum What {
    Free(Extent),
    Allocate(Extent),
    Commit(CommitStep),
}

impl FreeTracker {
    /// From the time `began` of the trace clock on, when those of `mounted` were mounted.
    pub fn new(began: Nanos, mounted: HashSet<FsId>) -> Self {
        Self {
            began,
            followed: FastMap::default(),
            unheard: mounted,
            strange: Vec::new(),
            entries: Vec::new(),
            commits: Commits::default(),
        }
    }

    /// Understands what this file system tells, and told while nobody followed it; says whether nothing
    /// was missed since it was mounted.
    pub fn follow(&mut self, id: FsId, file_system: Followed) -> bool {
        if file_system.has_journal {
            self.commits.follow(file_system.number);
        }
        let is_new = self.followed.insert(id, file_system).is_none();
        let was_heard = !self.unheard.remove(&id);
        for (at, event) in std::mem::take(&mut self.strange) {
            self.take(at, event);
        }
        is_new && was_heard
    }

    /// Forgets the file system with this number, which is unmounted.
    pub fn forget(&mut self, number: KernelNumber) {
        let Self { followed, unheard, .. } = self;
        followed.retain(|id, followed| {
            let stays = followed.number != number;
            if !stays {
                unheard.remove(id);
            }
            stays
        });
        unheard.remove(&FsId::Device(number));
        self.entries.retain(|entry| entry.number != number);
        self.commits.forget(number);
    }

    /// Takes what this file system tells as nothing.
    pub fn ignore(&mut self, id: FsId) {
        self.unheard.insert(id);
    }

    /// Not all was heard of what those of `mounted` told that nobody follows yet.
    pub fn miss(&mut self, mounted: impl Iterator<Item = FsId>) {
        let Self { followed, unheard, .. } = self;
        unheard.extend(mounted.filter(|id| !followed.contains_key(id)));
    }

    /// Takes in what the kernel told at the time `at` of the trace clock.
    pub fn take(&mut self, at: Nanos, event: Event) {
        let id = match event {
            Event::Fs(event) => event.id,
            Event::Commit(commit) => FsId::Device(commit.number),
            Event::Block(_) | Event::Chunk(_) => return,
        };
        let Some(Followed { number, layout, .. }) = self.followed.get(&id) else {
            if !self.unheard.contains(&id) {
                self.strange.push((at, event));
                if self.strange.len() > 2 * MOST_STRANGE {
                    self.forget_strange(Nanos::ZERO);
                }
            }
            return;
        };
        let what = match event {
            Event::Commit(commit) => Some(What::Commit(commit.step)),
            Event::Fs(event) => place(layout.as_ref(), &event).map(|extent| match event.kind {
                Kind::Allocate => What::Allocate(extent),
                _ => What::Free(extent),
            }),
            Event::Block(_) | Event::Chunk(_) => None,
        };
        self.entries.extend(what.map(|what| Entry { at, number: *number, what }));
    }

    /// Appends to `events` what happened before the time `until` of the trace clock.
    pub fn settle(&mut self, until: Nanos, events: &mut Vec<Freed>) {
        // Each processor's events are in order: there is little to sort.
        self.entries.sort_by_key(|entry| entry.at);
        let settled = self.entries.partition_point(|entry| entry.at < until);
        let Self { entries, commits, began, .. } = self;
        for Entry { at, number, what } in entries.drain(..settled) {
            let mut tell = |kind, extent| {
                let at = Duration::from_nanos(at.saturating_sub(*began).0);
                let freed = Freed { at, file_system: number.into(), kind, extent };
                if !events.last_mut().is_some_and(|last| last.absorb(&freed)) {
                    events.push(freed);
                }
            };
            match what {
                What::Free(extent) if commits.free(number, extent) => {}
                What::Free(extent) => tell(Kind::Free, extent),
                What::Allocate(extent) => tell(Kind::Allocate, extent),
                What::Commit(CommitStep::Flush) => commits.flush(number),
                What::Commit(CommitStep::End) => {
                    commits.end(number).into_iter().for_each(|extent| tell(Kind::Free, extent));
                }
            }
        }
        if self.entries.is_empty() {
            // After a burst there is much room.
            self.entries = Vec::new();
        }
        self.forget_strange(until);
    }

    /// Whether something is to be settled soon; a commit that nothing waits for is not.
    pub fn is_waiting(&self) -> bool {
        let waits = |entry: &Entry| match entry.what {
            What::Commit(_) => self.commits.is_awaited(entry.number),
            What::Free(_) | What::Allocate(_) => true,
        };
        self.entries.iter().any(waits)
    }

    /// Keeps of the file systems that nobody follows what came last.
    fn forget_strange(&mut self, until: Nanos) {
        let Self { strange, unheard, .. } = self;
        let too_many = strange.len().saturating_sub(MOST_STRANGE);
        let too_old = strange.partition_point(|(at, _)| *at < until.saturating_sub(STRANGE_FOR));
        for (_, event) in strange.drain(..too_many.max(too_old)) {
            if let Event::Fs(event) = event {
                unheard.insert(event.id);
            }
        }
    }
}

/// The bytes that a trim knows by other addresses than `event` names them, if at all.
fn place(layout: Option<&Layout>, event: &FsEvent) -> Option<Extent> {
    match layout {
        Some(layout) => layout.extent(event),
        None => {
            let end = event.start.checked_add(event.length)?;
            (event.length > 0).then_some(Extent::new(Bytes(event.start), Bytes(end)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::CommitEvent;
    use super::*;

    const DISK: KernelNumber = KernelNumber(8 << 20);
    const EXT4: FsId = FsId::Device(DISK);
    const BTRFS: FsId = FsId::Btrfs([7; 16]);

    fn tracker(mounted: &[FsId]) -> FreeTracker {
        FreeTracker::new(Nanos(1000), mounted.iter().copied().collect())
    }

    fn ext4() -> Followed {
        Followed { number: DISK, layout: Some(Layout::plain(4096)), has_journal: true }
    }

    fn btrfs() -> Followed {
        Followed { number: KernelNumber(44), layout: None, has_journal: false }
    }

    fn fs_event(id: FsId, kind: Kind, start: u64, length: u64) -> Event {
        Event::Fs(FsEvent { id, kind, group: 0, start, length, flags: 0, pid: 1 })
    }

    fn free(id: FsId, start: u64) -> Event {
        fs_event(id, Kind::Free, start, 1)
    }

    fn commit(step: CommitStep) -> Event {
        Event::Commit(CommitEvent { number: DISK, step })
    }

    /// Kind and first address of what is settled before `until`.
    fn settled(tracker: &mut FreeTracker, until: u64) -> Vec<(u64, Kind, u64)> {
        let mut events = Vec::new();
        tracker.settle(Nanos(until), &mut events);
        events.iter().map(|event| (event.at.as_nanos() as u64, event.kind, event.extent.start.0)).collect()
    }

    #[test]
    fn frees_come_when_their_transaction_is_on_disk() {
        let mut tracker = tracker(&[]);
        assert!(tracker.follow(EXT4, ext4()));
        // As they are read: of one processor after the other.
        tracker.take(Nanos(2001), free(EXT4, 3));
        tracker.take(Nanos(2004), free(EXT4, 5));
        tracker.take(Nanos(2002), commit(CommitStep::Flush));
        tracker.take(Nanos(2006), commit(CommitStep::End));
        tracker.take(Nanos(2003), fs_event(EXT4, Kind::Allocate, 9, 1));
        assert_eq!(settled(&mut tracker, 2005), [(1003, Kind::Allocate, 9 * 4096)]);
        assert_eq!(settled(&mut tracker, 2100), [(1006, Kind::Free, 3 * 4096)]);
        assert!(!tracker.is_waiting(), "only a commit brings the other");
        tracker.take(Nanos(3000), commit(CommitStep::Flush));
        assert!(tracker.is_waiting());
        tracker.take(Nanos(3001), commit(CommitStep::End));
        assert_eq!(settled(&mut tracker, 3100), [(2001, Kind::Free, 5 * 4096)]);
        tracker.take(Nanos(4000), commit(CommitStep::Flush));
        assert!(!tracker.is_waiting(), "nothing waits for this one");
    }

    #[test]
    fn neighbours_are_told_together() {
        let mut tracker = tracker(&[]);
        tracker.follow(BTRFS, btrfs());
        let second = 1_000_000_000;
        for (at, start, kind) in [
            (2000, 5, Kind::Free),
            (2001, 6, Kind::Free),
            (2002, 4, Kind::Free),
            (2003, 8, Kind::Free),
            (2004, 9, Kind::Allocate),
            (2005 + 2 * second, 10, Kind::Allocate),
        ] {
            tracker.take(Nanos(at), fs_event(BTRFS, kind, start, 1));
        }
        let mut events = Vec::new();
        tracker.settle(Nanos(10 * second), &mut events);
        let extents: Vec<_> = events.iter().map(|event| (event.extent.start.0, event.extent.end.0)).collect();
        assert_eq!(extents, [(4, 7), (8, 9), (9, 10), (10, 11)]);
        assert_eq!(events[0].at, Duration::from_nanos(1000), "since the first was freed");
    }

    #[test]
    fn what_has_no_journal_comes_at_once_and_btrfs_in_its_own_addresses() {
        let mut tracker = tracker(&[]);
        tracker.follow(EXT4, Followed { has_journal: false, ..ext4() });
        tracker.follow(BTRFS, btrfs());
        tracker.take(Nanos(2000), free(EXT4, 1));
        tracker.take(Nanos(2001), free(BTRFS, 5));
        tracker.take(Nanos(2002), fs_event(BTRFS, Kind::Free, u64::MAX, 2));
        assert_eq!(settled(&mut tracker, 2100), [(1000, Kind::Free, 4096), (1001, Kind::Free, 5)]);
    }

    #[test]
    fn what_was_told_before_a_file_system_is_followed_is_kept() {
        let mut tracker = tracker(&[BTRFS]);
        tracker.take(Nanos(2000), free(EXT4, 1));
        tracker.take(Nanos(2001), commit(CommitStep::Flush));
        tracker.take(Nanos(2002), commit(CommitStep::End));
        tracker.take(Nanos(2003), free(BTRFS, 1));
        assert_eq!(settled(&mut tracker, 2100), []);
        assert!(tracker.follow(EXT4, ext4()));
        assert_eq!(settled(&mut tracker, 2100), [(1002, Kind::Free, 4096)]);
        assert!(!tracker.follow(BTRFS, btrfs()), "it was mounted before");
        assert_eq!(settled(&mut tracker, 2200), []);
    }

    #[test]
    fn what_was_missed_is_admitted() {
        let minute = STRANGE_FOR.0;
        let mut late = tracker(&[]);
        late.take(Nanos(2000), free(EXT4, 1));
        settled(&mut late, 3000 + minute);
        assert!(!late.follow(EXT4, ext4()));
        let mut flooded = tracker(&[]);
        (0..=MOST_STRANGE as u64).for_each(|at| flooded.take(Nanos(2000 + at), free(EXT4, at)));
        settled(&mut flooded, 9000);
        assert!(!flooded.follow(EXT4, ext4()));
        let mut missed = tracker(&[]);
        missed.follow(BTRFS, btrfs());
        missed.miss([BTRFS, EXT4].into_iter());
        assert!(!missed.follow(EXT4, ext4()));
        missed.forget(DISK);
        assert!(missed.follow(EXT4, ext4()), "it was mounted anew");
        let mut ignored = tracker(&[]);
        ignored.ignore(EXT4);
        ignored.take(Nanos(2000), free(EXT4, 1));
        assert!(!ignored.follow(EXT4, ext4()));
        assert!(!ignored.follow(EXT4, ext4()), "another may have been there in between");
        ignored.forget(DISK);
        assert!(ignored.follow(EXT4, ext4()), "it was mounted anew");
    }

    #[test]
    fn nothing_is_left_of_what_is_forgotten() {
        let mut tracker = tracker(&[]);
        tracker.follow(EXT4, ext4());
        tracker.take(Nanos(2000), free(EXT4, 1));
        settled(&mut tracker, 2100);
        tracker.take(Nanos(2200), free(EXT4, 2));
        tracker.forget(DISK);
        tracker.follow(EXT4, ext4());
        tracker.take(Nanos(2300), commit(CommitStep::Flush));
        tracker.take(Nanos(2301), commit(CommitStep::End));
        assert_eq!(settled(&mut tracker, 2400), []);
    }
}
