//! Results of `trimtab reproduce`: the verdicts on published claims, and a section for each published document,
//! with its charts redrawn from its numbers beside ours.

mod charts;
mod section;
mod tally;
mod text;
mod words;

use trimtab_core::document::ReproduceDocument;

pub use section::sections;
pub use tally::{Summary, Tally};
pub use text::text;

/// A whole HTML page about `document`, which needs no other file.
pub fn html(document: &ReproduceDocument) -> String {
    crate::html::page(&sections(document))
}
