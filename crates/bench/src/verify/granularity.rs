//! Finds out which discards a drive really honours.
//!
//! The first discard that frees anything frees whole grains: both its ends are borders between
//! grains. From there on the grain is a guess, the greatest common divisor of the distances
//! between all borders seen, and every further probe is chosen to break it: a grain less a block,
//! a grain off by a block, and pieces at random. One that frees something else than the guess says
//! shows new borders, which make the grain smaller, and the probes start again.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use trimtab_core::document::bench::{Granularity, GranularityProbe};
use trimtab_core::{Bytes, Extent};

use super::content::Class;
use super::stamp::{Stamped, Stamper};
use crate::error::BenchError;

/// The largest grain that is looked for.
const LARGEST: Bytes = Bytes(64 << 20);
/// The part of the range that the largest grain may take, as a divisor.
const RANGE_PART: u64 = 8;
/// Blocks that are written and watched on both sides of a discard.
const MARGIN_BLOCKS: u64 = 16;
/// How often a discard is sent that frees nothing, as a drive may ignore some.
const TRIES: u32 = 3;

/// The grain and the address modulo it at which grains start, or why they aren't known.
pub(super) type Grain = Result<(Bytes, Bytes), UnknownGrain>;

/// Why the grain isn't known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnknownGrain {
    #[error("no discard of up to {largest} changed what its blocks read as")]
    NothingFreed { largest: Bytes },
    #[error("{blocks} blocks outside of discards went with them")]
    LostOutside { blocks: u64 },
    #[error(
        "it has no fixed grain: others suggest {grain}, by which a discard of {discarded} frees {}, but it freed {}",
        extent_or_nothing(*expected),
        extent_or_nothing(*freed)
    )]
    NotFixed { grain: Bytes, discarded: Extent, expected: Option<Extent>, freed: Option<Extent> },
    #[error(
        "discarded blocks read as before, and the time they take tells only that grains are shorter than {longest}"
    )]
    ShorterThan { longest: Bytes },
}

fn extent_or_nothing(extent: Option<Extent>) -> String {
    extent.map_or("nothing".to_owned(), |extent| extent.to_string())
}

/// The known facts about a drive's grains.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// The grain.
    pub(super) grain: Grain,
    /// The probes that showed it.
    pub(super) probes: Vec<GranularityProbe>,
    /// Blocks outside of a discard that it took with it.
    pub(super) lost_outside: u64,
}

impl Found {
    /// As the document has it.
    pub(super) fn granularity(self, advertised: Bytes) -> Granularity {
        let (honoured, alignment, reason) = match self.grain {
            Ok((grain, alignment)) => (Some(grain), alignment, None),
            Err(reason) => (None, Bytes::ZERO, Some(reason.to_string())),
        };
        Granularity { advertised, honoured, alignment, reason, probes: self.probes }
    }
}

/// Finds the grain that discards in `range` are honoured by, with `probes` probes at random at the
/// end. Writes about 20 grains, and some more for each probe.
pub(super) fn find(
    stamper: &mut Stamper,
    range: Extent,
    probes: u32,
    seed: u64,
) -> Result<Found, BenchError> {
    let random = SmallRng::seed_from_u64(seed);
    let mut search = Search { stamper, range, random, probes: Vec::new(), lost_outside: 0 };
    let grain = search.run(probes)?;
    let Search { probes, lost_outside, .. } = search;
    let grain = match lost_outside {
        0 => grain,
        blocks => Err(UnknownGrain::LostOutside { blocks }),
    };
    Ok(Found { grain, probes, lost_outside })
}

struct Search<'a, 'b> {
    stamper: &'a mut Stamper<'b>,
    range: Extent,
    random: SmallRng,
    probes: Vec<GranularityProbe>,
    lost_outside: u64,
}

/// A guess: grains of `grain` bytes; one starts at `border`.
#[derive(Debug, Clone, Copy)]
struct Guess {
    grain: u64,
    border: u64,
}

impl Guess {
    /// Returns the part of a discard that is unmapped.
    fn freed(self, discarded: Extent) -> Option<Extent> {
        let shift = self.grain - self.border % self.grain;
        let moved = Extent::at(discarded.start + Bytes(shift), discarded.len());
        let inside = moved.aligned_inside(Bytes(self.grain));
        (!inside.is_empty()).then(|| Extent::at(inside.start - Bytes(shift), inside.len()))
    }

    /// The guess that has borders at both ends of `gone` as well.
    fn refined(self, gone: Extent) -> Self {
        let distance = |end: Bytes| end.0.abs_diff(self.border);
        Self { grain: gcd(gcd(self.grain, distance(gone.start)), distance(gone.end)), ..self }
    }
}

impl Search<'_, '_> {
    fn run(&mut self, random_probes: u32) -> Result<Grain, BenchError> {
        let Some(first) = self.first_gone()? else {
            let largest = self.largest_discard();
            return Ok(Err(UnknownGrain::NothingFreed { largest }));
        };
        let mut guess = Guess { grain: first.len().0, border: first.start.0 };
        loop {
            match self.refute(guess, random_probes)? {
                Verdict::Stands => {
                    return Ok(Ok((Bytes(guess.grain), Bytes(guess.border % guess.grain))));
                }
                Verdict::Refined(finer) => guess = finer,
                Verdict::Unknown(reason) => return Ok(Err(reason)),
            }
        }
    }

    fn margin(&self) -> u64 {
        MARGIN_BLOCKS * self.stamper.block().0
    }

    fn largest_discard(&self) -> Bytes {
        Bytes((2 * LARGEST.0).min(self.range.len().0 / RANGE_PART))
    }

    /// Discards more and more of one written area until something goes.
    fn first_gone(&mut self) -> Result<Option<Extent>, BenchError> {
        let start = Bytes(self.range.start.0 + self.margin()).0.next_multiple_of(self.margin());
        let mut written: Option<Stamped> = None;
        let mut length = self.stamper.block();
        while length <= self.largest_discard() {
            let discarded = Extent::at(Bytes(start), length);
            let window = self.window(discarded);
            let area = match written {
                Some(area) if area.extent.end >= window.end => area,
                // What went of it is none so far, so it needn't be written again while it is long
                // enough.
                _ => self.stamper.write(Extent::at(window.start, Bytes(2 * window.len().0)))?,
            };
            written = Some(area);
            for _ in 0..TRIES {
                if let Some(gone) = self.discard(Stamped { extent: window, ..area }, discarded)? {
                    return Ok(Some(gone));
                }
            }
            length = Bytes(2 * length.0);
        }
        Ok(None)
    }

    /// Sends discards that would free something else than `guess` says if it were wrong.
    fn refute(&mut self, guess: Guess, random_probes: u32) -> Result<Verdict, BenchError> {
        let (grain, block) = (guess.grain, self.stamper.block().0);
        let exact = [(0, grain), (0, grain - block), (block, grain), (block, grain + block)];
        for (from, to) in exact.into_iter().filter(|(from, to)| from < to) {
            match self.check(guess, from, to)? {
                Verdict::Stands => {}
                verdict => return Ok(verdict),
            }
        }
        for _ in 0..random_probes {
            let from = self.random.random_range(0..2 * grain.div_ceil(block)) * block;
            let length = self.random.random_range(1..=3 * grain.max(8 * block) / block) * block;
            match self.check(guess, from, from + length)? {
                Verdict::Stands => {}
                verdict => return Ok(verdict),
            }
        }
        Ok(Verdict::Stands)
    }

    /// Discards the bytes `from..to` after the start of a grain, until what `guess` says has gone,
    /// each time of another place that is just written.
    fn check(&mut self, guess: Guess, from: u64, to: u64) -> Result<Verdict, BenchError> {
        let mut verdict = Verdict::Stands;
        for _ in 0..TRIES {
            let Some(border) = self.border_before(guess, to) else {
                return Ok(verdict);
            };
            let discarded = Extent::new(Bytes(border + from), Bytes(border + to));
            let (expected, window) = (guess.freed(discarded), self.window(discarded));
            let area = self.stamper.write(window)?;
            let gone = self.discard(area, discarded)?;
            if let Some(gone) = gone {
                let finer = guess.refined(gone);
                if finer.grain < guess.grain {
                    return Ok(Verdict::Refined(finer));
                }
            }
            if gone == expected && expected.is_some() {
                return Ok(Verdict::Stands);
            }
            if gone != expected {
                let grain = Bytes(guess.grain);
                verdict =
                    Verdict::Unknown(UnknownGrain::NotFixed { grain, discarded, expected, freed: gone });
            }
        }
        Ok(verdict)
    }

    /// The start of a grain, drawn at random of those with room for `length` bytes after it.
    fn border_before(&mut self, guess: Guess, length: u64) -> Option<u64> {
        let Guess { grain, border } = guess;
        let low = self.range.start.0 + self.margin();
        let first = low + (border % grain + grain - low % grain) % grain;
        let last = self.range.end.0.checked_sub(length + self.margin())?;
        let places = (last.checked_sub(first)? / grain) + 1;
        Some(first + self.random.random_range(0..places) * grain)
    }

    /// Returns the range that is written and watched around a discard.
    fn window(&self, discarded: Extent) -> Extent {
        let margin = Bytes(self.margin());
        Extent::new(discarded.start - margin, discarded.end + margin)
    }

    /// Discards a part of `area`, and returns from the first to the last block of it that went.
    fn discard(&mut self, area: Stamped, discarded: Extent) -> Result<Option<Extent>, BenchError> {
        self.stamper.discard(discarded)?;
        let block = self.stamper.block();
        let mut gone: Option<Extent> = None;
        let mut lost = 0;
        self.stamper.read(area, |at, class, _| {
            if class == Class::Unchanged {
            } else if at < discarded.start || at >= discarded.end {
                lost += 1;
            } else {
                gone = Some(Extent::new(gone.map_or(at, |gone| gone.start), at + block));
            }
        })?;
        self.lost_outside += lost;
        self.probes.push(GranularityProbe { discarded, gone });
        Ok(gone)
    }
}

/// The verdict of a probe on a guess.
enum Verdict {
    Stands,
    Refined(Guess),
    Unknown(UnknownGrain),
}

/// The greatest common divisor (Euclid, "Elements", VII.2).
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trimtab_core::profile::DiscardedReads;

    use super::*;
    use crate::memory::{Behaviour, Memory, Returns};
    use trimtab_core::interrupt::Interrupt;

    const SIZE: Bytes = Bytes(8 << 20);

    fn find_on(target: &Memory) -> Found {
        let interrupt = Interrupt::never();
        let mut stamper = Stamper::new(target, 1, &interrupt);
        find(&mut stamper, Extent::new(Bytes::ZERO, SIZE), 8, 1).unwrap()
    }

    fn reads() -> impl Strategy<Value = DiscardedReads> {
        prop_oneof![Just(DiscardedReads::Zeros), Just(DiscardedReads::Garbage), Just(DiscardedReads::Other)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn any_grain_is_found_exactly(
            grain in prop_oneof![1_u64..=8, 1_u64..=256],
            alignment in 0_u64..256,
            reads in reads(),
            ignored_every in prop_oneof![Just(None), (2_u64..12).prop_map(Some)],
        ) {
            let honest = Behaviour::honest(SIZE);
            let (grain, alignment) = (Bytes(512 * grain), Bytes(512 * (alignment % grain)));
            let memory = Memory::new(Behaviour { grain, alignment, reads, ignored_every, ..honest });
            let found = find_on(&memory);
            prop_assert_eq!(found.grain, Ok((grain, alignment)));
            prop_assert_eq!(found.lost_outside, 0);
            prop_assert!(memory.written().0 < 2_000_000 + 70 * grain.0, "{} written", memory.written());
        }
    }

    #[test]
    fn a_drive_that_reads_old_data_shows_no_grain() {
        let behaviour = Behaviour { reads: DiscardedReads::Old, ..Behaviour::honest(SIZE) };
        let found = find_on(&Memory::new(behaviour));
        let reason = found.grain.unwrap_err().to_string();
        assert_eq!(reason, "no discard of up to 1 MiB changed what its blocks read as");
    }

    #[test]
    fn a_drive_that_frees_more_than_it_is_told_is_found_out() {
        let behaviour = Behaviour { rounds_outward: true, grain: Bytes(4096), ..Behaviour::honest(SIZE) };
        let found = find_on(&Memory::new(behaviour));
        assert!(found.lost_outside > 0);
        let reason = found.grain.unwrap_err().to_string();
        assert!(reason.ends_with("blocks outside of discards went with them"));
    }

    #[test]
    fn a_drive_that_ignores_short_discards_has_no_fixed_grain() {
        let behaviour = Behaviour { least: Bytes(64 << 10), grain: Bytes(4096), ..Behaviour::honest(SIZE) };
        let reason = find_on(&Memory::new(behaviour)).grain.unwrap_err().to_string();
        assert!(reason.starts_with("it has no fixed grain: others suggest 4 KiB"), "{reason}");
    }

    #[test]
    fn old_data_that_comes_back_does_not_confuse_the_search() {
        let behaviour = Behaviour { returns: Returns::AtSecondRead, ..Behaviour::honest(SIZE) };
        assert_eq!(find_on(&Memory::new(behaviour)).grain, Ok((Bytes(512), Bytes::ZERO)));
    }
}
