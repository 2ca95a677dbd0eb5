//! Trace files: our own, and readers for blktrace, fio and the published block traces.
//!
//! [`open()`] reads a trace of any known format as a [`TraceReader`]; [`TraceWriter`] writes one in the
//! project's own format and [`TraceFile`] reads that; [`synthesise`] adds frees to one that lacks them. To see them at work, run the example `summary`, in
//! `examples/`.

mod counts;
mod detect;
mod error;
pub mod file;
mod formats;
mod input;
mod open;
mod parse;
mod reader;
mod rows;
mod scan;
mod synth;
mod table;
mod text;

pub use counts::{ReadCounts, TraceReader};
pub use error::{HeaderError, RowError, TraceError};
pub use file::{Columns, TraceFile, TraceWriter};
pub use open::{Format, UnknownFormat, files, open};
pub use synth::{SynthError, SynthOptions, Synthesised, synthesise};
