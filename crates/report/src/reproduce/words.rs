//! Verdicts and figures in words.

use trimtab_core::document::reproduce::{Claim, Experiment, Figure, FigureClock, Order, Verdict};
use trimtab_core::document::{Clock, ReproduceDocument};

use super::tally::Tally;
use crate::number::{percent, significant, times};

/// How claims are judged, in sentences.
pub const LEGEND: &str = "A claim is confirmed if each quantity that it says to be larger is at least as many times as large as is \
                          written beside it (1.05 times where it only says larger: runs differ by less), and its figures \
                          are within 1.5 times of ours. Where a deviation is written, that is 15 % at most instead. It is \
                          confirmed in direction if only the figures are not. Figures that a drive profile was fitted \
                          to, and quantities that the model gives whatever is run, are not counted. Measured figures \
                          are of the flash model or of emulated drives, with the kernel named if there is one. They are \
                          not of the original hardware: ratios compare, seconds do not.";

/// The verdict on a claim, and the class of its colour.
pub fn verdict(claim: &Claim) -> (&'static str, &'static str) {
    match claim.verdict {
        Verdict::Confirmed => ("confirmed", "confirmed"),
        Verdict::Direction => ("confirmed in direction", "direction"),
        Verdict::NotConfirmed if claim.is_accounted_for() => {
            ("not confirmed, measurements show why", "explained")
        }
        Verdict::NotConfirmed => ("not confirmed", "refuted"),
        Verdict::NotMeasured => ("not measured", "open"),
        Verdict::Fitted => ("follows from the model, not counted", "open"),
    }
}

/// A value with its unit, in a unit that suits bytes and seconds.
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "" => significant(value),
        "B" => crate::number::bytes(value),
        "B/s" => format!("{}/s", crate::number::bytes(value)),
        "s" => crate::number::seconds(value),
        unit => format!("{} {unit}", significant(value)),
    }
}

/// A value that may not have been measured.
pub fn measured(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "not measured".to_owned(), |value| quantity(value, unit))
}

/// A figure's measured value, or the range of it.
pub fn measured_figure(figure: &Figure) -> String {
    match figure.range {
        Some((least, most)) => {
            format!("{} to {}", quantity(least, &figure.unit), quantity(most, &figure.unit))
        }
        None => measured(figure.measured, &figure.unit),
    }
}

/// A figure's measured value over the published one; its deviation where the figure has a bound for that.
pub fn ratio(figure: &Figure) -> String {
    match (figure.ratio(), figure.within) {
        (None, _) => "–".to_owned(),
        (Some(ratio), None) => times(ratio),
        (Some(ratio), Some(_)) => format!("{:+.1} %", (ratio - 1.0) * 100.0),
    }
}

/// The clock of a figure.
pub fn clock(clock: FigureClock) -> &'static str {
    match clock {
        FigureClock::Model => "model time",
        FigureClock::Run => "clock of the run",
        FigureClock::None => "no clock",
    }
}

/// Whether what an order says holds, in words.
pub fn holds(order: &Order) -> &'static str {
    match order.holds() {
        Some(true) => "holds",
        Some(false) => "does not hold",
        None => "not measured",
    }
}

/// How many times as large the one quantity of an order has to be.
pub fn least(order: &Order) -> String {
    format!("≥ {}×", quantity(order.least, ""))
}

/// The ratio of the two quantities of an order.
pub fn order_ratio(order: &Order) -> String {
    let ratio = order.larger.zip(order.smaller).map(|(larger, smaller)| larger / smaller);
    ratio.filter(|ratio| !ratio.is_nan()).map_or_else(|| "–".to_owned(), times)
}

/// The tally in a sentence.
pub fn tally(tally: &Tally, what: &str) -> String {
    let Tally { confirmed, direction, explained, not_confirmed, not_measured, fitted } = *tally;
    let part =
        tally.accounted_for().map_or_else(String::new, |part| format!(" (together {})", percent(part)));
    let fitted = if fitted == 0 {
        String::new()
    } else {
        format!(" {fitted} more follow from the model and are not counted.")
    };
    format!(
        "{} {what}: {confirmed} confirmed, {direction} confirmed in direction, {explained} not confirmed for a reason that \
         measurements show{part}; {not_confirmed} not confirmed, {not_measured} not measured.{fitted}",
        tally.counted()
    )
}

/// The clock of an experiment's runs, and the kernel.
pub fn runs(document: &ReproduceDocument, experiment: &Experiment) -> String {
    let figures = || experiment.claims.iter().flat_map(|claim| &claim.figures);
    match experiment.comparisons.first().map(|comparison| &comparison.clock) {
        None if figures().next().is_some() && figures().all(|figure| figure.clock != FigureClock::Run) => {
            "the flash model alone, without a kernel".to_owned()
        }
        None => "no run finished".to_owned(),
        Some(Clock::Virtual { kernel, engine }) => {
            format!("virtual time of guests with kernel {kernel} in {engine}, which skips idle time")
        }
        Some(Clock::Real { .. }) => {
            format!("this machine's clock (kernel {})", document.environment.kernel)
        }
    }
}
