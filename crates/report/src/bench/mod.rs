//! The measurements of `trimtab bench`: sentences, tables and charts of one drive, and of several
//! beside each other. All times are wall time.

mod across;
mod background;
mod charts;
mod figures;
mod findings;
mod section;
mod summary;
mod sweep;
mod tables;
mod text;
mod words;

pub use across::Comparison;
pub use figures::Degradation;
pub use section::section;
pub use summary::Summary;
pub use text::text;
pub use words::power_cycle;

pub(crate) use charts::{by_size, latency};
