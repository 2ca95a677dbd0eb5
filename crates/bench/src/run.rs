//! A bench under way: its parts in order, each in its share of the time.

use std::io;
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::bench::{BenchDocument, DegradationStep, Missing, Part, SweepCell};
use trimtab_core::erase::Operation;

use super::budget::Budget;
use super::device_under_test::DeviceUnderTest;
use super::error::BenchError;
use super::interference::{self, Beside};
use super::plan::{self, Cell, weight};
use super::verify::{self, VerifyOptions};
use super::{BenchProgress, background, degradation, fit, queueing, sweep};

/// The part of the verification's time that whether discards are queued takes.
const QUEUEING: f64 = 0.2;

/// Below this budget, only two cells of interference are measured.
const SHORT: Duration = Duration::from_secs(120);

/// Why a cell is left out.
const TOO_LONG: &str = "time was up before what they free was written; allow more (--time)";
const UNSUPPORTED: &str = "the device doesn't have it";

/// Returns whether a run that goes on may measure what an earlier one lacks.
pub(super) fn is_resumable(missing: &Missing) -> bool {
    missing.why != UNSUPPORTED
}

/// A bench under way.
pub(super) struct Run<'a> {
    pub(super) tested: DeviceUnderTest<'a>,
    pub(super) document: BenchDocument,
    pub(super) budget: Budget,
    pub(super) progress: &'a mut dyn BenchProgress,
    /// The parts that are still to measure.
    pub(super) to_do: Vec<Part>,
    /// Cells that could not be measured, and why.
    pub(super) left_out: Vec<(Cell, &'static str)>,
    pub(super) save: &'a mut dyn FnMut(&BenchDocument) -> io::Result<()>,
}

impl Run<'_> {
    /// Measures all parts that are still to measure, each in its share of the time.
    pub(super) fn all(&mut self) -> Result<(), BenchError> {
        self.to_do = Part::ALL.into_iter().filter(|part| self.is_to_do(*part)).collect();
        self.at("how fast it writes");
        self.tested.measure_write_rate()?;
        self.at("discarding the whole range");
        self.tested.discard(self.tested.range)?;
        while let Some(&part) = self.to_do.first() {
            let weights = self.to_do.iter().map(|part| weight(*part)).sum();
            let share = self.budget.share(weight(part), weights);
            match part {
                Part::Latency => self.latency(share)?,
                Part::Verify => self.verify(share)?,
                Part::Interference => self.interference(share)?,
                Part::Degradation => self.degradation(share)?,
                Part::Background => self.background(share)?,
            }
            self.to_do.remove(0);
            self.document.fit = fit::fit(&self.document);
            self.save()?;
        }
        self.at("discarding the whole range");
        self.tested.discard(self.tested.range)
    }

    fn is_to_do(&self, part: Part) -> bool {
        let document = &self.document;
        document.plan.parts.contains(&part)
            && match part {
                Part::Verify => document.verify.is_none() || document.queueing.is_none(),
                Part::Degradation => {
                    !document.degradation.iter().any(|round| round.step == DegradationStep::Fresh)
                }
                Part::Background => document.background.is_none(),
                Part::Latency | Part::Interference => true,
            }
    }

    fn latency(&mut self, budget: Budget) -> Result<(), BenchError> {
        let mut cells = plan::cells(&self.document.plan, self.tested.target.logical_block());
        cells.retain(|cell| !self.document.sweeps.iter().any(|done| is_of(cell, done)));
        for (index, cell) in cells.iter().enumerate() {
            self.at(&format!("latency: {}", cell.name()));
            let share = budget.share(1.0, (cells.len() - index) as f64);
            match sweep::measure(&mut self.tested, cell, share, budget, self.document.plan.seed) {
                Ok(sweep::Outcome::Measured(measured)) => self.document.sweeps.push(*measured),
                Ok(sweep::Outcome::TooLong) => self.left_out.push((*cell, TOO_LONG)),
                Err(error) if cell.operation != Operation::Discard && error.is_unsupported() => {
                    self.left_out.push((*cell, UNSUPPORTED));
                }
                Err(error) => return Err(error),
            }
            self.save()?;
        }
        Ok(())
    }

    fn verify(&mut self, budget: Budget) -> Result<(), BenchError> {
        let seed = self.document.plan.seed;
        if self.document.queueing.is_none() {
            self.at("verify: whether discards wait for other commands");
            let share = budget.share(QUEUEING, 1.0);
            self.document.queueing =
                Some(queueing::measure(&mut self.tested, self.document.device.queue_requests, share, seed)?);
            self.save()?;
        }
        let Self { tested, document, progress, .. } = self;
        let delay = Duration::from_secs_f64(document.plan.verify_delay_wall_s);
        let options = VerifyOptions::new(seed, delay);
        let tell = &mut |what: &str| progress.at(&format!("verify: {what}"), self.budget.left());
        tested.blank = false;
        document.verify = Some(verify::verify(
            tested.target,
            &document.device,
            tested.range,
            &options,
            tested.interrupt,
            tell,
        )?);
        Ok(())
    }

    fn interference(&mut self, budget: Budget) -> Result<(), BenchError> {
        self.at("interference: how fast the foreground goes");
        let seed = self.document.plan.seed;
        let area = interference::prepare(&mut self.tested, budget)?;
        let known = self.document.interference.first().map(|alone| alone.foreground_rate_s);
        let rate = match known {
            Some(rate) => rate,
            None => interference::foreground_rate(&self.tested, area, seed)?,
        };
        let few = budget.left() < SHORT;
        let mut cells = interference::plan(&self.tested, few)?;
        let done = &self.document.interference;
        cells.retain(|cell| match cell {
            None => done.is_empty(),
            Some(beside) => !done.iter().any(|cell| beside.is_of(cell)),
        });
        for (index, &beside) in cells.iter().enumerate() {
            self.at(&match beside {
                None => "interference: the foreground alone".to_owned(),
                Some(Beside { size, rate }) => format!("interference: {rate} discards of {size} a second"),
            });
            let share = budget.share(1.0, (cells.len() - index) as f64);
            let alone = self.document.interference.first();
            let cell = interference::measure(&mut self.tested, area, rate, beside, alone, share, seed)?;
            self.document.interference.push(cell);
            self.save()?;
        }
        Ok(())
    }

    fn degradation(&mut self, budget: Budget) -> Result<(), BenchError> {
        self.at("degradation: sequential fill and random overwrite");
        self.document.degradation.clear();
        let Self { tested, document, save, .. } = self;
        let seed = document.plan.seed;
        let mut keep = |round| {
            document.degradation.push(round);
            save(document).map_err(BenchError::Save)
        };
        match degradation::measure(tested, budget, seed, &mut keep)? {
            degradation::Outcome::Done { steady: true } => {}
            degradation::Outcome::Done { steady: false } => {
                let why = "time was up before the writes were steady; allow more (--time)".to_owned();
                self.missing("degradation: the steady state".to_owned(), why);
            }
            degradation::Outcome::TooLong(needed) => {
                let why = format!(
                    "writing the range twice takes {needed:.0?}; allow more time (--time), or a smaller --range"
                );
                self.missing("degradation".to_owned(), why);
            }
        }
        Ok(())
    }

    fn background(&mut self, budget: Budget) -> Result<(), BenchError> {
        let Self { tested, document, progress, .. } = self;
        let tell = &mut |what: &str| progress.at(&format!("background: {what}"), self.budget.left());
        match background::measure(tested, budget, document.plan.seed, tell)? {
            background::Outcome::Measured(found) => document.background = Some(*found),
            background::Outcome::TooLong(needed) => {
                let why = format!(
                    "writing the range takes {needed:.0?}; allow more time (--time), or a smaller --range"
                );
                self.missing("background".to_owned(), why);
            }
        }
        Ok(())
    }

    fn at(&mut self, what: &str) {
        self.progress.at(what, self.budget.left());
    }

    fn save(&mut self) -> Result<(), BenchError> {
        (self.save)(&self.document).map_err(BenchError::Save)
    }

    fn missing(&mut self, what: String, why: String) {
        self.document.missing.push(Missing { what, why });
    }

    /// Lists what the plan asks for and isn't there, because the run `ended` early or time was up.
    pub(super) fn list_missing(&mut self, ended: Option<&str>) {
        let ended = ended.unwrap_or("it was not reached");
        let document = &self.document;
        let mut groups: Vec<(Cell, &str, Vec<Bytes>)> = Vec::new();
        for cell in plan::cells(&document.plan, document.device.logical_block) {
            if document.sweeps.iter().any(|done| is_of(&cell, done)) {
                continue;
            }
            let left_out = self.left_out.iter().find(|(left_out, _)| *left_out == cell);
            let why = left_out.map_or(ended, |(_, why)| why);
            let group = groups
                .iter_mut()
                .find(|(of, because, _)| *because == why && Cell { size: cell.size, ..*of } == cell);
            match group {
                Some((.., sizes)) => sizes.push(cell.size),
                None => groups.push((cell, why, vec![cell.size])),
            }
        }
        let cells = groups.into_iter().map(|(cell, why, missing)| {
            (format!("latency: {}, {}", cell.kind(), sizes(&missing)), why.to_owned())
        });
        let unfinished = self.to_do.iter().filter(|part| **part != Part::Latency);
        let parts = unfinished.map(|part| (part.name().to_owned(), ended.to_owned()));
        let missing: Vec<_> = cells.chain(parts).map(|(what, why)| Missing { what, why }).collect();
        self.document.missing.extend(missing);
    }
}

fn is_of(cell: &Cell, done: &SweepCell) -> bool {
    *cell == Cell { operation: done.operation, pattern: done.pattern, depth: done.depth, size: done.size }
}

/// Sizes in few words, for a list of what is missing.
fn sizes(sizes: &[Bytes]) -> String {
    match (sizes, sizes.iter().min(), sizes.iter().max()) {
        ([one], ..) => one.to_string(),
        (_, Some(least), Some(most)) => format!("{} sizes from {least} to {most}", sizes.len()),
        _ => String::new(),
    }
}
