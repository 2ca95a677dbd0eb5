//! Discarding many areas, with written data between them, and reading them again and again.

use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::document::bench::{BenchDevice, Reading};
use trimtab_core::profile::DiscardedReads;
use trimtab_core::{Bytes, Extent};
use xxhash_rust::xxh3::xxh3_64;

use super::content::Class;
use super::stamp::{Stamped, Stamper};
use crate::bench::error::BenchError;
use crate::interrupt::{Interrupt, Interrupted};

/// The most that is written, where grains let it be.
const BUDGET: Bytes = Bytes(256 << 20);
/// The grains of an area, where the budget has room for them.
const GRAINS: u64 = 4;
/// What an area and the data after it take, unless grains make it more or the range less.
const USUAL: (Bytes, Bytes) = (Bytes::MIB, Bytes(64 << 10));
/// How long a wait lasts before the user's Ctrl-C is looked at.
const PATIENCE: Duration = Duration::from_millis(100);

/// Where areas lie: one after the other from `start`, each followed by a guard, which is written
/// and not discarded; another guard comes before the first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) start: Bytes,
    pub(super) areas: u32,
    pub(super) area: Bytes,
    pub(super) guard: Bytes,
}

impl Layout {
    /// Up to `areas` areas of whole grains in `range`; `grain` is the grain and its alignment where
    /// they are known, else the device's word goes for it.
    pub(super) fn new(
        range: Extent,
        grain: Option<(Bytes, Bytes)>,
        device: &BenchDevice,
        areas: u32,
    ) -> Self {
        let advertised = (device.discard_granularity.max(device.logical_block), device.discard_alignment);
        let (grain, alignment) = grain.unwrap_or(advertised);
        let whole = |least: Bytes| Bytes(least.0.next_multiple_of(grain.0));
        let share = Bytes(range.len().0 / (2 * u64::from(areas)));
        let guard = whole(USUAL.1.min(share));
        let budget = Bytes(BUDGET.0 / u64::from(areas));
        let several = Bytes(GRAINS * grain.0);
        let area = whole(USUAL.0.min(share)).max(if several + guard <= budget { several } else { grain });
        let past = (range.start.0 + grain.0 - alignment.0 % grain.0) % grain.0;
        let start = range.start + Bytes((grain.0 - past) % grain.0);
        let room = range.end.saturating_sub(start + guard).0 / (area + guard).0;
        Self { start, areas: areas.min(room as u32), area, guard }
    }

    /// All that is written.
    pub(super) fn span(&self) -> Extent {
        let each = (self.area + self.guard).0;
        Extent::at(self.start, self.guard + Bytes(u64::from(self.areas) * each))
    }

    /// The areas, in order.
    pub(super) fn areas(&self) -> impl Iterator<Item = Extent> {
        let (first, area, each) = (self.start + self.guard, self.area, (self.area + self.guard).0);
        (0..u64::from(self.areas)).map(move |index| Extent::at(first + Bytes(index * each), area))
    }

    /// The guards, in order.
    pub(super) fn guards(&self) -> impl Iterator<Item = Extent> {
        let (start, guard, each) = (self.start, self.guard, (self.area + self.guard).0);
        (0..=u64::from(self.areas)).map(move |index| Extent::at(start + Bytes(index * each), guard))
    }
}

/// What became of the areas.
pub(super) struct Seen {
    pub(super) readings: Vec<Reading>,
    /// Of each area, whether anything of it had gone at any reading.
    pub(super) gone: Vec<bool>,
    /// Blocks of the guards that don't read back as written.
    pub(super) lost_outside: u64,
    /// Whether a block that had gone read as its old data later.
    returned: bool,
}

impl Seen {
    /// The areas of which nothing had gone, while others had.
    pub(super) fn ignored(&self) -> Vec<u32> {
        let any = self.gone.contains(&true);
        let ignored = (0..).zip(&self.gone).filter(|(_, gone)| any && !**gone);
        ignored.map(|(index, _)| index).collect()
    }

    /// What discarded blocks read as; none where none had gone.
    pub(super) fn verdict(&self) -> Option<DiscardedReads> {
        let any = |count: fn(&Reading) -> u64| self.readings.iter().any(|reading| count(reading) > 0);
        if any(|reading| reading.misplaced) {
            Some(DiscardedReads::Other)
        } else if any(|reading| reading.changed) || self.returned {
            Some(DiscardedReads::Garbage)
        } else if any(|reading| reading.zero) {
            Some(DiscardedReads::Zeros)
        } else {
            None
        }
    }
}

/// What a block was when it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    class: Class,
    digest: u64,
}

/// Writes all of `layout`, discards each area with one command, and reads the areas at once,
/// again, and after `delay`.
pub(super) fn discard_and_read(
    stamper: &mut Stamper,
    layout: &Layout,
    delay: Duration,
    tell: &mut dyn FnMut(&str),
) -> Result<Seen, BenchError> {
    let written = stamper.write(layout.span())?;
    for area in layout.areas() {
        stamper.discard(area)?;
    }
    let discarded = Instant::now();
    let mut seen = Seen {
        readings: Vec::new(),
        gone: vec![false; layout.areas as usize],
        lost_outside: 0,
        returned: false,
    };
    let mut before = Vec::new();
    for when in ["at once", "again", "after a delay"] {
        if seen.readings.len() == 2 {
            tell("waiting to read the discarded blocks again");
            wait_until(discarded + delay, stamper.interrupt())?;
            stamper.target().drop_caches().map_err(BenchError::device("drop the caches of"))?;
        }
        let after_wall_s = discarded.elapsed().as_secs_f64();
        let looks = look(stamper, layout, written)?;
        let reading = Reading { when: when.to_owned(), after_wall_s, ..count(&looks, &before) };
        seen.readings.push(reading);
        let blocks = (layout.area.0 / stamper.block().0) as usize;
        for (gone, looks) in seen.gone.iter_mut().zip(looks.chunks(blocks)) {
            *gone |= looks.iter().any(|look| look.class != Class::Unchanged);
        }
        let pairs = || before.iter().zip(&looks);
        seen.returned |= pairs().any(|(before, look): (&Look, &Look)| {
            before.class != Class::Unchanged && look.class == Class::Unchanged
        });
        before = looks;
    }
    for guard in layout.guards() {
        seen.lost_outside += stamper.lost(Stamped { extent: guard, ..written })?;
    }
    Ok(seen)
}

fn wait_until(deadline: Instant, interrupt: &Interrupt) -> Result<(), Interrupted> {
    loop {
        interrupt.check()?;
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(PATIENCE));
    }
}

/// Reads all areas.
fn look(stamper: &Stamper, layout: &Layout, written: Stamped) -> Result<Vec<Look>, BenchError> {
    let mut looks = Vec::new();
    for extent in layout.areas() {
        stamper.read(Stamped { extent, ..written }, |_, class, bytes| {
            looks.push(Look { class, digest: xxh3_64(bytes) });
        })?;
    }
    Ok(looks)
}

/// What was seen, and what of it is unlike what was seen before.
fn count(looks: &[Look], before: &[Look]) -> Reading {
    let of = |class| looks.iter().filter(|look| look.class == class).count() as u64;
    Reading {
        when: String::new(),
        after_wall_s: 0.0,
        zero: of(Class::Zero),
        unchanged: of(Class::Unchanged),
        misplaced: of(Class::Misplaced),
        changed: of(Class::Changed),
        unstable: looks.iter().zip(before).filter(|(look, before)| look != before).count() as u64,
    }
}

/// The period of discards that are ignored, whatever the first of them: none unless at least three
/// of `areas` were ignored and all of them, and no others, are as far apart.
pub(super) fn period(ignored: &[u32], areas: u32) -> Option<u32> {
    let [first, second, _, ..] = *ignored else { return None };
    let period = second - first;
    let expected = (first % period..areas).step_by(period as usize);
    (first < period && expected.eq(ignored.iter().copied())).then_some(period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_needs_three_that_fit() {
        assert_eq!(period(&[3, 13, 23, 33], 40), Some(10));
        assert_eq!(period(&[0, 10, 20, 30], 40), Some(10));
        assert_eq!(period(&[1, 3, 5], 6), Some(2));
        assert_eq!(period(&[13, 23, 33], 40), None, "3 was honoured");
        assert_eq!(period(&[3, 13, 23], 40), None, "33 was honoured");
        assert_eq!(period(&[3, 13, 20, 33], 40), None);
        assert_eq!(period(&[3, 23], 40), None, "two may be chance");
        assert_eq!(period(&[], 40), None);
    }
}
