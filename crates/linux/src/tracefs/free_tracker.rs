//! Turns the kernel's events into the frees of followed file systems, in order and once they can be trimmed.

use std::collections::HashSet;
use std::time::Duration;

use trimtab_core::trace::EventKind;
use trimtab_core::{Bytes, Extent, Nanos};

use super::commits::Commits;
use super::devices::KernelNumber;
use super::event::{CommitStep, Event, FsEvent, FsId};
use super::freed::Freed;
use super::layout::Layout;
use trimtab_core::hash::FastMap;

/// How many events of file systems that are not followed yet are kept, and for how long.
const MOST_EARLY: usize = 4096;
const EARLY_FOR: Nanos = Nanos(60_000_000_000);

/// The state of the file systems that report frees.
#[derive(Debug)]
pub(super) struct FreeTracker {
    began: Nanos,
    followed: FastMap<FsId, Followed>,
    /// File systems whose events since the mount are not all known.
    incomplete: HashSet<FsId>,
    /// Events of file systems that are not followed yet: they may have been mounted a moment ago.
    early: Vec<(Nanos, Event)>,
    /// Events that older events, not read yet, may still precede.
    entries: Vec<Entry>,
    commits: Commits,
}

/// A file system that is followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Followed {
    pub number: KernelNumber,
    /// None if its events have the addresses that a trim takes.
    pub layout: Option<Layout>,
    /// Whether a freed extent can only be trimmed after its journal has committed.
    pub has_journal: bool,
}

#[derive(Debug)]
struct Entry {
    at: Nanos,
    number: KernelNumber,
    change: Change,
}

#[derive(Debug)]
enum Change {
    Free(Extent),
    Allocate(Extent),
    Commit(CommitStep),
}

impl FreeTracker {
    /// Starts at the time `began` of the trace clock; the frees of the file systems in `mounted` are
    /// incomplete, because these were mounted before.
    pub fn new(began: Nanos, mounted: HashSet<FsId>) -> Self {
        Self {
            began,
            followed: FastMap::default(),
            incomplete: mounted,
            early: Vec::new(),
            entries: Vec::new(),
            commits: Commits::default(),
        }
    }

    /// Follows this file system, including its events that were kept before. Returns true if no event since
    /// its mount was missed.
    pub fn follow(&mut self, id: FsId, file_system: Followed) -> bool {
        if file_system.has_journal {
            self.commits.follow(file_system.number);
        }
        let is_new = self.followed.insert(id, file_system).is_none();
        let is_complete = !self.incomplete.remove(&id);
        for (at, event) in std::mem::take(&mut self.early) {
            self.take(at, event);
        }
        is_new && is_complete
    }

    /// Forgets the file system with this number, which is unmounted.
    pub fn forget(&mut self, number: KernelNumber) {
        let Self { followed, incomplete, .. } = self;
        followed.retain(|id, followed| {
            let stays = followed.number != number;
            if !stays {
                incomplete.remove(id);
            }
            stays
        });
        incomplete.remove(&FsId::Device(number));
        self.entries.retain(|entry| entry.number != number);
        self.commits.forget(number);
    }

    /// Ignores the events of this file system.
    pub fn ignore(&mut self, id: FsId) {
        self.incomplete.insert(id);
    }

    /// Notes that events of the file systems of `mounted` that are not followed yet were lost.
    pub fn miss(&mut self, mounted: impl Iterator<Item = FsId>) {
        let Self { followed, incomplete, .. } = self;
        incomplete.extend(mounted.filter(|id| !followed.contains_key(id)));
    }

    /// Takes an event of the time `at` of the trace clock.
    pub fn take(&mut self, at: Nanos, event: Event) {
        let id = match event {
            Event::Fs(event) => event.id,
            Event::Commit(commit) => FsId::Device(commit.number),
            Event::Block(_) | Event::Chunk(_) | Event::Path { .. } => return,
        };
        let Some(Followed { number, layout, .. }) = self.followed.get(&id) else {
            if !self.incomplete.contains(&id) {
                self.early.push((at, event));
                if self.early.len() > 2 * MOST_EARLY {
                    self.drop_old_early(Nanos::ZERO);
                }
            }
            return;
        };
        let change = match event {
            Event::Commit(commit) => Some(Change::Commit(commit.step)),
            Event::Fs(event) => place(layout.as_ref(), &event).map(|extent| match event.kind {
                EventKind::Allocate => Change::Allocate(extent),
                _ => Change::Free(extent),
            }),
            Event::Block(_) | Event::Chunk(_) | Event::Path { .. } => None,
        };
        self.entries.extend(change.map(|change| Entry { at, number: *number, change }));
    }

    /// Appends the frees and allocations before the time `until` of the trace clock to `events`.
    pub fn settle(&mut self, until: Nanos, events: &mut Vec<Freed>) {
        // Each processor's events are in order: there is little to sort.
        self.entries.sort_by_key(|entry| entry.at);
        let settled = self.entries.partition_point(|entry| entry.at < until);
        let Self { entries, commits, began, .. } = self;
        for Entry { at, number, change } in entries.drain(..settled) {
            let mut report = |kind, extent| {
                let at = Duration::from_nanos(at.saturating_sub(*began).0);
                let freed = Freed { at, file_system: number.into(), kind, extent };
                if !events.last_mut().is_some_and(|last| last.absorb(&freed)) {
                    events.push(freed);
                }
            };
            match change {
                Change::Free(extent) if commits.free(number, extent) => {}
                Change::Free(extent) => report(EventKind::Free, extent),
                Change::Allocate(extent) => report(EventKind::Allocate, extent),
                Change::Commit(CommitStep::Flush) => commits.flush(number),
                Change::Commit(CommitStep::End) => {
                    commits.end(number).into_iter().for_each(|extent| report(EventKind::Free, extent));
                }
            }
        }
        if self.entries.is_empty() {
            // Frees the memory that a burst of events took.
            self.entries = Vec::new();
        }
        self.drop_old_early(until);
    }

    /// Returns true if entries are waiting, apart from commits that no extent waits for.
    pub fn is_waiting(&self) -> bool {
        let waits = |entry: &Entry| match entry.change {
            Change::Commit(_) => self.commits.is_awaited(entry.number),
            Change::Free(_) | Change::Allocate(_) => true,
        };
        self.entries.iter().any(waits)
    }

    /// Keeps only the latest events of file systems that are not followed yet.
    fn drop_old_early(&mut self, until: Nanos) {
        let Self { early, incomplete, .. } = self;
        let too_many = early.len().saturating_sub(MOST_EARLY);
        let too_old = early.partition_point(|(at, _)| *at < until.saturating_sub(EARLY_FOR));
        for (_, event) in early.drain(..too_many.max(too_old)) {
            if let Event::Fs(event) = event {
                incomplete.insert(event.id);
            }
        }
    }
}

/// Translates the addresses of `event` to those that a trim takes; returns `None` if it names no bytes.
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

    fn fs_event(id: FsId, kind: EventKind, start: u64, length: u64) -> Event {
        Event::Fs(FsEvent { id, kind, group: 0, start, length, flags: 0, pid: 1 })
    }

    fn free(id: FsId, start: u64) -> Event {
        fs_event(id, EventKind::Free, start, 1)
    }

    fn commit(step: CommitStep) -> Event {
        Event::Commit(CommitEvent { number: DISK, step })
    }

    /// The kind and first address of what is settled before `until`.
    fn settled(tracker: &mut FreeTracker, until: u64) -> Vec<(u64, EventKind, u64)> {
        let mut events = Vec::new();
        tracker.settle(Nanos(until), &mut events);
        events.iter().map(|event| (event.at.as_nanos() as u64, event.kind, event.extent.start.0)).collect()
    }

    #[test]
    fn frees_come_after_their_commit() {
        let mut tracker = tracker(&[]);
        assert!(tracker.follow(EXT4, ext4()));
        // As they are read: of one processor after the other.
        tracker.take(Nanos(2001), free(EXT4, 3));
        tracker.take(Nanos(2004), free(EXT4, 5));
        tracker.take(Nanos(2002), commit(CommitStep::Flush));
        tracker.take(Nanos(2006), commit(CommitStep::End));
        tracker.take(Nanos(2003), fs_event(EXT4, EventKind::Allocate, 9, 1));
        assert_eq!(settled(&mut tracker, 2005), [(1003, EventKind::Allocate, 9 * 4096)]);
        assert_eq!(settled(&mut tracker, 2100), [(1006, EventKind::Free, 3 * 4096)]);
        assert!(!tracker.is_waiting(), "only a commit brings the other");
        tracker.take(Nanos(3000), commit(CommitStep::Flush));
        assert!(tracker.is_waiting());
        tracker.take(Nanos(3001), commit(CommitStep::End));
        assert_eq!(settled(&mut tracker, 3100), [(2001, EventKind::Free, 5 * 4096)]);
        tracker.take(Nanos(4000), commit(CommitStep::Flush));
        assert!(!tracker.is_waiting(), "nothing waits for this one");
    }

    #[test]
    fn adjacent_frees_are_joined() {
        let mut tracker = tracker(&[]);
        tracker.follow(BTRFS, btrfs());
        let second = 1_000_000_000;
        for (at, start, kind) in [
            (2000, 5, EventKind::Free),
            (2001, 6, EventKind::Free),
            (2002, 4, EventKind::Free),
            (2003, 8, EventKind::Free),
            (2004, 9, EventKind::Allocate),
            (2005 + 2 * second, 10, EventKind::Allocate),
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
    fn frees_without_a_journal_come_at_once_and_btrfs_uses_logical_addresses() {
        let mut tracker = tracker(&[]);
        tracker.follow(EXT4, Followed { has_journal: false, ..ext4() });
        tracker.follow(BTRFS, btrfs());
        tracker.take(Nanos(2000), free(EXT4, 1));
        tracker.take(Nanos(2001), free(BTRFS, 5));
        tracker.take(Nanos(2002), fs_event(BTRFS, EventKind::Free, u64::MAX, 2));
        assert_eq!(settled(&mut tracker, 2100), [(1000, EventKind::Free, 4096), (1001, EventKind::Free, 5)]);
    }

    #[test]
    fn events_before_following_are_kept() {
        let mut tracker = tracker(&[BTRFS]);
        tracker.take(Nanos(2000), free(EXT4, 1));
        tracker.take(Nanos(2001), commit(CommitStep::Flush));
        tracker.take(Nanos(2002), commit(CommitStep::End));
        tracker.take(Nanos(2003), free(BTRFS, 1));
        assert_eq!(settled(&mut tracker, 2100), []);
        assert!(tracker.follow(EXT4, ext4()));
        assert_eq!(settled(&mut tracker, 2100), [(1002, EventKind::Free, 4096)]);
        assert!(!tracker.follow(BTRFS, btrfs()), "it was mounted before");
        assert_eq!(settled(&mut tracker, 2200), []);
    }

    #[test]
    fn follow_reports_missed_events() {
        let minute = EARLY_FOR.0;
        let mut late = tracker(&[]);
        late.take(Nanos(2000), free(EXT4, 1));
        settled(&mut late, 3000 + minute);
        assert!(!late.follow(EXT4, ext4()));
        let mut flooded = tracker(&[]);
        (0..=MOST_EARLY as u64).for_each(|at| flooded.take(Nanos(2000 + at), free(EXT4, at)));
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
    fn forgotten_file_system_leaves_nothing() {
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
