//! The discards of a trace, sent beside the host's requests.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use trimtab_core::{Bytes, Extent, Nanos};

use super::pending::{Pending, SECTOR};

/// Discards of a trace on their way to the drive, in the trace's order.
///
/// A trace doesn't tell whether somebody waited for a discard or a worker of the kernel sent it in the
/// background. So no request of the host follows from one. A discard follows from the discards that were
/// over in the trace when it began, and from the host's requests: on a slow drive those that went one by
/// one still do, later than in the trace. What the host writes meanwhile is not discarded any more, as a
/// trim does not discard what is in use by then: of such a discard the longest part is left, so that the
/// drive gets no more commands than in the trace.
pub(super) struct Recorded {
    waiting: VecDeque<Waiting>,
    /// Discards that are not over in the trace yet: when they are, there and in the model.
    under_way: BinaryHeap<Reverse<(Nanos, Nanos)>>,
    /// When those are done in the model that are over in the trace.
    over: Nanos,
    /// What waiting discards name and nobody has written since; of no meaning where none waits.
    unwritten: Pending,
    overtaken: u64,
}

/// A discard that is not sent yet.
struct Waiting {
    /// When it began in the trace.
    traced: Nanos,
    latency: Option<Nanos>,
    /// When it comes to the drive, unless earlier discards hold it up.
    placed: Nanos,
    extent: Extent,
}

/// The discard whose turn it is.
pub(super) struct Next {
    /// When it is sent.
    pub(super) arrival: Nanos,
    /// What is left of it; none where all of it was written.
    pub(super) extent: Option<Extent>,
    traced: Nanos,
    latency: Option<Nanos>,
}

impl Recorded {
    /// None is on its way to a drive of `size` bytes.
    pub(super) fn new(size: Bytes) -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: BinaryHeap::new(),
            over: Nanos::ZERO,
            unwritten: Pending::new(size),
            overtaken: 0,
        }
    }

    /// Discards that were left out, as all they name was written before.
    pub(super) fn overtaken(&self) -> u64 {
        self.overtaken
    }

    /// Adds a discard that began at `traced` and took `latency` there, none where that isn't known, and
    /// that comes at `placed` in the model's time.
    pub(super) fn add(&mut self, traced: Nanos, latency: Option<Nanos>, placed: Nanos, extent: Extent) {
        self.unwritten.insert(extent);
        self.waiting.push_back(Waiting { traced, latency, placed, extent });
    }

    /// The host wrote these bytes, or a file system took them into use.
    pub(super) fn taken(&mut self, extent: Extent) {
        if !self.waiting.is_empty() {
            self.unwritten.remove(extent);
        }
    }

    /// The next discard that is sent by `until`, if any is.
    pub(super) fn next(&mut self, until: Nanos) -> Option<Next> {
        let first = self.waiting.front()?;
        while let Some(Reverse((traced, model))) = self.under_way.peek()
            && *traced <= first.traced
        {
            self.over = self.over.max(*model);
            self.under_way.pop();
        }
        let arrival = first.placed.max(self.over);
        if arrival > until {
            return None;
        }
        let Waiting { traced, latency, extent, .. } = self.waiting.pop_front()?;
        let extent = self.left_of(extent);
        self.overtaken += u64::from(extent.is_none());
        Some(Next { arrival, extent, traced, latency })
    }

    /// The drive is done with `next` at `done`. One whose latency the trace doesn't tell is
    /// taken for over when the next begins.
    pub(super) fn sent(&mut self, next: &Next, done: Nanos) {
        let over = next.traced + next.latency.unwrap_or_default();
        self.under_way.push(Reverse((over, done)));
    }

    /// The longest part of `extent` that was not written since.
    fn left_of(&self, extent: Extent) -> Option<Extent> {
        let sectors = extent.aligned_inside(SECTOR);
        let (mut longest, mut rest) = (None, sectors);
        while let Some(part) = self.unwritten.first_inside(rest) {
            rest.start = part.end;
            longest = longest.filter(|longest: &Extent| longest.len() >= part.len()).or(Some(part));
        }
        // Odd ends, which are kept where nothing was written, are no sectors.
        if longest == Some(sectors) || sectors.is_empty() { Some(extent) } else { longest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sectors(from: u64, count: u64) -> Extent {
        Extent::at(Bytes(from * 512), Bytes(count * 512))
    }

    /// Sends all that are due by `until` to a drive that takes `takes` for each; returns what it got.
    fn sent(recorded: &mut Recorded, until: u64, takes: u64) -> Vec<(u64, Option<Extent>)> {
        let mut sent = Vec::new();
        while let Some(next) = recorded.next(Nanos(until)) {
            recorded.sent(&next, next.arrival + Nanos(takes));
            sent.push((next.arrival.0, next.extent));
        }
        sent
    }

    fn recorded(discards: &[(u64, Option<u64>)]) -> Recorded {
        let mut recorded = Recorded::new(Bytes(1 << 20));
        for (place, (at, latency)) in discards.iter().enumerate() {
            recorded.add(Nanos(*at), latency.map(Nanos), Nanos(*at), sectors(10 * place as u64, 10));
        }
        recorded
    }

    fn arrivals(discards: &[(u64, Option<u64>)], takes: u64) -> Vec<u64> {
        sent(&mut recorded(discards), u64::MAX, takes).into_iter().map(|(arrival, _)| arrival).collect()
    }

    #[test]
    fn discards_go_one_by_one_where_they_did_in_the_trace() {
        let one_by_one = [(0, Some(10)), (10, Some(10)), (25, Some(10))];
        assert_eq!(arrivals(&one_by_one, 100), [0, 100, 200]);
        assert_eq!(arrivals(&one_by_one, 1), [0, 10, 25], "and never before their time");
        let together = [(0, Some(50)), (10, Some(50)), (20, Some(50)), (55, Some(9))];
        assert_eq!(arrivals(&together, 100), [0, 10, 20, 100]);
        assert_eq!(arrivals(&[(0, None), (10, None), (20, None)], 100), [0, 100, 200]);
    }

    #[test]
    fn what_is_written_before_its_discard_is_sent_stays() {
        let mut recorded = recorded(&[(0, Some(1)), (5, Some(1)), (6, Some(1))]);
        assert_eq!(sent(&mut recorded, 5, 100), [(0, Some(sectors(0, 10)))]);
        recorded.taken(sectors(0, 13));
        recorded.taken(sectors(15, 1));
        recorded.taken(sectors(20, 10));
        let longest = Some(sectors(16, 4));
        assert_eq!(sent(&mut recorded, u64::MAX, 100), [(100, longest), (200, None)]);
        assert_eq!(recorded.overtaken(), 1);
        recorded.add(Nanos(9), None, Nanos(9), sectors(0, 30));
        assert_eq!(sent(&mut recorded, u64::MAX, 1), [(300, Some(sectors(0, 30)))], "discarded once more");
    }

    #[test]
    fn odd_bytes_go_to_the_drive_as_they_were() {
        let mut recorded = Recorded::new(Bytes(1 << 20));
        let odd = [Extent::at(Bytes(100), Bytes(200)), Extent::at(Bytes(100), Bytes(1000))];
        odd.iter().for_each(|extent| recorded.add(Nanos(1), None, Nanos(1), *extent));
        let got: Vec<_> = sent(&mut recorded, 9, 1).into_iter().filter_map(|(_, extent)| extent).collect();
        assert_eq!(got, odd);
    }
}
