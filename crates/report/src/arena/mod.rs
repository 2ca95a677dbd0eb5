//! The arena: where the policy `smart` stands among the others, by trace, drive and think time.

mod picture;
mod section;
mod standing;
mod summary;
mod text;

use trimtab_core::document::arena::ArenaDocument;

pub use picture::images;
pub use section::section;
pub use standing::{Loss, Standing, standings};
pub use summary::{Group, groups};
pub use text::text;

/// The most that the foreground may wait, over the best other policy, in every cell.
pub const MOST_WAIT: f64 = 1.02;
/// The most that the foreground may wait, over the bound, in the geometric mean.
pub const MOST_WAIT_OVER_IDEAL: f64 = 1.10;
/// The most erases, over the fewest of another policy, in every cell.
pub const MOST_ERASES: f64 = 1.05;
/// The largest read p99, over the larger one of `none` and the best other policy, in every cell.
pub const MOST_READ_P99: f64 = 1.2;

/// A whole HTML page about `document`, which needs no other file.
pub fn html(document: &ArenaDocument) -> String {
    crate::html::page(&[section(document)])
}
