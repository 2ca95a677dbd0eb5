//! Upper bounds of fields, and the values that break them.

use std::fmt::Display;

use crate::units::Nanos;

/// The longest that one step of a command can take.
pub(super) const LONGEST: Nanos = Nanos(3_600_000_000_000);

/// A field, and what is wrong with its value.
pub(super) type Broken = (&'static str, String);

/// Returns the first of `fields`, each with its value and the most it can be, whose value is above that.
pub(super) fn first_above<T: PartialOrd + Display, const N: usize>(
    fields: [(&'static str, T, T); N],
) -> Option<Broken> {
    let above = fields.into_iter().find(|(_, value, most)| value > most);
    above.map(|(field, value, most)| (field, format!("{value} must be at most {most}")))
}
