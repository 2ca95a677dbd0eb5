//! Results of `trimtab compare`: tables and advice for each file system, and a section with charts
//! for a page.
//!
//! [`Summary`] holds the figures; the modules beside it turn them into text, tables and charts.

mod advice;
mod alarms;
mod charts;
mod course;
mod grid;
mod noise;
mod reads;
mod sane;
mod section;
mod situation;
mod steps;
mod summary;
mod text;
mod words;

use trimtab_core::document::CompareDocument;

pub use section::section;
pub use situation::{Row, Situation};
pub use summary::{FileSystem, Summary};
pub use text::text;

/// A whole HTML page about `document`, which needs no other file.
pub fn html(document: &CompareDocument) -> String {
    crate::html::page(&[section(document)])
}
