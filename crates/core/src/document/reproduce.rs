//! The document of `trimtab reproduce`: what was published, what was measured here, and the verdicts.

use serde::{Deserialize, Serialize};

use super::{CompareDocument, Environment};
use crate::units::Bytes;

/// The schema name of [`ReproduceDocument`].
pub const REPRODUCE_SCHEMA: &str = "trimtab/reproduce/1";

/// A measured figure is close to the published one if neither is more than this many times the other.
pub const CLOSE: f64 = 1.5;

/// The published experiments beside ours: schema `trimtab/reproduce/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReproduceDocument {
    /// [`REPRODUCE_SCHEMA`].
    pub schema: String,
    /// The version of trimtab that wrote it.
    pub version: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When it was started: RFC 3339, UTC.
    pub started: String,
    /// The machine it ran on.
    pub environment: Environment,
    /// The experiments, in the order they ran.
    pub experiments: Vec<Experiment>,
    /// Why `experiments` is not complete; none when it is.
    pub stopped: Option<String>,
}

/// A published experiment, and its repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The name by which users ask for it.
    pub name: String,
    /// The test, in a sentence.
    pub summary: String,
    /// The published documents.
    pub sources: Vec<Source>,
    /// The emulated, replaced or scaled parts, a sentence each.
    pub replaced: Vec<String>,
    /// The published claims, each with what was measured.
    pub claims: Vec<Claim>,
    /// The original's charts, redrawn from its numbers, and ours.
    pub charts: Vec<ChartPair>,
    /// The comparisons that the figures come from.
    pub comparisons: Vec<CompareDocument>,
    /// Seconds of this machine's clock that it took.
    pub wall_s: f64,
}

/// A published document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The key by which claims name it.
    pub key: String,
    /// Its title.
    pub title: String,
    /// Its author.
    pub author: String,
    /// Its date.
    pub date: String,
    /// How it was published.
    pub place: String,
    /// Its address; none where it has none of its own.
    #[serde(default)]
    pub url: Option<String>,
    /// The hardware that it measured.
    pub hardware: String,
    /// The kernel that it measured.
    pub kernel: String,
}

/// A claim of a published document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Where it stands.
    pub places: Vec<Place>,
    /// The claim in our words.
    pub says: String,
    /// Its figures.
    pub figures: Vec<Figure>,
    /// Quantities that it claims to be larger than others.
    pub orders: Vec<Order>,
    /// Why what was measured differs, or what stands behind it.
    pub reason: Option<Reason>,
    /// The verdict, as [`Claim::judge`] gives it.
    pub verdict: Verdict,
}

/// A place in a published document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The [`Source::key`].
    pub source: String,
    /// The paragraph, section, slide or comment.
    pub paragraph: String,
}

/// A published figure beside the measured one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The measured quantity.
    pub name: String,
    /// Its unit; empty for a pure number.
    pub unit: String,
    /// The published figure.
    pub published: f64,
    /// The measured one; none where it could not be measured.
    pub measured: Option<f64>,
    /// The clock of `measured`.
    pub clock: FigureClock,
    /// The part of a drive profile that was fitted to the published figure: agreement shows nothing then, and is
    /// not counted.
    pub fitted: Option<String>,
    /// The deviation that still counts as close, as a fraction of the published figure. Without it, [`CLOSE`] says
    /// so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<f64>,
    /// The least and the largest figure measured, where the document leaves something open; `measured` is the
    /// nearest to the published one among them and between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<(f64, f64)>,
}

/// The clock that a figure is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FigureClock {
    /// The flash model's.
    Model,
    /// The comparison's: a guest's, or this machine's with `--on`.
    Run,
    /// None: a count, a size or a ratio of those.
    None,
}

/// One measured quantity that has to be larger than another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The two quantities, in words: "sync after the delete: online over none".
    pub name: String,
    /// Their unit; empty for a pure number.
    pub unit: String,
    /// The quantity that has to be larger; none where it could not be measured.
    pub larger: Option<f64>,
    /// The other one.
    pub smaller: Option<f64>,
    /// How many times the smaller one the larger one has to be, at least. Below 1, the claim is that the larger
    /// one is not much smaller.
    pub least: f64,
    /// The part of the flash model or of a profile that it follows from, whatever is run: that it holds shows
    /// nothing then, and is not counted.
    #[serde(default)]
    pub follows: Option<String>,
}

/// Why a figure differs from the published one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// In a sentence.
    pub text: String,
    /// Measurements that show it; empty if nothing measured here does.
    pub shown_by: Vec<Order>,
}

/// The verdict on a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// All that it claims to be larger is, and every counted figure is within [`CLOSE`].
    Confirmed,
    /// All that it claims to be larger is, but a figure is not within [`CLOSE`].
    Direction,
    /// Something that it claims to be larger is not, or it claims nothing but a figure that is not within
    /// [`CLOSE`].
    NotConfirmed,
    /// Something that it takes was not measured.
    NotMeasured,
    /// It consists of figures that a profile was fitted to, and of what follows from the model: it counts for nothing.
    Fitted,
}

/// A chart of the original and ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChartPair {
    /// The [`Source::key`] of the document that it is in.
    pub source: String,
    /// The original's numbers; none where the document's text has none.
    pub published: Option<Chart>,
    /// Ours.
    pub measured: Chart,
}

/// A chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Its title.
    pub title: String,
    /// The quantity of its values, with unit and clock.
    pub quantity: String,
    /// Its contents.
    pub data: ChartData,
}

/// The contents of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartData {
    /// Groups of bars.
    Bars {
        /// The names of the groups.
        groups: Vec<String>,
        /// The bars of each group.
        series: Vec<BarSeries>,
    },
    /// Lines by the size of a command, both axes logarithmic. Values are microseconds.
    BySize {
        /// The lines.
        series: Vec<SizeSeries>,
    },
}

/// One bar in every group of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BarSeries {
    /// Its name.
    pub name: String,
    /// One value a group; none where there is no figure.
    pub values: Vec<Option<f64>>,
}

/// A line of a chart by size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeSeries {
    /// Its name.
    pub name: String,
    /// Sizes and microseconds.
    pub points: Vec<(Bytes, f64)>,
}

impl Figure {
    /// The measured figure over the published one; none where it was not measured.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.measured? / self.published).filter(|ratio| ratio.is_finite())
    }

    /// Whether the measured figure is within [`Figure::within`], or else within [`CLOSE`], of the published one.
    pub fn is_close(&self) -> bool {
        let close = self.within.map_or(1.0 / CLOSE..=CLOSE, |within| 1.0 - within..=1.0 + within);
        self.ratio().is_some_and(|ratio| close.contains(&ratio))
    }
}

impl Order {
    /// Whether it holds; none where something was not measured. Of two zeros, none is larger.
    pub fn holds(&self) -> Option<bool> {
        let (larger, smaller) = (self.larger?, self.smaller?);
        Some(larger >= smaller * self.least && (self.least <= 1.0 || larger > smaller))
    }
}

impl Reason {
    /// Whether measurements here show it.
    pub fn is_demonstrated(&self) -> bool {
        !self.shown_by.is_empty() && self.shown_by.iter().all(|order| order.holds() == Some(true))
    }
}

impl Claim {
    /// Returns the verdict on its figures and orders.
    pub fn judge(&self) -> Verdict {
        let counted = || self.figures.iter().filter(|figure| figure.fitted.is_none());
        if !self.is_directional() && counted().next().is_none() {
            let is_empty = self.figures.is_empty() && self.orders.is_empty();
            return if is_empty { Verdict::NotMeasured } else { Verdict::Fitted };
        }
        let missing = counted().any(|figure| figure.measured.is_none());
        if missing || self.counted_orders().any(|order| order.holds().is_none()) {
            return Verdict::NotMeasured;
        }
        if self.counted_orders().any(|order| order.holds() == Some(false)) {
            return Verdict::NotConfirmed;
        }
        match (counted().all(Figure::is_close), !self.is_directional()) {
            (true, _) => Verdict::Confirmed,
            (false, false) => Verdict::Direction,
            (false, true) => Verdict::NotConfirmed,
        }
    }

    /// Its orders that count: all but those that follow from the model.
    fn counted_orders(&self) -> impl Iterator<Item = &Order> {
        self.orders.iter().filter(|order| order.follows.is_none())
    }

    /// Whether it claims a direction: something to be larger than something, measured here or not, that does not
    /// follow from the model.
    pub fn is_directional(&self) -> bool {
        self.counted_orders().next().is_some()
    }

    /// Whether it is confirmed, at least in direction, or measurements here show why it is not.
    pub fn is_accounted_for(&self) -> bool {
        match self.verdict {
            Verdict::Confirmed | Verdict::Direction => true,
            Verdict::NotConfirmed => self.reason.as_ref().is_some_and(Reason::is_demonstrated),
            Verdict::NotMeasured | Verdict::Fitted => false,
        }
    }
}

impl ReproduceDocument {
    /// All claims.
    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.experiments.iter().flat_map(|experiment| &experiment.claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(published: f64, measured: Option<f64>, fitted: bool) -> Figure {
        Figure {
            name: "delete".to_owned(),
            unit: "s".to_owned(),
            published,
            measured,
            clock: FigureClock::Run,
            fitted: fitted.then(|| "the cost of a command".to_owned()),
            within: None,
            range: None,
        }
    }

    fn order(larger: Option<f64>, smaller: Option<f64>, least: f64) -> Order {
        Order {
            name: "online over none".to_owned(),
            unit: "s".to_owned(),
            larger,
            smaller,
            least,
            follows: None,
        }
    }

    fn claim(figures: &[Figure], orders: &[Order]) -> Claim {
        let mut claim = Claim {
            places: Vec::new(),
            says: String::new(),
            figures: figures.to_vec(),
            orders: orders.to_vec(),
            reason: None,
            verdict: Verdict::NotMeasured,
        };
        claim.verdict = claim.judge();
        claim
    }

    #[test]
    fn verdicts_follow_directions_and_counted_figures() {
        let (holds, fails) = (order(Some(2.0), Some(1.0), 1.05), order(Some(1.0), Some(1.0), 1.05));
        let unknown = order(None, Some(1.0), 1.05);
        let (close, far) = (figure(10.0, Some(14.0), false), figure(10.0, Some(16.0), false));
        let missing = figure(10.0, None, false);
        let follows = Order { follows: Some("the cost of a command".to_owned()), ..holds.clone() };
        let (fitted, fitted_far) = (figure(1.0, Some(1.0), true), figure(1.0, Some(9.0), true));
        for (figures, orders, verdict) in [
            (vec![], vec![holds.clone()], Verdict::Confirmed),
            (vec![close.clone()], vec![holds.clone()], Verdict::Confirmed),
            (vec![close.clone(), far.clone()], vec![holds.clone()], Verdict::Direction),
            (vec![close.clone()], vec![holds.clone(), fails.clone()], Verdict::NotConfirmed),
            (vec![close.clone()], vec![unknown], Verdict::NotMeasured),
            (vec![missing], vec![holds.clone()], Verdict::NotMeasured),
            (vec![close], vec![], Verdict::Confirmed),
            (vec![far.clone()], vec![], Verdict::NotConfirmed),
            (vec![fitted], vec![], Verdict::Fitted),
            (vec![fitted_far], vec![holds], Verdict::Confirmed),
            (vec![], vec![], Verdict::NotMeasured),
            (vec![], vec![follows.clone()], Verdict::Fitted),
            (vec![], vec![follows.clone(), fails.clone()], Verdict::NotConfirmed),
            (vec![far], vec![follows], Verdict::NotConfirmed),
        ] {
            let claim = claim(&figures, &orders);
            assert_eq!(claim.verdict, verdict, "{figures:?} {orders:?}");
        }
    }

    #[test]
    fn figure_with_a_bound_of_its_own_is_held_to_it() {
        let within = |measured| Figure { within: Some(0.15), ..figure(10.0, Some(measured), false) };
        for (measured, is_close) in [(8.4, false), (8.6, true), (11.4, true), (11.6, false)] {
            assert_eq!(within(measured).is_close(), is_close, "{measured}");
        }
    }

    #[test]
    fn reason_accounts_for_a_claim_only_if_measurements_show_it() {
        let mut claim = claim(&[], &[order(Some(1.0), Some(2.0), 1.0)]);
        assert!(!claim.is_accounted_for());
        let reason = |shown_by: &[Order]| {
            Some(Reason { text: "the kernel discards later now".to_owned(), shown_by: shown_by.to_vec() })
        };
        claim.reason = reason(&[]);
        assert!(!claim.is_accounted_for(), "a sentence shows nothing");
        claim.reason = reason(&[order(Some(1.0), Some(2.0), 1.0)]);
        assert!(!claim.is_accounted_for(), "it does not hold");
        claim.reason = reason(&[order(Some(3.0), Some(2.0), 1.0)]);
        assert!(claim.is_accounted_for());
    }

    #[test]
    fn claim_that_something_is_not_smaller_allows_what_it_says() {
        assert_eq!(order(Some(0.8), Some(1.0), 0.75).holds(), Some(true));
        assert_eq!(order(Some(0.7), Some(1.0), 0.75).holds(), Some(false));
        assert_eq!(order(Some(0.0), Some(0.0), 1.0).holds(), Some(true));
        assert_eq!(order(Some(0.0), Some(0.0), 1.05).holds(), Some(false), "of two zeros none is larger");
    }
}
