//! Does a discard work? What discarded blocks read as, which discards are ignored, and by which
//! grains they are honoured.

mod areas;
mod content;
mod granularity;
pub mod power_cycle;
mod stamp;
#[cfg(test)]
mod tests;
mod timing;

use std::time::Duration;

use trimtab_core::Extent;
use trimtab_core::document::bench::{BenchDevice, Verify};
use trimtab_core::profile::DiscardedReads;

use self::stamp::Stamper;
use super::error::BenchError;
use super::target::Target;
use trimtab_core::interrupt::Interrupt;

/// How thoroughly discards are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyOptions {
    /// Makes data and places the same at every run.
    pub seed: u64,
    /// How long after the last discard its areas are read for the last time.
    pub delay: Duration,
    /// How many areas are discarded, where the range has room for them.
    pub areas: u32,
    /// How many discards of random size and place test the granularity that was found.
    pub probes: u32,
}

impl VerifyOptions {
    /// As thorough as most users want it: every n-th discard that is ignored shows up to n = 20.
    pub fn new(seed: u64, delay: Duration) -> Self {
        Self { seed, delay, areas: 40, probes: 8 }
    }
}

/// Writes, discards and reads `range` of `target`, and tells whether discards work. `tell` is
/// called with what is done next. Writes less than 200 MiB where the grain is below 1 MiB.
///
/// # Errors
/// A command that failed, or the user's wish to stop.
pub fn verify(
    target: &dyn Target,
    device: &BenchDevice,
    range: Extent,
    options: &VerifyOptions,
    interrupt: &Interrupt,
    tell: &mut dyn FnMut(&str),
) -> Result<Verify, BenchError> {
    let mut stamper = Stamper::new(target, options.seed, interrupt);
    tell("which grains a discard frees");
    let mut found = granularity::find(&mut stamper, range, options.probes, options.seed)?;
    tell("what discarded blocks read as");
    let layout = areas::Layout::new(range, found.grain.clone().ok(), device, options.areas);
    let seen = areas::discard_and_read(&mut stamper, &layout, options.delay, tell)?;
    let mut reads = seen.verdict();
    if reads.is_none() {
        tell("whether discarded blocks read faster");
        if let Some(grain) = timing::find(&mut stamper, range, options.seed)? {
            reads = Some(DiscardedReads::Old);
            found.grain = grain;
        }
    }
    let ignored = seen.ignored();
    Ok(Verify {
        areas: layout.areas,
        area_size: layout.area,
        reads,
        ignored_every: areas::period(&ignored, layout.areas),
        ignored,
        lost_outside: found.lost_outside + seen.lost_outside,
        readings: seen.readings,
        granularity: found.granularity(device.discard_granularity),
        power_cycle: None,
    })
}
