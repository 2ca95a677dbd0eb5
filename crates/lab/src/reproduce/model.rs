//! Measurements on the flash model alone, in model time.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use trimtab_core::document::reproduce::SizeSeries;
use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_ftl::{Command, Device, Op};

use crate::error::LabError;

/// Seeds all draws.
const SEED: u64 = 1;
/// The drive of every measurement but the sweep.
const SIZE: Bytes = Bytes(512 << 20);
/// The largest discard of the sweep, A. Purdea's.
pub(super) const LARGEST: Bytes = Bytes(2 << 30);
/// The smallest discard of the sweep, one sector.
pub(super) const SECTOR: Bytes = Bytes(512);

/// A new drive and its clock.
struct Bench {
    device: Device,
    now: Nanos,
}

impl Bench {
    /// A drive of this profile; a used one holds data everywhere.
    fn new(profile: &str, size: Bytes, used: bool) -> Result<Self, LabError> {
        let profile = Profile::named(profile)?;
        let mut device = Device::new(&profile, size).map_err(|source| LabError::Geometry {
            profile: profile.name.clone(),
            size,
            source,
        })?;
        if used {
            device.precondition();
        }
        Ok(Self { device, now: Nanos::ZERO })
    }

    /// Does one command after the last; returns the seconds it took.
    fn submit(&mut self, op: Op, extent: Extent) -> f64 {
        let start = self.now;
        self.now = self.device.submit(start, Command { op, extent });
        (self.now - start).seconds()
    }

    /// Seconds that all these commands and a flush took.
    fn all(&mut self, op: Op, extents: impl IntoIterator<Item = Extent>) -> f64 {
        let start = self.now;
        for extent in extents {
            self.submit(op, extent);
        }
        if op == Op::Write {
            self.submit(Op::Flush, Extent::new(Bytes::ZERO, Bytes::ZERO));
        }
        (self.now - start).seconds()
    }
}

/// Places of `count` pieces of `piece` bytes in order from the drive's start.
fn in_order(piece: Bytes, count: u64) -> Vec<Extent> {
    (0..count).map(|place| Extent::at(Bytes(place * piece.0), piece)).collect()
}

fn shuffled(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.shuffle(&mut SmallRng::seed_from_u64(SEED));
    extents
}

/// Times discards as `trim_perf` does: from 2 GiB down to a sector, each half as large as the one before and
/// after it on the drive. Returns microseconds by size.
pub(super) fn sweep(profile: &str) -> Result<SizeSeries, LabError> {
    let mut bench = Bench::new(profile, LARGEST * 2, false)?;
    let (mut size, mut start, mut points) = (LARGEST, Bytes::ZERO, Vec::new());
    while size >= SECTOR {
        // One command names no more than the drive takes, as Linux splits it.
        let limit = Profile::named(profile)?.discard.command_limit.value;
        let pieces = (start.0..start.0 + size.0).step_by(limit.0 as usize);
        let end = start + size;
        let took: f64 = pieces
            .map(|from| bench.submit(Op::Discard, Extent::new(Bytes(from), end.min(Bytes(from + limit.0)))))
            .sum();
        points.push((size, took * 1e6));
        (start, size) = (end, Bytes(size.0 / 2));
    }
    points.reverse();
    Ok(SizeSeries { name: profile.to_owned(), points })
}

/// Returns the bytes that a discard of `size` bytes at the start of a used drive unmaps.
pub(super) fn unmapped(profile: &str, size: Bytes) -> Result<f64, LabError> {
    let mut bench = Bench::new(profile, SIZE, true)?;
    let before = bench.device.mapped();
    bench.submit(Op::Discard, Extent::at(Bytes::ZERO, size));
    Ok((before - bench.device.mapped()).0 as f64)
}

/// How discards are laid out, as in `test-discard`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// One after the other.
    Sequential,
    /// In random order.
    Random,
    /// One after the other, of what was discarded before.
    Repeated,
}

/// MiB a second of discards of `piece` bytes over 64 MiB of a used drive.
pub(super) fn pattern(profile: &str, pattern: Pattern, piece: Bytes) -> Result<f64, LabError> {
    let span = Bytes(64 << 20);
    let mut bench = Bench::new(profile, SIZE, true)?;
    let extents = in_order(piece, span.0 / piece.0);
    let took = match pattern {
        Pattern::Sequential => bench.all(Op::Discard, extents),
        Pattern::Random => bench.all(Op::Discard, shuffled(extents)),
        Pattern::Repeated => {
            bench.all(Op::Discard, extents.clone());
            bench.all(Op::Discard, extents)
        }
    };
    Ok(64.0 / took)
}

/// Seconds and write amplification of random writes of 4 KiB over half of the drive, after all of it was written,
/// and its other half was discarded or not.
pub(super) fn random_writes(profile: &str, used: bool, discards: bool) -> Result<(f64, f64), LabError> {
    let mut bench = Bench::new(profile, SIZE, used)?;
    let half = Bytes(SIZE.0 / 2);
    if discards {
        let (piece, count) = (Bytes(16 << 20), SIZE.0 >> 24);
        bench.all(Op::Discard, in_order(piece, count).into_iter().skip(count as usize / 2));
    }
    let piece = Bytes(4 << 10);
    let mut random = SmallRng::seed_from_u64(SEED);
    let pieces = half.0 / piece.0;
    // A short test on a new drive; on a used one, until garbage collection has gone through all of it.
    let count = if used { 4 * pieces } else { pieces / 2 };
    let writes = (0..count).map(|_| Extent::at(Bytes(piece.0 * random.random_range(0..pieces)), piece));
    let writes: Vec<_> = writes.collect();
    let before = bench.device.ftl().totals();
    let took = bench.all(Op::Write, writes);
    Ok((took, bench.device.ftl().totals().since(&before).waf()))
}

/// Write amplification of large sequential writes over all of a used drive, twice, without a discard.
pub(super) fn sequential_waf(profile: &str) -> Result<f64, LabError> {
    let mut bench = Bench::new(profile, SIZE, true)?;
    let before = bench.device.ftl().totals();
    for _ in 0..2 {
        bench.all(Op::Write, in_order(Bytes(4 << 20), SIZE.0 >> 22));
    }
    Ok(bench.device.ftl().totals().since(&before).waf())
}

/// Seconds of random writes of 4 KiB that begin `offset` bytes after a page's start, over a quarter of a used
/// drive that was discarded by half.
pub(super) fn writes_at(profile: &str, offset: Bytes) -> Result<f64, LabError> {
    let mut bench = Bench::new(profile, SIZE, true)?;
    bench.submit(Op::Discard, Extent::at(Bytes(SIZE.0 / 2), Bytes(SIZE.0 / 2)));
    let piece = Bytes(4 << 10);
    let pieces = shuffled(in_order(piece, (SIZE.0 / 4) / piece.0));
    Ok(bench.all(Op::Write, pieces.into_iter().map(|extent| Extent::at(extent.start + offset, piece))))
}

/// Seconds that discards of `piece` bytes take for 64 MiB.
pub(super) fn in_pieces(profile: &str, piece: Bytes) -> Result<f64, LabError> {
    Ok(64.0 / pattern(profile, Pattern::Sequential, piece)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_names_each_power_of_two_and_costs_no_less_for_more() {
        let line = sweep("ocz-agility-3").unwrap();
        let sizes: Vec<_> = line.points.iter().map(|(size, _)| *size).collect();
        assert_eq!(sizes.len(), 23);
        assert_eq!((sizes[0], sizes[22]), (SECTOR, LARGEST));
        assert!(line.points.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{line:?}");
    }

    #[test]
    fn used_drive_without_discards_copies_more() {
        let [with, without] =
            [true, false].map(|discards| random_writes("corsair-performance-pro", true, discards).unwrap());
        assert!(without.1 > 1.05 * with.1, "{without:?} {with:?}");
        assert!(without.0 > with.0);
    }

    #[test]
    fn misaligned_writes_touch_two_pages() {
        let aligned = writes_at("ocz-agility-3", Bytes::ZERO).unwrap();
        assert!(writes_at("ocz-agility-3", SECTOR).unwrap() > 1.2 * aligned);
    }
}
