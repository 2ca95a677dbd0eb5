//! What `trimtab compare` measured: a table and one sentence of advice for each file system, and
//! a section with charts for a page.

mod advice;
mod charts;
mod grid;
mod section;
mod summary;
mod text;

use trimtab_core::document::CompareDocument;

pub use section::section;
pub use summary::{Clock, FileSystem, Row, Summary};
pub use text::text;

/// A whole HTML page about `document`, which needs no other file.
pub fn html(document: &CompareDocument) -> String {
    crate::html::page(&[section(document)])
}
