//! Reading the traces of other programs, record by record.

use std::path::{Path, PathBuf};

use trimtab_core::trace::{TraceEvent, TraceHeader, TraceSource};

use crate::counts::{ReadCounts, TraceReader};
use crate::error::{RowError, TraceError};
use crate::rows::Rows;

/// Events in a batch, at least, but at the end.
const BATCH: usize = 4096;

/// The records of a trace: lines of a text, or blktrace's.
pub(crate) trait Records {
    /// Takes the next record in; false at the end.
    fn next(&mut self, rows: &mut Rows) -> Result<bool, RowError>;

    /// Takes the end of the trace.
    fn end(&mut self, rows: &mut Rows) -> Result<(), RowError>;
}

/// A trace of records.
pub(crate) struct RecordReader<R> {
    path: PathBuf,
    records: R,
    rows: Rows,
    ended: bool,
}

impl<R: Records> RecordReader<R> {
    pub(crate) fn new(path: &Path, records: R, rows: Rows) -> Self {
        Self { path: path.to_owned(), records, rows, ended: false }
    }

    fn read(&mut self) -> Result<(), RowError> {
        let mut settled = 0;
        while settled < BATCH && !self.ended {
            let read = self.records.next(&mut self.rows);
            // What waits behind an error is as good as what went before.
            self.ended |= !matches!(read, Ok(true));
            let ended = if self.ended { self.records.end(&mut self.rows) } else { Ok(()) };
            let settling = self.rows.settle(self.ended);
            read.and(ended)?;
            settled = settling?;
        }
        Ok(())
    }

    /// Refuses a trace that has records, but no event.
    fn check_events(&self) -> Result<(), RowError> {
        let counts = &self.rows.counts;
        if counts.records == 0 || counts.events > 0 {
            return Ok(());
        }
        let skipped: Vec<_> = counts.skipped.iter().map(|(what, count)| format!("{what}: {count}")).collect();
        Err(RowError::NoEvents { records: counts.records, skipped: skipped.join(", ") })
    }
}

impl<R: Records> TraceSource for RecordReader<R> {
    type Error = TraceError;

    fn header(&self) -> &TraceHeader {
        &self.rows.header
    }

    fn next_batch(&mut self, batch: &mut Vec<TraceEvent>) -> Result<(), TraceError> {
        batch.clear();
        let read = self.read();
        self.rows.hand_out(batch);
        self.rows.count_skipped();
        let is_end = self.ended && batch.is_empty();
        let read = read.and_then(|()| if is_end { self.check_events() } else { Ok(()) });
        self.ended |= read.is_err();
        let row = self.rows.counts.records;
        read.map_err(|reason| TraceError::Row { path: self.path.clone(), row, reason })
    }
}

impl<R: Records> TraceReader for RecordReader<R> {
    fn counts(&self) -> &ReadCounts {
        &self.rows.counts
    }
}
