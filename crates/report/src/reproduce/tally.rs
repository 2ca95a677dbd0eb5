//! How many claims have which verdict.

use serde::Serialize;
use trimtab_core::document::ReproduceDocument;
use trimtab_core::document::reproduce::{Claim, Verdict};

/// The verdicts on some claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Confirmed.
    pub confirmed: usize,
    /// Confirmed in direction.
    pub direction: usize,
    /// Not confirmed, but measurements show why.
    pub explained: usize,
    /// Not confirmed.
    pub not_confirmed: usize,
    /// Not measured.
    pub not_measured: usize,
    /// Figures that a profile was fitted to, which are not counted.
    pub fitted: usize,
}

/// The verdicts on all claims and on the directional ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// On all claims.
    pub claims: Tally,
    /// On those that claim something to be larger than something.
    pub directional: Tally,
    /// Each experiment's name with the verdicts on its claims.
    pub experiments: Vec<(String, Tally)>,
}

impl Tally {
    /// The verdicts on `claims`.
    pub fn of<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> Self {
        let mut tally = Self::default();
        for claim in claims {
            let place = match claim.verdict {
                Verdict::Confirmed => &mut tally.confirmed,
                Verdict::Direction => &mut tally.direction,
                Verdict::NotConfirmed if claim.is_accounted_for() => &mut tally.explained,
                Verdict::NotConfirmed => &mut tally.not_confirmed,
                Verdict::NotMeasured => &mut tally.not_measured,
                Verdict::Fitted => &mut tally.fitted,
            };
            *place += 1;
        }
        tally
    }

    /// The claims that are counted: all but the fitted ones.
    pub fn counted(&self) -> usize {
        self.confirmed + self.direction + self.explained + self.not_confirmed + self.not_measured
    }

    /// The part of the counted claims that is confirmed or shown to differ for a reason; none without claims.
    pub fn accounted_for(&self) -> Option<f64> {
        let accounted = self.confirmed + self.direction + self.explained;
        (self.counted() > 0).then(|| accounted as f64 / self.counted() as f64)
    }
}

impl Summary {
    /// The summary of `document`.
    pub fn of(document: &ReproduceDocument) -> Self {
        Self {
            claims: Tally::of(document.claims()),
            directional: Tally::of(document.claims().filter(|claim| claim.is_directional())),
            experiments: document
                .experiments
                .iter()
                .map(|experiment| (experiment.name.clone(), Tally::of(&experiment.claims)))
                .collect(),
        }
    }
}
