//! Figures that follow from the measurements of a bench.

use serde::Serialize;
use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::{DegradationStep, InterferenceCell};
use trimtab_core::stats::median;

/// How a drive slows without discards and recovers with them; each figure in MiB/s of wall time,
/// none where it was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Degradation {
    /// Sequential writes after a discard of everything.
    pub fill_mib_s: Option<f64>,
    /// Random writes after a discard of everything.
    pub fresh_mib_s: Option<f64>,
    /// Random writes over the full range, in the last rounds.
    pub steady_mib_s: Option<f64>,
    /// Whether those rounds are steady, after writing the range once over.
    pub steady: bool,
    /// Sequential writes after everything was discarded again.
    pub refill_mib_s: Option<f64>,
}

impl Degradation {
    /// The figures of the rounds of `document`; none of no rounds.
    pub fn of(document: &BenchDocument) -> Option<Self> {
        let rounds = &document.degradation;
        let of = |step| rounds.iter().filter(move |round| round.step == step);
        let overall = |step| {
            let mib: f64 = of(step).map(|round| round.bytes.mib()).sum();
            let wall_s: f64 = of(step).map(|round| round.wall_s).sum();
            (mib > 0.0 && wall_s > 0.0).then(|| mib / wall_s)
        };
        (!rounds.is_empty()).then(|| Self {
            fill_mib_s: overall(DegradationStep::Fill),
            fresh_mib_s: overall(DegradationStep::Fresh),
            steady_mib_s: median(&document.last_overwrites()),
            steady: document.is_steady(),
            refill_mib_s: overall(DegradationStep::Refill),
        })
    }

    /// The last speed of random writes as a part of their fresh one.
    pub fn slowed(self) -> Option<f64> {
        Some(self.steady_mib_s? / self.fresh_mib_s?)
    }

    /// The speed of sequential writes after a second discard as a part of the first.
    pub fn recovered(self) -> Option<f64> {
        Some(self.refill_mib_s? / self.fill_mib_s?)
    }
}

/// The foreground of `cell` without discards; none where that was not measured.
pub fn alone<'a>(document: &'a BenchDocument, cell: &InterferenceCell) -> Option<&'a InterferenceCell> {
    let same_rate = |other: &&InterferenceCell| other.foreground_rate_s == cell.foreground_rate_s;
    let mut without = document.interference.iter().filter(|other| other.discard_size.is_none());
    without.find(same_rate)
}

/// `figure` in multiples of `base`; none where there is nothing to divide by.
pub fn ratio(figure: f64, base: f64) -> Option<f64> {
    (base > 0.0).then(|| figure / base)
}
