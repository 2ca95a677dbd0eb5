//! How a drive slows without discards, and recovers with them: the rounds of writing.

use serde::{Deserialize, Serialize};

use super::bench::BenchDocument;
use crate::stats::{STEADY_WINDOW, is_steady_over};
use crate::units::Bytes;

/// A stretch of writing, and how fast it went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DegradationRound {
    /// The data that was written.
    pub step: DegradationStep,
    /// Bytes written since the whole range was discarded, at the end of this round.
    pub written: Bytes,
    /// Bytes written in this round.
    pub bytes: Bytes,
    /// Wall seconds it took.
    pub wall_s: f64,
    /// Its throughput.
    pub mib_s: f64,
}

/// A step of the degradation run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DegradationStep {
    /// Sequential writes of 1 MiB over the whole range, just discarded.
    Fill,
    /// Random writes of 4 KiB over the full range.
    Overwrite,
    /// The first step again, after the whole range was discarded again.
    Refill,
    /// Random writes of 4 KiB over the range, just discarded.
    Fresh,
}

impl BenchDocument {
    /// The rounds of a step in which anything was written.
    fn rounds(&self, step: DegradationStep) -> impl Iterator<Item = &DegradationRound> {
        self.degradation.iter().filter(move |round| round.step == step && round.mib_s > 0.0)
    }

    /// The throughput of every round of a step, in MiB/s.
    pub fn rates(&self, step: DegradationStep) -> Vec<f64> {
        self.rounds(step).map(|round| round.mib_s).collect()
    }

    /// The throughput of the last rounds of random overwrites, in MiB/s: as many as tell whether
    /// they are steady.
    pub fn last_overwrites(&self) -> Vec<f64> {
        let mut rates = self.rates(DegradationStep::Overwrite);
        rates.split_off(rates.len().saturating_sub(STEADY_WINDOW))
    }

    /// Whether the random overwrites came to a steady state: [`is_steady_over`].
    pub fn is_steady(&self) -> bool {
        let written: Bytes = self.rounds(DegradationStep::Overwrite).map(|round| round.bytes).sum();
        is_steady_over(self.plan.range.len(), written, &self.rates(DegradationStep::Overwrite))
    }
}
