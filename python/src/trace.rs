//! Traces as Arrow streams, which are read while they are consumed.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchReader, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use trimtab_core::trace::{TraceEvent, TraceHeader};
use trimtab_sim::sweep::whole;
use trimtab_trace::{Columns, Format, TraceReader, open};

use crate::errors::{Error, raised};
use crate::table::stream;

/// Events in a batch, at least, but at the end.
const BATCH: usize = 1 << 16;

/// A trace file of any format that trimtab reads.
#[pyclass(frozen, module = "trimtab")]
pub struct Trace {
    path: PathBuf,
    format: Option<Format>,
    header: TraceHeader,
}

/// Opens a trace: our own, blktrace, blkparse, fio, or one of the published formats.
///
/// The events are read when the trace is handed to pandas, Polars, DuckDB or pyarrow, so that it may be larger than
/// memory. Times are nanoseconds since the trace began, places and lengths are bytes.
#[pyfunction]
#[pyo3(signature = (path, *, format=None))]
pub fn read_trace(py: Python<'_>, path: PathBuf, format: Option<&str>) -> PyResult<Trace> {
    let format =
        format.map(|name| name.parse().map_err(|error: trimtab_trace::UnknownFormat| raised(&error)));
    let format = format.transpose()?;
    let reader = py.detach(|| open(&path, format, Columns::All)).map_err(|error| raised(&error))?;
    let header = reader.header().clone();
    Ok(Trace { path, format, header })
}

#[pymethods]
impl Trace {
    /// Returns the events as an Arrow stream, which reads the file from its beginning.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let reader = open(&self.path, self.format, Columns::All).map_err(|error| raised(&error))?;
        stream(py, Box::new(Events { reader, schema: schema(), ended: false }))
    }

    /// The header as JSON: where the trace came from, its devices and file systems.
    #[getter]
    fn header_json(&self) -> PyResult<String> {
        serde_json::to_string(&self.header).map_err(|error| Error::new_err(error.to_string()))
    }

    /// The names of the devices that the header lists; text formats name theirs only as they are read.
    #[getter]
    fn devices(&self) -> Vec<String> {
        self.header.devices.iter().map(|device| device.name.clone()).collect()
    }

    fn __repr__(&self) -> String {
        format!("<trimtab.Trace {} ({})>", self.path.display(), self.header.origin)
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("time_ns", DataType::Int64, false),
        Field::new("device", DataType::Utf8, true),
        Field::new("kind", DataType::Utf8, false),
        Field::new("start", DataType::Int64, false),
        Field::new("length", DataType::Int64, false),
        Field::new("latency_ns", DataType::Int64, true),
        Field::new("process", DataType::Utf8, true),
        Field::new("error", DataType::Int32, false),
        Field::new("file_system", DataType::Utf8, true),
    ]))
}

/// The events of a trace, batch by batch.
struct Events {
    reader: Box<dyn TraceReader + Send>,
    schema: SchemaRef,
    ended: bool,
}

impl Iterator for Events {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (mut events, mut batch) = (Vec::new(), Vec::new());
        while events.len() < BATCH && !self.ended {
            if let Err(error) = self.reader.next_batch(&mut batch) {
                self.ended = true;
                return Some(Err(ArrowError::ExternalError(trimtab_core::error::chain(&error).into())));
            }
            self.ended = batch.is_empty();
            events.append(&mut batch);
        }
        (!events.is_empty()).then(|| self.encode(&events))
    }
}

impl Events {
    fn encode(&self, events: &[TraceEvent]) -> Result<RecordBatch, ArrowError> {
        let header = self.reader.header();
        let device =
            |event: &TraceEvent| header.devices.get(usize::from(event.device.0)).map(|it| it.name.as_str());
        let mount = |event: &TraceEvent| {
            let place = usize::from(event.fs?.0);
            header.file_systems.get(place).map(|it| it.mount_point.as_str())
        };
        let process = |event: &TraceEvent| (!event.process.is_empty()).then(|| event.process.to_string());
        let number = |of: fn(&TraceEvent) -> u64| {
            Arc::new(events.iter().map(|event| Some(whole(of(event)))).collect::<Int64Array>())
        };
        let columns: Vec<ArrayRef> = vec![
            number(|event| event.at.0),
            Arc::new(events.iter().map(device).collect::<StringArray>()),
            Arc::new(events.iter().map(|event| Some(event.kind.name())).collect::<StringArray>()),
            number(|event| event.extent.start.0),
            number(|event| event.extent.len().0),
            Arc::new(events.iter().map(|event| event.latency.map(|it| whole(it.0))).collect::<Int64Array>()),
            Arc::new(events.iter().map(process).collect::<StringArray>()),
            Arc::new(events.iter().map(|event| Some(i32::from(event.error))).collect::<Int32Array>()),
            Arc::new(events.iter().map(mount).collect::<StringArray>()),
        ];
        RecordBatch::try_new(self.schema.clone(), columns)
    }
}

impl RecordBatchReader for Events {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
