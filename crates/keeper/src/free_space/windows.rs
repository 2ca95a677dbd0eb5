//! Answers about free space from what was read a moment ago.
//!
//! On ext4, each call of `FS_IOC_GETFSMAP` lists and sorts the metadata of all block groups, however short the range that it is
//! asked for (`ext4_getfsmap_datadev` and `ext4_getfsmap_find_fixed_metadata` in fs/ext4/fsmap.c): 10 ms and more of processor
//! time on 1 TiB. A trim in pieces asks before each piece. So a call reads a window of the device that grows with the device,
//! and later questions are answered from it, with what was freed since.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use trimtab_core::{Bytes, Extent, ExtentSet};

use super::{FreeSpace, FreeSpaceError};

/// The shortest window.
pub const SHORTEST: Bytes = Bytes(1 << 30);
/// The longest: the file system can't be unmounted during a call.
const LONGEST: Bytes = Bytes(128 << 30);
/// The windows of a device, but for small and very large ones.
const COUNT: u64 = 32;
/// The most free extents that are kept.
const KEPT: usize = 1 << 16;
/// The longest that a window is used. What files took since is still in it.
const OLDEST: Duration = Duration::from_secs(60);

/// How old the windows may be that answer a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// For the plan of a trim: the file system itself discards only what is free by then. Reading is a small part of all time.
    Any,
    /// For what a trim has discarded a moment ago.
    Recent,
    /// Read anew.
    Now,
}

impl Freshness {
    /// How many times as old as its reading took a window may be.
    fn age(self) -> u32 {
        match self {
            Self::Any => 500,
            Self::Recent => 10,
            Self::Now => 0,
        }
    }
}

/// Windows of the free space of one file system on one device; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Windows(Arc<Mutex<Vec<Window>>>);

/// A part of a device, and what was free in it.
#[derive(Debug)]
struct Window {
    span: Extent,
    free: ExtentSet,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is being read since then; what is freed meanwhile is in `free`.
    Reading { since: Instant },
    /// It was read then, which took so long.
    Read { at: Instant, took: Duration },
}

impl Window {
    /// Whether it is being read, or answers questions still.
    fn is_in_use(&self) -> bool {
        matches!(self.state, State::Reading { .. }) || self.is_fresh(Freshness::Any)
    }

    fn is_fresh(&self, freshness: Freshness) -> bool {
        match (self.state, freshness) {
            (State::Reading { .. }, _) | (_, Freshness::Now) => false,
            (State::Read { at, took }, _) => at.elapsed() <= (took * freshness.age()).min(OLDEST),
        }
    }
}

/// Returns the length of the windows of an ext4 on a device of `size`, which is `shortest` or longer.
pub(super) fn length(size: Bytes, shortest: Bytes) -> Bytes {
    Bytes(size.0 / COUNT).min(LONGEST).max(shortest)
}

impl Windows {
    /// Returns the free extents within `ranges` of a device of `size`, from windows that `read` reads if they are not known or
    /// too old. `length` is the length of windows.
    ///
    /// # Errors
    /// The calls of `read`.
    pub fn within(
        &self,
        ranges: &ExtentSet,
        size: Bytes,
        length: Bytes,
        freshness: Freshness,
        mut read: impl FnMut(Extent) -> Result<FreeSpace, FreeSpaceError>,
    ) -> Result<ExtentSet, FreeSpaceError> {
        let length = length.0;
        let mut found = ExtentSet::new();
        let device = Extent::new(Bytes::ZERO, size);
        // Ranges are in order, and a window is looked at once for all that are in it.
        let mut next = 0;
        for range in ranges.iter().map(|range| range.intersect(device)).filter(|range| !range.is_empty()) {
            for number in (range.start.0 / length).max(next)..range.end.0.div_ceil(length) {
                next = number + 1;
                let start = Bytes(number * length);
                let span = Extent::new(start, Bytes(start.0.saturating_add(length)).min(size));
                self.collect(span, ranges, freshness, &mut read, &mut found)?;
            }
        }
        Ok(found)
    }

    /// Adds what is free in the window `span` and within `ranges` to `found`. The window is read if it is not known or
    /// too old.
    fn collect(
        &self,
        span: Extent,
        ranges: &ExtentSet,
        freshness: Freshness,
        read: &mut impl FnMut(Extent) -> Result<FreeSpace, FreeSpaceError>,
        found: &mut ExtentSet,
    ) -> Result<(), FreeSpaceError> {
        let mut add = |window: &Window| {
            let asked = ranges.inside(span).flat_map(|range| window.free.inside(range).collect::<Vec<_>>());
            asked.for_each(|free| found.insert(free));
        };
        let windows = self.lock();
        let is_known = |window: &&Window| window.span == span && window.is_fresh(freshness);
        if let Some(window) = windows.iter().find(is_known) {
            add(window);
            return Ok(());
        }
        drop(windows);
        // What is freed from here on may be missing in the answer.
        let since = Instant::now();
        let state = State::Reading { since };
        let mut windows = self.lock();
        windows.retain(|window| window.span != span && window.is_in_use());
        windows.push(Window { span, free: ExtentSet::new(), state });
        drop(windows);
        let answer = read(span);
        let mut windows = self.lock();
        // It is gone if a later call for the same window began while this one hung.
        let place = windows.iter().position(|window| (window.span, window.state) == (span, state));
        let mut window =
            place.map_or(Window { span, free: ExtentSet::new(), state }, |place| windows.swap_remove(place));
        answer?.extents().iter().for_each(|extent| window.free.insert(*extent));
        window.state = State::Read { at: Instant::now(), took: since.elapsed() };
        add(&window);
        windows.insert(0, window);
        let mut kept = 0;
        let beyond = windows.iter().position(|window| {
            kept += window.free.count();
            kept > KEPT
        });
        beyond.into_iter().for_each(|beyond| windows.truncate(beyond));
        Ok(())
    }

    /// Adds what the file system freed, and forgets windows there that are too old.
    pub fn freed(&self, extent: Extent) {
        self.lock().retain_mut(|window| {
            let inside = window.span.intersect(extent);
            let is_used = inside.is_empty() || window.is_in_use();
            if is_used && !inside.is_empty() {
                window.free.insert(inside);
            }
            is_used
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Window>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::thread;

    use proptest::prelude::{prop, prop_assert_eq, proptest};

    use super::super::Division;
    use super::*;

    const TIB: Bytes = Bytes(1 << 40);

    fn gib(start: u64, end: u64) -> Extent {
        Extent::new(Bytes(start << 30), Bytes(end << 30))
    }

    #[test]
    fn close_questions_are_answered_by_one_call_and_far_ones_by_others() {
        let windows = Windows::default();
        let calls = RefCell::new(Vec::new());
        let ask = |range: Extent, freshness: Freshness| {
            let read = |span: Extent| {
                calls.borrow_mut().push(span);
                thread::sleep(Duration::from_millis(5));
                Ok(FreeSpace::new(vec![gib(1, 3), gib(40, 41)], &Division::Unknown).within(span))
            };
            windows
                .within(&ExtentSet::from_iter([range]), TIB, length(TIB, SHORTEST), freshness, read)
                .unwrap()
                .iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(ask(gib(0, 2), Freshness::Any), [gib(1, 2)]);
        assert_eq!(ask(gib(2, 4), Freshness::Any), [gib(2, 3)]);
        assert_eq!(*calls.borrow(), [gib(0, 32)], "a window is the 32nd part of the device");
        assert_eq!(ask(gib(31, 41), Freshness::Any), [gib(40, 41)]);
        assert_eq!(*calls.borrow(), [gib(0, 32), gib(32, 64)]);
        windows.freed(gib(30, 34));
        assert_eq!(ask(gib(29, 35), Freshness::Any), [gib(30, 34)], "freed since");
        assert_eq!(calls.borrow().len(), 2);
        assert_eq!(ask(gib(29, 30), Freshness::Now), []);
        assert_eq!(calls.borrow().len(), 3, "asked anew");
    }

    #[test]
    fn window_with_very_many_extents_is_not_kept() {
        let windows = Windows::default();
        let extents = (0..=KEPT as u64).map(|number| Extent::at(Bytes(number * 8192), Bytes(4096)));
        let all: ExtentSet = extents.collect();
        let mut calls = 0;
        for _ in 0..2 {
            let read = |span| {
                calls += 1;
                thread::sleep(Duration::from_millis(5));
                Ok(FreeSpace::new(all.iter().collect(), &Division::Unknown).within(span))
            };
            let range = ExtentSet::from_iter([Extent::new(Bytes(8000), Bytes(20_000))]);
            let found = windows.within(&range, TIB, length(TIB, SHORTEST), Freshness::Any, read).unwrap();
            assert_eq!(found, all.intersect(&range));
        }
        assert_eq!(calls, 2);
    }

    #[test]
    fn window_that_is_read_fast_is_soon_too_old() {
        let windows = Windows::default();
        let mut calls = 0;
        for _ in 0..3 {
            let read = |_| {
                calls += 1;
                Ok(FreeSpace::default())
            };
            windows
                .within(&ExtentSet::from_iter([gib(0, 1)]), TIB, length(TIB, SHORTEST), Freshness::Any, read)
                .unwrap();
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(calls, 3);
    }

    #[test]
    fn failed_call_leaves_no_window() {
        let windows = Windows::default();
        let range = ExtentSet::from_iter([gib(0, 1)]);
        assert!(
            windows
                .within(&range, TIB, length(TIB, SHORTEST), Freshness::Any, |_| Err(
                    FreeSpaceError::Unsupported
                ))
                .is_err()
        );
        let slow = |_| {
            thread::sleep(Duration::from_millis(5));
            Ok(FreeSpace::new(vec![gib(0, 1)], &Division::Unknown))
        };
        assert_eq!(windows.within(&range, TIB, length(TIB, SHORTEST), Freshness::Any, slow).unwrap(), range);
    }

    #[test]
    fn extent_that_is_freed_during_a_call_is_known() {
        let windows = Windows::default();
        let read = |_| {
            windows.freed(gib(2, 3));
            Ok(FreeSpace::new(vec![gib(0, 1)], &Division::Unknown))
        };
        let found = windows
            .within(&ExtentSet::from_iter([gib(0, 9)]), TIB, length(TIB, SHORTEST), Freshness::Any, read)
            .unwrap();
        assert_eq!(found, ExtentSet::from_iter([gib(0, 1), gib(2, 3)]));
    }

    proptest! {
        #[test]
        fn answers_are_those_of_the_whole_map(
            free in prop::collection::vec((0..900_u64, 1..40_u64), 0..20),
            asked in prop::collection::vec((0..1000_u64, 1..90_u64), 1..8),
        ) {
            let free: ExtentSet = free.iter().map(|(start, length)| gib(*start, start + length)).collect();
            let asked: ExtentSet = asked.iter().map(|(start, length)| gib(*start, (start + length).min(1024))).collect();
            let read = |span: Extent| Ok(FreeSpace::new(free.inside(span).collect(), &Division::Unknown));
            let found = Windows::default().within(&asked, TIB, length(TIB, SHORTEST), Freshness::Any, read).unwrap();
            prop_assert_eq!(found, free.intersect(&asked));
        }
    }
}
