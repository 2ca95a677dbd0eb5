//! Trace files: our own, and readers for blktrace, fio and the published block traces.

mod counts;
mod error;
pub mod file;
mod formats;
mod input;
mod open;
mod reader;
mod rows;
mod text;

pub use counts::{ReadCounts, TraceReader};
pub use error::{RowError, TraceError};
pub use file::{Columns, TraceFile, TraceWriter};
pub use open::{Format, UnknownFormat, open};
