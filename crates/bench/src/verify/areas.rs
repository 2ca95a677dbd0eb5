//! Discarding many areas, with written data between them, and reading them again and again.

use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::document::bench::{BenchDevice, Reading};
use trimtab_core::profile::DiscardedReads;
use trimtab_core::{Bytes, Extent};
use xxhash_rust::xxh3::xxh3_64;

use super::content::Class;
use super::stamp::{Stamped, Stamper};
use crate::error::BenchError;
use trimtab_core::interrupt::{Interrupt, Interrupted};

/// The most that is written.
const BUDGET: Bytes = Bytes(256 << 20);
/// The grains of an area, where the budget has room for them.
const GRAINS: u64 = 4;
/// The sizes of an area and of the data after it, unless grains make it more or the range less.
const USUAL: (Bytes, Bytes) = (Bytes::MIB, Bytes(64 << 10));
/// How long a wait lasts before the user's Ctrl-C is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

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
    /// Up to `areas` areas of whole grains in `range`, none where no area fits. `grain` is the grain
    /// and its alignment where they are known; else the device's word goes for it, as far as areas
    /// fit that way.
    pub(super) fn new(
        range: Extent,
        grain: Option<(Bytes, Bytes)>,
        device: &BenchDevice,
        areas: u32,
    ) -> Self {
        let block = device.logical_block;
        let advertised = (device.discard_granularity.max(block), device.discard_alignment);
        let (size, alignment) = grain.unwrap_or(advertised);
        let whole_blocks = [size, alignment].iter().all(|bytes| bytes.0.is_multiple_of(block.0));
        let layout = whole_blocks.then(|| Self::of_grains(range, size, alignment, areas)).flatten();
        let of_blocks = || Self::of_grains(range, block, Bytes::ZERO, areas).filter(|_| grain.is_none());
        let nothing = Self { start: range.start, areas: 0, area: Bytes::ZERO, guard: Bytes::ZERO };
        layout.or_else(of_blocks).unwrap_or(nothing)
    }

    /// Areas of whole grains; none where no area fits.
    fn of_grains(range: Extent, grain: Bytes, alignment: Bytes, areas: u32) -> Option<Self> {
        if grain > range.len().min(BUDGET) {
            return None;
        }
        let part = |parts: u64| Bytes(range.len().0 / (parts * u64::from(areas)) / grain.0 * grain.0);
        let usual = |least: Bytes, most: Bytes| Bytes(least.0.next_multiple_of(grain.0)).min(most).max(grain);
        let guard = usual(USUAL.1, part(4));
        let several = Bytes(GRAINS * grain.0);
        let each = Bytes(BUDGET.min(range.len()).0 / u64::from(areas));
        let least = if several + guard + guard <= each { several } else { grain };
        let area = usual(USUAL.0, part(2)).max(least);
        let past = (range.start.0 + grain.0 - alignment.0 % grain.0) % grain.0;
        let start = range.start + Bytes((grain.0 - past) % grain.0);
        let room = range.end.saturating_sub(start).min(BUDGET).saturating_sub(guard).0 / (area + guard).0;
        let areas = areas.min(room as u32);
        (areas > 0).then_some(Self { start, areas, area, guard })
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

    /// The guards, in order; none where there are no areas.
    pub(super) fn guards(&self) -> impl Iterator<Item = Extent> {
        let (start, guard, each) = (self.start, self.guard, (self.area + self.guard).0);
        let guards = if self.areas == 0 { 0 } else { u64::from(self.areas) + 1 };
        (0..guards).map(move |index| Extent::at(start + Bytes(index * each), guard))
    }
}

/// The fate of the areas.
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
    /// The areas that were unchanged while others had gone.
    pub(super) fn ignored(&self) -> Vec<u32> {
        let any = self.gone.contains(&true);
        let ignored = (0..).zip(&self.gone).filter(|(_, gone)| any && !**gone);
        ignored.map(|(index, _)| index).collect()
    }

    /// Returns the data that discarded blocks read as; none where none had gone.
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

/// The state of a block when it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Look {
    class: Class,
    digest: u64,
}

/// Writes all of `layout`, discards each area with one command, and reads the areas at once,
/// again, and after `delay`. Does nothing where there are no areas.
pub(super) fn discard_and_read(
    stamper: &mut Stamper,
    layout: &Layout,
    delay: Duration,
    tell: &mut dyn FnMut(&str),
) -> Result<Seen, BenchError> {
    let mut seen = Seen {
        readings: Vec::new(),
        gone: vec![false; layout.areas as usize],
        lost_outside: 0,
        returned: false,
    };
    if layout.areas == 0 {
        return Ok(seen);
    }
    let written = stamper.write(layout.span())?;
    for area in layout.areas() {
        stamper.discard(area)?;
    }
    let discarded = Instant::now();
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
        thread::sleep(left.min(POLL_INTERVAL));
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

/// Counts the looks, and those that differ from the looks before.
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
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::*;
    use crate::memory::{Behaviour, device};

    /// Numbers of every magnitude up to 2^50, powers of two and others.
    fn wild() -> impl Strategy<Value = u64> {
        (0..50_u32, prop_oneof![Just(0), any::<u64>()])
            .prop_map(|(bits, low)| (1 << bits) | (low & ((1 << bits) - 1)))
    }

    proptest! {
        #[test]
        fn areas_stay_inside_the_range_and_the_budget(
            block in (9..=16_u32).prop_map(|bits| Bytes(1 << bits)),
            start in wild(),
            length in wild(),
            advertised in wild(),
            shift in wild(),
            grain in prop::option::of(1..5000_u64),
            whole in any::<bool>(),
            areas in 1..100_u32,
        ) {
            let blocks = |bytes: u64| Bytes(bytes / block.0 * block.0);
            let range = Extent::at(blocks(start), blocks(length));
            let hint = |bytes| if whole { blocks(bytes) } else { Bytes(bytes) };
            let device = BenchDevice {
                logical_block: block,
                discard_granularity: hint(advertised),
                discard_alignment: hint(shift),
                ..device(&Behaviour::honest(Bytes::MIB))
            };
            let known = grain.map(|grain| (Bytes(grain * block.0), Bytes(shift % grain * block.0)));
            let layout = Layout::new(range, known, &device, areas);
            let span = layout.span();
            prop_assert_eq!(range.intersect(span), span);
            prop_assert!(span.len() <= BUDGET && layout.areas <= areas);
            prop_assert_eq!(span.is_empty(), layout.areas == 0);
            if known.is_none() && range.len() >= Bytes(3 * block.0) {
                prop_assert!(layout.areas > 0, "a block and its guards fit");
            }
            let mut written = span.start;
            let mut guards = layout.guards();
            for area in layout.areas() {
                let guard = guards.next().unwrap();
                prop_assert!(!guard.is_empty() && !area.is_empty());
                prop_assert_eq!((guard.start, guard.end), (written, area.start));
                prop_assert!(area.start.0.is_multiple_of(block.0) && area.len().0.is_multiple_of(block.0));
                if let Some((grain, alignment)) = known {
                    prop_assert_eq!(area.start.0 % grain.0, alignment.0);
                    prop_assert!(area.len().0.is_multiple_of(grain.0));
                }
                written = area.end;
            }
            prop_assert_eq!(guards.next().map_or(written, |guard| guard.end), span.end);
            prop_assert!(guards.next().is_none());
        }
    }

    #[test]
    fn period_needs_three_matching_places() {
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
