//! Finds out which ranges a discard has, and which processes asked for them.
//!
//! A kernel thread may hand a discard to the driver; the process that asked for it is named by the event of its bio.
//!
//! For a disk that takes several ranges in one discard, such as NVMe, the kernel makes one request of bios at
//! different addresses, and its events only have the start of the first and the total length. The order in
//! which the bios were queued shows the ranges: a task's bios gather behind the last request of its plug, and
//! a scheduler's behind the last request that it was given (`bio_attempt_discard_merge` in the kernel's
//! `block/blk-merge.c`). So the ranges of a request are the bio at its start and those queued next, until
//! the length is reached exactly.

use std::collections::VecDeque;

use super::{Comm, DeviceIndex};
use crate::hash::FastMap;
use crate::{Bytes, Extent};

/// The most ranges that are kept of a disk: no event reports a bio that never became part of a request.
const MOST_RANGES: usize = 1 << 14;

/// The queued discards of disks, until the driver gets them.
#[derive(Debug, Default)]
pub struct Ranges {
    /// By disk, in the order in which they were queued.
    queued: FastMap<DeviceIndex, VecDeque<Range>>,
}

/// A queued bio, or a part of one: a range of a discard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The number of the task that queued it.
    pub pid: u32,
    /// The name of that task.
    pub process: Comm,
    /// Its place on the disk.
    pub extent: Extent,
}

impl Ranges {
    /// Notes that a bio was queued.
    pub fn queue(&mut self, device: DeviceIndex, range: Range) {
        let queued = self.queued.entry(device).or_default();
        queued.push_back(range);
        bound(queued);
    }

    /// Notes that `first` was split off the front of a bio that was too long for the disk.
    pub fn split(&mut self, device: DeviceIndex, first: Extent) {
        let Some(queued) = self.queued.get_mut(&device) else { return };
        let is_whole = |whole: &Range| whole.extent.start == first.start && whole.extent.end > first.end;
        if let Some(place) = queued.iter().rposition(is_whole) {
            let whole = queued[place];
            queued[place].extent = first;
            queued.insert(place + 1, Range { extent: Extent::new(first.end, whole.extent.end), ..whole });
            bound(queued);
        }
    }

    /// Notes that a queued bio became part of the request before or behind it. Only disks that take one range report
    /// that: there it is no range of its own.
    pub fn merge(&mut self, device: DeviceIndex, bio: Extent) {
        let Some(queued) = self.queued.get_mut(&device) else { return };
        let Some(place) = queued.iter().rposition(|other| other.extent == bio) else { return };
        queued.remove(place);
        if let Some(other) = queued.iter_mut().rev().find(|other| other.extent.end == bio.start) {
            other.extent.end = bio.end;
        } else if let Some(other) = queued.iter_mut().rev().find(|other| other.extent.start == bio.end) {
            other.extent.start = bio.start;
        }
    }

    /// Takes the ranges of a request from the queue; `request` has its start and total length. Returns none
    /// if not all ranges are known. The known ones are then dropped, with everything that their tasks queued
    /// before: it would be mistaken for ranges of later requests.
    pub fn take(&mut self, device: DeviceIndex, request: Extent) -> Option<Vec<Range>> {
        let queued = self.queued.get_mut(&device)?;
        let firsts = (0..queued.len()).filter(|place| queued[*place].extent.start == request.start);
        let places = firsts
            .flat_map(|first| {
                [Some(queued[first].pid), None].map(|task| run(queued, first, task, request.len()))
            })
            .find_map(|places| places);
        let Some(places) = places else {
            forget(queued, request.start);
            return None;
        };
        let ranges = places.iter().map(|place| queued[*place]).collect();
        places.iter().rev().for_each(|place| _ = queued.remove(*place));
        Some(ranges)
    }

    /// Takes all that was queued inside `request`, a discard of a disk that takes one range in each: it may have been merged in
    /// any order. Returns the process that queued the bio at its start, or else the last one; `None` if nothing was.
    pub fn take_merged(&mut self, device: DeviceIndex, request: Extent) -> Option<Comm> {
        let mut process = None;
        self.queued.get_mut(&device)?.retain(|range| {
            let is_inside = range.extent.intersect(request) == range.extent;
            if is_inside && (process.is_none() || range.extent.start == request.start) {
                process = Some(range.process);
            }
            !is_inside
        });
        process
    }

    /// Forgets everything, after events were lost.
    pub fn clear(&mut self) {
        self.queued.clear();
    }
}

/// Drops the oldest bios above [`MOST_RANGES`].
fn bound(queued: &mut VecDeque<Range>) {
    queued.drain(..queued.len().saturating_sub(MOST_RANGES));
}

/// Forgets the bios at `start`, and what their tasks queued before them.
fn forget(queued: &mut VecDeque<Range>, start: Bytes) {
    let at_start = queued.iter().enumerate().filter(|(_, bio)| bio.extent.start == start);
    let last: FastMap<u32, usize> = at_start.map(|(place, bio)| (bio.pid, place)).collect();
    let mut place = 0;
    queued.retain(|bio| {
        place += 1;
        last.get(&bio.pid).is_none_or(|last| place > last + 1)
    });
}

/// Returns the indices, from `first` on, of the bios of one task or of all that have this length together;
/// `None` if no such run exists.
fn run(queued: &VecDeque<Range>, first: usize, task: Option<u32>, length: Bytes) -> Option<Vec<usize>> {
    let mut places = Vec::new();
    let mut total = Bytes::ZERO;
    for (place, bio) in queued.iter().enumerate().skip(first) {
        if task.is_none_or(|task| task == bio.pid) {
            places.push(place);
            total += bio.extent.len();
        }
        if total >= length {
            break;
        }
    }
    (total == length).then_some(places)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DISK: DeviceIndex = DeviceIndex(0);

    fn extent(start: u64, length: u64) -> Extent {
        Extent::at(Bytes(start), Bytes(length))
    }

    fn queue(ranges: &mut Ranges, device: DeviceIndex, pid: u32, extent: Extent) {
        ranges.queue(device, Range { pid, process: Comm::new(format!("task-{pid}").as_bytes()), extent });
    }

    fn take(ranges: &mut Ranges, device: DeviceIndex, request: Extent) -> Option<Vec<Extent>> {
        Some(ranges.take(device, request)?.iter().map(|range| range.extent).collect())
    }

    #[test]
    fn bios_of_concurrent_tasks_are_distinguished() {
        let mut ranges = Ranges::default();
        for (pid, start) in [(1, 10), (2, 50), (1, 30), (2, 20), (1, 70)] {
            queue(&mut ranges, DISK, pid, extent(start, 4));
        }
        assert_eq!(take(&mut ranges, DISK, extent(50, 8)), Some(vec![extent(50, 4), extent(20, 4)]));
        let all = vec![extent(10, 4), extent(30, 4), extent(70, 4)];
        assert_eq!(take(&mut ranges, DISK, extent(10, 12)), Some(all));
        assert!(ranges.queued[&DISK].is_empty());
    }

    #[test]
    fn scheduler_may_join_bios_of_several_tasks() {
        let mut ranges = Ranges::default();
        for (pid, start, length) in [(1, 10, 4), (2, 50, 2), (1, 30, 1), (2, 20, 4)] {
            queue(&mut ranges, DISK, pid, extent(start, length));
        }
        let taken = ranges.take(DISK, extent(10, 7)).unwrap();
        let found: Vec<_> = taken.iter().map(|range| (range.process.to_string(), range.extent)).collect();
        let named = |name: &str, start, length| (name.to_owned(), extent(start, length));
        assert_eq!(found, [named("task-1", 10, 4), named("task-2", 50, 2), named("task-1", 30, 1)]);
        assert_eq!(take(&mut ranges, DISK, extent(20, 4)), Some(vec![extent(20, 4)]));
    }

    #[test]
    fn ranges_are_never_guessed() {
        let mut ranges = Ranges::default();
        for unknown in [extent(10, 6), extent(10, 12), extent(30, 8)] {
            queue(&mut ranges, DISK, 1, extent(10, 4));
            queue(&mut ranges, DISK, 1, extent(30, 4));
            assert_eq!(take(&mut ranges, DISK, extent(12, 2)), None);
            assert_eq!(take(&mut ranges, DeviceIndex(1), extent(10, 4)), None);
            assert_eq!(take(&mut ranges, DISK, unknown), None);
            // What is left of it is not taken for a later request's.
            queue(&mut ranges, DISK, 1, extent(10, 1));
            queue(&mut ranges, DISK, 1, extent(50, 3));
            assert_eq!(take(&mut ranges, DISK, extent(10, 4)), Some(vec![extent(10, 1), extent(50, 3)]));
            ranges.clear();
        }
    }

    #[test]
    fn merged_bios_are_one_range() {
        let mut ranges = Ranges::default();
        for start in [8, 16, 0] {
            queue(&mut ranges, DISK, 1, extent(start, 8));
        }
        ranges.merge(DISK, extent(16, 8));
        ranges.merge(DISK, extent(0, 8));
        ranges.merge(DISK, extent(99, 8));
        ranges.merge(DeviceIndex(1), extent(0, 8));
        assert_eq!(take(&mut ranges, DISK, extent(0, 24)), Some(vec![extent(0, 24)]));
    }

    #[test]
    fn bios_of_one_range_may_be_merged_in_any_order() {
        let mut ranges = Ranges::default();
        for (pid, start) in [(1, 100), (2, 50), (1, 108), (3, 92), (4, 60)] {
            queue(&mut ranges, DISK, pid, extent(start, 8));
        }
        let mut taken =
            |start, length| ranges.take_merged(DISK, extent(start, length)).map(|name| name.to_string());
        // The last came in front of the first.
        assert_eq!(taken(92, 24).as_deref(), Some("task-3"));
        assert_eq!(taken(50, 8).as_deref(), Some("task-2"));
        assert_eq!(taken(100, 8), None);
        assert_eq!(taken(56, 12).as_deref(), Some("task-4"));
        assert!(ranges.queued[&DISK].is_empty());
        assert_eq!(ranges.take_merged(DeviceIndex(1), extent(0, 8)), None);
    }

    #[test]
    fn bios_of_other_tasks_stay() {
        let mut ranges = Ranges::default();
        for (pid, start) in [(1, 10), (2, 20), (1, 30), (1, 40)] {
            queue(&mut ranges, DISK, pid, extent(start, 4));
        }
        assert_eq!(take(&mut ranges, DISK, extent(30, 2)), None);
        let left: Vec<_> = ranges.queued[&DISK].iter().map(|bio| bio.extent.start.0).collect();
        assert_eq!(left, [20, 40]);
    }

    #[test]
    fn oldest_bios_are_dropped_first() {
        let mut ranges = Ranges::default();
        (0..=MOST_RANGES as u64).for_each(|start| queue(&mut ranges, DISK, 1, extent(start * 8, 4)));
        assert_eq!(ranges.queued[&DISK].front().map(|bio| bio.extent), Some(extent(8, 4)));
        ranges.split(DISK, extent(MOST_RANGES as u64 * 8, 1));
        assert_eq!(ranges.queued[&DISK].front().map(|bio| bio.extent), Some(extent(16, 4)));
        queue(&mut ranges, DISK, 1, extent(0, 4));
        assert_eq!(ranges.queued[&DISK].len(), MOST_RANGES);
    }

    /// The kernel's handling of a discard: tasks plug their requests, several disks' in one plug.
    #[derive(Debug, Clone)]
    enum Step {
        Submit {
            task: usize,
            disk: usize,
            length: u64,
        },
        /// The task's plug is emptied, starting with the last request, as in older kernels, or with the first.
        Flush {
            task: usize,
            last_first: bool,
        },
    }

    #[derive(Debug, Clone)]
    struct Request {
        disk: DeviceIndex,
        ranges: Vec<Extent>,
    }

    const TASKS: usize = 3;
    const DISKS: usize = 2;
    /// The longest request of each disk, and how many ranges it takes.
    const LIMITS: [(u64, usize); DISKS] = [(100, 4), (16, 3)];

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let submit = (0..TASKS, 0..DISKS, 1_u64..60).prop_map(|(task, disk, length)| Step::Submit {
            task,
            disk,
            length,
        });
        let flush = (0..TASKS, any::<bool>()).prop_map(|(task, last_first)| Step::Flush { task, last_first });
        prop::collection::vec(prop_oneof![4 => submit, 1 => flush], 0..120)
    }

    /// Runs `steps` as the kernel does, passes the events that are not lost to `ranges`, and returns each
    /// request with the ranges that were taken for it.
    fn replay(
        steps: &[Step],
        ranges: &mut Ranges,
        is_lost: impl Fn(usize) -> bool,
    ) -> Vec<(Request, Option<Vec<Extent>>)> {
        let mut plugs: [Vec<Request>; TASKS] = Default::default();
        let mut issued = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            match *step {
                Step::Submit { task, disk, length } => {
                    // No two are at one place, and they are not in order.
                    let whole = extent((number as u64 * 37 % 128) * 1000, length);
                    let (longest, most) = LIMITS[disk];
                    let device = DeviceIndex(disk as u16);
                    if !is_lost(2 * number) {
                        queue(ranges, device, task as u32, whole);
                    }
                    let mut start = whole.start;
                    while start < whole.end {
                        let piece = Extent::new(start, whole.end.min(start + Bytes(longest)));
                        if piece.end < whole.end && !is_lost(2 * number + 1) {
                            ranges.split(device, piece);
                        }
                        let plug = &mut plugs[task];
                        let fits = |request: &&mut Request| {
                            let total: Bytes = request.ranges.iter().map(|range| range.len()).sum();
                            request.ranges.len() < most && total + piece.len() <= Bytes(longest)
                        };
                        match plug.iter_mut().rfind(|request| request.disk == device).filter(fits) {
                            Some(request) => request.ranges.push(piece),
                            None => plug.push(Request { disk: device, ranges: vec![piece] }),
                        }
                        start = piece.end;
                    }
                }
                Step::Flush { task, last_first } => {
                    let mut requests = std::mem::take(&mut plugs[task]);
                    if last_first {
                        requests.reverse();
                    }
                    for request in requests {
                        let total = request.ranges.iter().map(|range| range.len()).sum();
                        let taken = take(ranges, request.disk, Extent::at(request.ranges[0].start, total));
                        issued.push((request, taken));
                    }
                }
            }
        }
        issued
    }

    proptest! {
        #[test]
        fn every_request_gets_its_ranges(steps in steps()) {
            for (request, taken) in replay(&steps, &mut Ranges::default(), |_| false) {
                prop_assert_eq!(Some(request.ranges), taken);
            }
        }

        #[test]
        fn lost_events_duplicate_no_range(
            before in steps(),
            lost in prop::collection::hash_set(0_usize..240, 1..20),
            after in steps(),
        ) {
            let mut ranges = Ranges::default();
            let mut seen = Vec::new();
            for (request, taken) in replay(&before, &mut ranges, |number| lost.contains(&number)) {
                let taken = taken.unwrap_or_default();
                let total: Bytes = request.ranges.iter().map(|range| range.len()).sum();
                prop_assert!(taken.is_empty() || taken.iter().map(|range| range.len()).sum::<Bytes>() == total);
                for range in taken {
                    let is_new = |(disk, other): &(DeviceIndex, Extent)| {
                        *disk != request.disk || range.intersect(*other).is_empty()
                    };
                    prop_assert!(seen.iter().all(is_new));
                    seen.push((request.disk, range));
                }
            }
            ranges.clear();
            for (request, taken) in replay(&after, &mut ranges, |_| false) {
                prop_assert_eq!(Some(request.ranges), taken);
            }
        }
    }
}
