//! The effect of a trace on drives under each policy: a table and one sentence of advice for each
//! drive, and a section with a picture for a page.

mod advice;
mod charts;
mod grid;
mod panel;
mod row;
mod section;
mod summary;
mod text;

use trimtab_core::document::SimDocument;

pub use row::Row;
pub use section::section;
pub use summary::{Drive, Summary};
pub use text::text;

/// A whole HTML page about `document`, which needs no other file.
pub fn html(document: &SimDocument) -> String {
    crate::html::page(&[section(document)])
}
