//! Puts claims together.

use trimtab_core::document::reproduce::{
    BarSeries, Chart, ChartData, Claim, Figure, FigureClock, Order, Place, Reason, Source, Verdict,
};

/// A claim is larger only if it is so by more than runs differ: 5 %, as in `compare`.
pub(super) const MORE: f64 = 1.05;
/// Equal quantities may be smaller by as much.
pub(super) const SAME: f64 = 0.95;
/// How far the flash model may be from a drive.
const NEAR: f64 = 0.15;
/// Ends of a range that differ by less are one figure.
const ALIKE: f64 = 1.005;
/// Why short discards cost more for their size.
pub(super) const PER_COMMAND: &str = "a cost for each command, which every profile has";
/// Why discards bring nothing to a new drive.
pub(super) const NEW_DRIVE: &str = "a new drive of the model has nothing to collect";
/// The end of the name of the second order of two that are alike.
const OTHER_WAY: &str = ", the other way";

/// A claim that is being put together.
pub(super) struct Draft(Claim);

/// A claim that stands in `paragraph` of the document `source`.
pub(super) fn claim(source: &str, paragraph: &str, says: &str) -> Draft {
    let claim = Claim {
        places: Vec::new(),
        says: says.to_owned(),
        figures: Vec::new(),
        orders: Vec::new(),
        reason: None,
        verdict: Verdict::NotMeasured,
    };
    Draft(claim).also(source, paragraph)
}

/// A quantity that has to be `least` times as large as another.
pub(super) fn order(name: &str, unit: &str, larger: Option<f64>, smaller: Option<f64>, least: f64) -> Order {
    Order { name: name.to_owned(), unit: unit.to_owned(), larger, smaller, least, follows: None }
}

impl Draft {
    /// It also stands here.
    pub fn also(mut self, source: &str, paragraph: &str) -> Self {
        self.0.places.push(Place { source: source.to_owned(), paragraph: paragraph.to_owned() });
        self
    }

    /// A published figure, and the measured one by the clock of the runs.
    pub fn figure(self, name: &str, unit: &str, published: f64, measured: Option<f64>) -> Self {
        self.by(FigureClock::Run, name, unit, published, measured)
    }

    /// A published count or ratio, and the measured one.
    pub fn number(self, name: &str, unit: &str, published: f64, measured: Option<f64>) -> Self {
        self.by(FigureClock::None, name, unit, published, measured)
    }

    /// A published figure, and the measured one by this clock.
    pub fn by(
        mut self,
        clock: FigureClock,
        name: &str,
        unit: &str,
        published: f64,
        measured: Option<f64>,
    ) -> Self {
        let (name, unit) = (name.to_owned(), unit.to_owned());
        let (fitted, within, range) = (None, None, None);
        self.0.figures.push(Figure { name, unit, published, measured, clock, fitted, within, range });
        self
    }

    /// A published figure of a drive, and the flash model's: one for each value of what the document leaves open.
    pub fn drive(mut self, name: &str, published: f64, model: &[Option<f64>]) -> Self {
        let model: Option<Vec<f64>> = model.iter().copied().collect();
        let range = model.and_then(|model| {
            Some((model.iter().copied().reduce(f64::min)?, model.iter().copied().reduce(f64::max)?))
        });
        let measured = range.map(|(least, most)| published.clamp(least, most));
        self = self.number(name, "", published, measured);
        if let Some(figure) = self.0.figures.last_mut() {
            figure.within = Some(NEAR);
            figure.range = range.filter(|(least, most)| *most > least * ALIKE);
        }
        self
    }

    /// The last figure is one that `part` of a profile was fitted to.
    pub fn fitted(mut self, part: &str) -> Self {
        if let Some(figure) = self.0.figures.last_mut() {
            figure.fitted = Some(part.to_owned());
        }
        self
    }

    /// The last order, or the last two that are alike, follow from this part of the model or of a profile.
    pub fn follows(mut self, part: &str) -> Self {
        let orders = &mut self.0.orders;
        let last = orders.iter().rposition(|order| !order.name.ends_with(OTHER_WAY)).unwrap_or_default();
        for order in orders.iter_mut().skip(last) {
            order.follows = Some(part.to_owned());
        }
        self
    }

    /// Something that it says to be larger.
    pub fn larger(self, name: &str, unit: &str, larger: Option<f64>, smaller: Option<f64>) -> Self {
        self.at_least(name, unit, larger, smaller, MORE)
    }

    /// Something that it says to be at least this many times as large.
    pub fn at_least(
        mut self,
        name: &str,
        unit: &str,
        larger: Option<f64>,
        smaller: Option<f64>,
        least: f64,
    ) -> Self {
        self.0.orders.push(order(name, unit, larger, smaller, least));
        self
    }

    /// Two that it says to be about equal: neither is much smaller than `least` times the other.
    pub fn alike(self, name: &str, unit: &str, a: Option<f64>, b: Option<f64>, least: f64) -> Self {
        self.at_least(name, unit, a, b, least).at_least(&format!("{name}{OTHER_WAY}"), unit, b, a, least)
    }

    /// Why it differs, which nothing measured here shows.
    pub fn because(self, text: &str) -> Self {
        self.shown(text, Vec::new())
    }

    /// Why it differs, and the measurements that show it.
    pub fn shown(mut self, text: &str, shown_by: Vec<Order>) -> Self {
        self.0.reason = Some(Reason { text: text.to_owned(), shown_by });
        self
    }

    /// The claim with its verdict.
    pub fn judged(mut self) -> Claim {
        self.0.verdict = self.0.judge();
        self.0
    }
}

/// A published document.
pub(super) fn source(key: &str, title: &str, author: &str, date: &str, place: &str) -> Source {
    Source {
        key: key.to_owned(),
        title: title.to_owned(),
        author: author.to_owned(),
        date: date.to_owned(),
        place: place.to_owned(),
        url: None,
        hardware: String::new(),
        kernel: String::new(),
    }
}

/// A chart of bars: its groups, and the values of each series.
pub(super) fn bars(
    title: &str,
    quantity: &str,
    groups: &[&str],
    series: Vec<(&str, Vec<Option<f64>>)>,
) -> Chart {
    Chart {
        title: title.to_owned(),
        quantity: quantity.to_owned(),
        data: ChartData::Bars {
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            series: series
                .into_iter()
                .map(|(name, values)| BarSeries { name: name.to_owned(), values })
                .collect(),
        },
    }
}
