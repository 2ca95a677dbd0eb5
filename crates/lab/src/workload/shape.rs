//! Sizes of files, and how a workload is scaled to the space there is.

use std::f64::consts::TAU;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use trimtab_core::Bytes;

use crate::error::LabError;
use crate::stage::Stage;

/// The block of all file systems here.
const BLOCK: u64 = 4096;
/// Bytes that a file or directory needs beside its data: an inode, a name and its share of the maps.
const OVERHEAD: u64 = 1024;
/// The pieces of the file that makes a drive a used one.
const PIECE: u64 = 64 << 10;
/// The space that a workload is scaled to is a multiple of this, so that a few blocks more or less
/// change nothing.
const UNIT: u64 = 4 << 20;

/// Returns about how much space a file of `length` needs on a file system of 4 KiB blocks.
pub fn footprint(length: Bytes) -> Bytes {
    Bytes(length.0.next_multiple_of(BLOCK) + OVERHEAD)
}

/// Returns the space that a writer's part of a workload is scaled to: its share of [`scale_whole`].
///
/// # Errors
/// [`LabError::NoRoom`] or [`LabError::NoRoomForWriter`] if there is less than `least`.
pub fn scale(stage: &mut Stage, least: Bytes, most: Bytes) -> Result<Bytes, LabError> {
    let whole = scale_whole(stage, least, most)?;
    Ok(stage.work().share().bytes(whole))
}

/// Returns the space that the workload of all writers is scaled to: what they can use, rounded down, and at most
/// `most`. Each of them needs `least`.
///
/// # Errors
/// [`LabError::NoRoom`] or [`LabError::NoRoomForWriter`] if a writer has less than `least`.
pub fn scale_whole(stage: &mut Stage, least: Bytes, most: Bytes) -> Result<Bytes, LabError> {
    let work = stage.work();
    let whole = work.whole_space()?;
    let space = work.share().bytes(whole);
    if space < least {
        return Err(work.no_room(least, space));
    }
    Ok(Bytes(whole.0 / UNIT * UNIT).min(most))
}

/// `percent` of `of`, rounded down to whole MiB.
pub fn percent(of: Bytes, percent: u64) -> Bytes {
    Bytes(of.0 / 100 * percent / Bytes::MIB.0 * Bytes::MIB.0)
}

/// Writes one file of `length` in random order and deletes it: the activities `fill` and `clear`. A
/// drive in use has held more than it holds now, and neighbours by address do not lie side by side
/// in its flash; on a drive that was never full, or only in order, discards change little.
pub fn fill_once(stage: &mut Stage, length: Bytes, seed: u64) -> Result<(), LabError> {
    let path = Path::new("fill");
    let mut order: Vec<u64> = (0..length.0 / PIECE).collect();
    order.shuffle(&mut SmallRng::seed_from_u64(seed ^ 0x6669_6c6c));
    stage.activity("fill", |work| work.write_pieces(path, Bytes(PIECE), &order))?;
    stage.activity("clear", |work| {
        work.delete(path)?;
        work.sync()
    })
}

/// A draw from the standard normal distribution (Box and Muller, 1958).
pub fn normal(random: &mut SmallRng) -> f64 {
    let (radius, angle): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - radius).ln()).sqrt() * (TAU * angle).cos()
}

/// Returns `count` sizes of a log-normal distribution that amount to `total`; `spread` is the
/// standard deviation of their logarithm.
pub fn sizes(random: &mut SmallRng, count: usize, total: Bytes, spread: f64) -> Vec<Bytes> {
    let weights: Vec<f64> = (0..count).map(|_| (spread * normal(random)).exp()).collect();
    let scale = total.0 as f64 / weights.iter().sum::<f64>();
    let mut sizes: Vec<_> = weights.iter().map(|weight| Bytes((weight * scale) as u64)).collect();
    let rest = total.saturating_sub(sizes.iter().copied().sum());
    if let Some(first) = sizes.first_mut() {
        *first += rest;
    }
    sizes
}

/// How many files of the mean size `mean` amount to `total`; at least one.
pub fn count(total: Bytes, mean: Bytes) -> usize {
    (total.0 / mean.0).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_amount_to_their_total() {
        let draw = |seed| sizes(&mut SmallRng::seed_from_u64(seed), 1000, Bytes(10_000_000), 1.5);
        assert_eq!(draw(1).into_iter().sum::<Bytes>(), Bytes(10_000_000));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut sorted = draw(1);
        sorted.sort_unstable();
        // The median of a log-normal distribution is its mean / exp(spread^2 / 2).
        let median = 10_000.0 / (1.5_f64.powi(2) / 2.0).exp();
        assert!((sorted[500].0 as f64 / median - 1.0).abs() < 0.2, "median {}", sorted[500]);
    }
}
