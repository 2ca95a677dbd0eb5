//! Splits a trim into slices that keep the drive or an allocation group busy only for a short time.

mod pieces;

use std::time::Duration;

use trimtab_core::{Bytes, DiscardUnits, Extent, ExtentSet};

use crate::free_space::{Division, FreeSpace};
use pieces::Piece;

/// Only longer free extents are split: the longest extent of ext4.
const MIN_SPLIT: Bytes = Bytes(128 << 20);

/// The bytes of a file system to trim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All free bytes.
    Everything,
    /// The free bytes in these extents; all others are known to be trimmed.
    Pending(ExtentSet),
}

/// The rest of a trim, in order of address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemainingTrim {
    /// In reverse order: the next piece is the last element.
    pieces: Vec<Piece>,
    /// Whether a slice may include the gap between two pieces.
    spans_gaps: bool,
    /// Whether a piece can be split.
    can_split: bool,
    left: Bytes,
}

/// The range of one FITRIM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The range.
    pub range: Extent,
    /// Its share of the progress: its free bytes, or its length if the free space is not known.
    pub bytes: Bytes,
    /// The predicted duration; `None` if the free space is not known.
    pub time: Option<Duration>,
}

/// The limits of a slice.
pub struct Limits<'a> {
    /// Returns the predicted duration for a free extent.
    pub time: &'a dyn Fn(Bytes) -> Duration,
    /// The longest duration of a slice.
    pub longest: Duration,
    /// The longest command of the device; extents are split at multiples of it if possible.
    pub command: Bytes,
    /// The units in which the device takes discards; extents are split between two.
    pub units: DiscardUnits,
    /// FITRIM passes over shorter parts of a free extent, so there are none.
    pub minimum: Bytes,
    /// Don't split groups, regardless of their duration.
    pub whole_groups: bool,
}

impl RemainingTrim {
    /// Plans a trim of `scope` within `range`. `free` are the free extents of at least the minimum, or none
    /// if unknown; `size` is the end of the trim addresses.
    pub fn new(
        division: &Division,
        free: Option<&FreeSpace>,
        scope: &Scope,
        range: Extent,
        size: Bytes,
    ) -> Self {
        let wanted: Vec<Extent> = match (scope, division, free) {
            (Scope::Everything, ..) => vec![range],
            (Scope::Pending(pending), Division::Groups(_), Some(free)) => {
                let pending: ExtentSet = pending.inside(range).collect();
                free.reached_from(&pending).inside(range).collect()
            }
            (Scope::Pending(pending), ..) => pending.inside(range).collect(),
        };
        let spans_gaps = *scope == Scope::Everything;
        let mut pieces = match (division, free) {
            (Division::Whole, _) => wanted.iter().map(|wanted| pieces::whole(*wanted, size)).collect(),
            (Division::Chunks(chunks), _) => pieces::of_chunks(chunks, &wanted, spans_gaps),
            (_, Some(free)) => {
                wanted.iter().flat_map(|wanted| pieces::of_free_space(division, free, *wanted)).collect()
            }
            (_, None) => wanted.iter().flat_map(|wanted| pieces::blind(*wanted, size)).collect(),
        };
        let left = pieces.iter().map(|piece| piece.bytes).sum();
        pieces.reverse();
        let can_split = matches!(division, Division::Anywhere { inside_extents: true });
        Self { pieces, spans_gaps, can_split, left }
    }

    /// Returns the bytes left: free bytes, or the length of the ranges if the free space is not known.
    pub fn left(&self) -> Bytes {
        self.left
    }

    /// Removes all pieces before `address`.
    pub fn skip_to(&mut self, address: Bytes) {
        self.pieces.retain(|piece| piece.range.end > address);
        self.left = self.pieces.iter().map(|piece| piece.bytes).sum();
    }

    /// Removes and returns the next slice; `None` if nothing is left.
    pub fn next(&mut self, limits: &Limits) -> Option<Slice> {
        let first = self.pieces.pop()?;
        let mut slice = match first.time(limits) {
            Some(time) if time > limits.longest && self.can_split => self.split(first, limits),
            time => Slice { range: first.range, bytes: first.bytes, time },
        };
        let mut group = first.group;
        while let Some(time) = slice.time {
            let rest = self.rest_of_next_group();
            let Some(next) = rest.last() else { break };
            if next.range.start != slice.range.end && !self.spans_gaps {
                break;
            }
            let is_same = next.group == group;
            let mut end = Some(time);
            let fits = |piece: &&Piece| {
                end = end.zip(piece.time(limits)).map(|(end, piece)| end + piece);
                end.is_some_and(|end| end <= limits.longest)
            };
            let fitting = rest.iter().rev().take_while(fits).count();
            // Finishes a group once started, and does not start one that will not fit the slice.
            let taken = if fitting == rest.len() || is_same && limits.whole_groups {
                rest.len()
            } else if is_same {
                fitting
            } else {
                0
            };
            if taken == 0 {
                break;
            }
            group = next.group;
            for piece in self.pieces.split_off(self.pieces.len() - taken).into_iter().rev() {
                slice.range.end = piece.range.end;
                slice.bytes += piece.bytes;
                slice.time = slice.time.zip(piece.time(limits)).map(|(all, piece)| all + piece);
            }
        }
        self.left -= slice.bytes;
        Some(slice)
    }

    /// Returns the remaining pieces of the next group, in reverse order.
    fn rest_of_next_group(&self) -> &[Piece] {
        let Some(next) = self.pieces.last() else { return &[] };
        let is_other = |piece: &Piece| piece.group != next.group;
        let start = self.pieces.iter().rposition(is_other).map_or(0, |other| other + 1);
        let rest = &self.pieces[start..];
        let gap = |pair: &[Piece]| pair[0].range.start != pair[1].range.end;
        match rest.windows(2).rposition(gap) {
            Some(gap) if !self.spans_gaps => &rest[gap + 1..],
            _ => rest,
        }
    }

    /// Returns a slice from the start of `piece`, and puts the rest back.
    fn split(&mut self, piece: Piece, limits: &Limits) -> Slice {
        let of_command = (limits.time)(limits.command);
        let step = if of_command <= limits.longest { limits.command } else { MIN_SPLIT.min(limits.command) };
        let steps = limits.longest.div_duration_f64((limits.time)(step)).max(1.0) as u64;
        let least = limits.minimum + limits.units.size();
        let length = Bytes(step.0.saturating_mul(steps)).max(least).max(Bytes::MIB);
        // The last two are alike: a short rest would cost a command for little, and be too long with the other.
        let half = Bytes((piece.bytes.0 / 2).next_multiple_of(Bytes::MIB.0));
        let can_halve = half >= least && piece.bytes.saturating_sub(half) >= limits.minimum;
        match piece.free {
            Some(free) if free.len() > length.max(MIN_SPLIT) && can_halve => {
                // A unit on both sides of the split would be discarded by neither slice.
                let between = limits.units.start_of(free.start + length.min(half));
                let rest = Extent::new(between, free.end);
                let length = between - free.start;
                let range = Extent::new(rest.start, piece.range.end);
                self.pieces.push(Piece { range, free: Some(rest), bytes: rest.len(), ..piece });
                let range = Extent::new(piece.range.start, rest.start);
                Slice { range, bytes: length, time: Some((limits.time)(length)) }
            }
            _ => Slice { range: piece.range, bytes: piece.bytes, time: piece.time(limits) },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, proptest};
    use trimtab_linux::ext4::Groups;

    use super::*;

    const MIB: u64 = 1 << 20;
    const GROUPS: Division = Division::Groups(Groups { first: Bytes(0), length: Bytes(128 * MIB) });
    const ANYWHERE: Division = Division::Anywhere { inside_extents: true };
    const ALL: Extent = Extent { start: Bytes(0), end: Bytes(u64::MAX) };

    fn at(start: u64, length: u64) -> Extent {
        Extent::at(Bytes(start * MIB), Bytes(length * MIB))
    }

    /// The duration on a drive that takes 1 ms per command of up to 1 GiB plus 1 ms per 100 MiB.
    fn time(length: Bytes) -> Duration {
        let commands = length.0.div_ceil(1 << 30) as f64;
        Duration::from_secs_f64((commands + length.mib() / 100.0) / 1e3)
    }

    fn limits(longest_ms: u64) -> Limits<'static> {
        let longest = Duration::from_millis(longest_ms);
        let units = DiscardUnits::default();
        Limits { time: &time, longest, command: Bytes::GIB, units, minimum: Bytes(0), whole_groups: false }
    }

    fn ranges(mut plan: RemainingTrim, limits: &Limits) -> Vec<Extent> {
        std::iter::from_fn(|| plan.next(limits)).map(|slice| slice.range).collect()
    }

    fn plan(division: &Division, free: &[Extent], scope: &Scope) -> RemainingTrim {
        let free = FreeSpace::new(free.to_vec(), division);
        RemainingTrim::new(division, Some(&free), scope, ALL, Bytes::GIB)
    }

    #[test]
    fn file_system_that_takes_whole_trims_alone_gets_one() {
        let mut plan = RemainingTrim::new(&Division::Whole, None, &Scope::Everything, ALL, Bytes(9 << 30));
        assert_eq!(plan.left(), Bytes(9 << 30));
        assert_eq!(plan.next(&limits(1)).map(|slice| slice.range), Some(ALL));
        assert_eq!(plan.next(&limits(1)), None);
    }

    #[test]
    fn groups_stay_whole_within_the_limit() {
        let free = [at(10, 20), at(40, 20), at(300, 20), at(330, 20), at(500, 1)];
        let of = |limits: &Limits| ranges(plan(&GROUPS, &free, &Scope::Everything), limits);
        let all = of(&limits(100));
        assert_eq!(all, [at(0, 512)], "the groups between, in which nothing is free, with them");
        assert_eq!(of(&limits(3)), [at(0, 128), at(256, 128), at(384, 128)]);
        assert_eq!(
            of(&limits(1)),
            [at(0, 30), at(30, 98), at(256, 64), at(320, 64), at(384, 128)],
            "each goes from the end of a free extent to that of the next"
        );
        assert_eq!(of(&Limits { whole_groups: true, ..limits(1) }), [at(0, 128), at(256, 128), at(384, 128)]);
    }

    #[test]
    fn long_extents_are_split_if_the_file_system_allows_it() {
        let free = [at(100, 2000)];
        let of =
            |division: &Division, limits: &Limits| ranges(plan(division, &free, &Scope::Everything), limits);
        let end = |start: u64| Extent::new(Bytes(start * MIB), Bytes(u64::MAX));
        assert_eq!(of(&ANYWHERE, &limits(100)), [ALL]);
        assert_eq!(of(&ANYWHERE, &limits(12)), [at(0, 1100), end(1100)]);
        let short = of(&ANYWHERE, &limits(1));
        assert_eq!(short[..2], [at(0, 228), at(228, 128)]);
        assert_eq!(
            (short.len(), short[14], short[15]),
            (16, at(1892, 104), end(1996)),
            "the last two are alike"
        );
        assert_eq!(of(&Division::Anywhere { inside_extents: false }, &limits(1)), [ALL]);
    }

    #[test]
    fn no_part_of_a_split_extent_is_shorter_than_the_minimum() {
        let of = |free: &[Extent], limits: &Limits| {
            let slices = ranges(plan(&ANYWHERE, free, &Scope::Everything), limits);
            let parts =
                slices.iter().map(|slice| Extent::new(slice.start, slice.end.min(free[0].end)).len().mib());
            parts.collect::<Vec<_>>()
        };
        let minimum = |mib: u64| Limits { minimum: Bytes(mib * MIB), ..limits(1) };
        assert_eq!(of(&[at(0, 200)], &minimum(1)), [100.0, 100.0]);
        assert_eq!(of(&[at(0, 200)], &minimum(128)), [200.0], "halves would be passed over");
        assert_eq!(of(&[at(0, 600)], &minimum(150)), [150.0, 150.0, 150.0, 150.0]);
        let short = Limits { command: Bytes(MIB / 2), ..minimum(1) };
        assert_eq!(of(&[at(0, 100)], &short), [100.0], "short extents stay whole");
        let nothing = Limits { command: Bytes(0), ..limits(1) };
        assert!(of(&[at(0, 200)], &nothing).len() > 1, "and it ends");
    }

    #[test]
    fn pending_scope_trims_nothing_else() {
        let free = [at(0, 100), at(110, 100), at(300, 50)];
        let pending = Scope::Pending([at(50, 100), at(205, 1), at(320, 10)].into_iter().collect());
        let of = |division: &Division, limits: &Limits| ranges(plan(division, &free, &pending), limits);
        assert_eq!(of(&ANYWHERE, &limits(1000)), [at(50, 100), at(205, 1), at(320, 10)]);
        assert_eq!(
            of(&GROUPS, &limits(1)),
            [at(50, 50), at(100, 28), at(128, 82), at(320, 30)],
            "each goes on to the end of the free extent in its group"
        );
    }

    #[test]
    fn chunks_are_trimmed_from_their_start() {
        let division = Division::Chunks(vec![at(3000, 1000), at(1000, 1000), at(2000, 1000)]);
        let of = |scope: &Scope, range| {
            ranges(RemainingTrim::new(&division, None, scope, range, Bytes(0)), &limits(1))
        };
        let whole = [at(1000, 1000), at(2000, 1000), at(3000, 1000)];
        assert_eq!(of(&Scope::Everything, ALL), whole);
        assert_eq!(
            of(&Scope::Everything, at(1500, 1600)),
            [at(2000, 1000), at(3000, 100)],
            "as the kernel does"
        );
        let pending = Scope::Pending([at(2500, 100), at(2700, 100)].into_iter().collect());
        assert_eq!(of(&pending, ALL), [at(2000, 800)]);
    }

    #[test]
    fn unknown_file_system_is_trimmed_in_fixed_steps() {
        let whole = RemainingTrim::new(&Division::Unknown, None, &Scope::Everything, ALL, Bytes(5 << 29));
        assert_eq!(whole.left(), Bytes(5 << 29));
        let end = Extent::new(Bytes(2 << 30), Bytes(u64::MAX));
        assert_eq!(ranges(whole, &limits(1)), [at(0, 1024), at(1024, 1024), end]);
    }

    #[test]
    fn resumed_plan_skips_what_was_reached() {
        let mut plan = plan(&ANYWHERE, &[at(0, 100), at(200, 100), at(400, 100)], &Scope::Everything);
        let first = plan.next(&limits(2)).unwrap();
        let mut resumed =
            self::plan(&ANYWHERE, &[at(0, 100), at(200, 100), at(400, 100)], &Scope::Everything);
        resumed.skip_to(first.range.end);
        assert_eq!(resumed, plan);
    }

    fn free_extents() -> impl Strategy<Value = Vec<Extent>> {
        prop::collection::vec((1..200u64, 1..300u64), 0..30).prop_map(|raw| {
            let mut next = 0;
            let extent = |(gap, length): (u64, u64)| {
                let extent = at(next + gap, length);
                next += gap + length;
                extent
            };
            raw.into_iter().map(extent).collect()
        })
    }

    fn divisions() -> impl Strategy<Value = Division> {
        prop::sample::select(vec![GROUPS, ANYWHERE, Division::Anywhere { inside_extents: false }])
    }

    proptest! {
        /// Slices are sorted, do not overlap, and cover all wanted free bytes.
        #[test]
        fn slices_cover_wanted_bytes_once(
            free in free_extents(), division in divisions(), longest in 0..20u64, whole_groups: bool, unit in 0..3000u64,
            pending in any::<bool>().prop_flat_map(|some| if some {
                free_extents().prop_map(Some).boxed() } else { Just(None).boxed() }),
        ) {
            let wanted: ExtentSet = pending.clone().unwrap_or(vec![ALL]).into_iter().collect();
            let scope = pending.map_or(Scope::Everything, |some| Scope::Pending(some.into_iter().collect()));
            let wanted = match (&division, &scope) {
                (Division::Groups(_), Scope::Pending(_)) => {
                    FreeSpace::new(free.clone(), &division).reached_from(&wanted)
                }
                _ => wanted,
            };
            let mut plan = plan(&division, &free, &scope);
            let units = DiscardUnits::new(Bytes(unit << 12), Bytes(unit << 9));
            let (limits, mut end) = (Limits { whole_groups, units, ..limits(longest) }, Bytes(0));
            let all_free = free.clone();
            let free: ExtentSet = free.into_iter().collect();
            let (mut covered, mut bytes) = (ExtentSet::new(), plan.left());
            prop_assert_eq!(bytes, free.intersect(&wanted).len());
            while let Some(slice) = plan.next(&limits) {
                prop_assert!(slice.range.start >= end && slice.range.start < slice.range.end);
                // A free extent is only split between two units.
                let inside = |free: &&Extent| free.start < slice.range.start && slice.range.start < free.end;
                if end == slice.range.start && all_free.iter().any(|free| inside(&free)) && division == ANYWHERE {
                    prop_assert_eq!(units.start_of(end), end);
                }
                end = slice.range.end;
                bytes -= slice.bytes;
                prop_assert_eq!(plan.left(), bytes);
                covered.insert(slice.range);
            }
            prop_assert_eq!(bytes, Bytes(0));
            let reached = covered.intersect(&free).intersect(&wanted);
            prop_assert_eq!(reached, free.intersect(&wanted));
            if matches!(scope, Scope::Pending(_)) {
                prop_assert_eq!(covered.intersect(&wanted), covered, "and nothing that isn't");
            }
        }
    }
}
