//! Opening a trace of whatever format.

use std::path::Path;

use crate::counts::TraceReader;
use crate::error::TraceError;
use crate::file::TraceFile;

/// A trace format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// Our own: Parquet.
    Trimtab,
}

/// Opens the trace at `path`, of the format that its content shows, or of `format`.
///
/// # Errors
/// If it can't be read, or is of no known format.
pub fn open(path: &Path, format: Option<Format>) -> Result<Box<dyn TraceReader + Send>, TraceError> {
    match format.unwrap_or(Format::Trimtab) {
        Format::Trimtab => Ok(Box::new(TraceFile::open(path)?)),
    }
}
