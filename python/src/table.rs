//! Tables for other programs, through the Arrow PyCapsule interface.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchIterator, RecordBatchReader,
    StringArray,
};
use arrow_schema::{DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};
use trimtab_core::table::{TableColumn, Values};
use trimtab_sim::sweep::whole;

use crate::errors::raised;

/// A table in memory. pandas, Polars, DuckDB and pyarrow read it through the Arrow PyCapsule interface.
#[pyclass(frozen, module = "trimtab")]
pub struct Table {
    columns: Vec<TableColumn>,
}

impl Table {
    pub fn new(columns: Vec<TableColumn>) -> Self {
        Self { columns }
    }

    fn batch(&self) -> PyResult<RecordBatch> {
        let fields = self.columns.iter().map(|column| {
            let kind = match column.values {
                Values::Text(_) => DataType::Utf8,
                Values::Count(_) => DataType::Int64,
                Values::Real(_) => DataType::Float64,
                Values::Flag(_) => DataType::Boolean,
            };
            Field::new(column.name, kind, true)
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let arrays = self.columns.iter().map(|column| -> ArrayRef {
            match &column.values {
                Values::Text(values) => {
                    Arc::new(values.iter().map(Option::as_deref).collect::<StringArray>())
                }
                Values::Count(values) => {
                    Arc::new(values.iter().map(|value| value.map(whole)).collect::<Int64Array>())
                }
                Values::Real(values) => Arc::new(values.iter().copied().collect::<Float64Array>()),
                Values::Flag(values) => Arc::new(values.iter().copied().collect::<BooleanArray>()),
            }
        });
        RecordBatch::try_new(schema, arrays.collect()).map_err(|error| raised(&error))
    }
}

#[pymethods]
impl Table {
    /// Returns the table as an Arrow stream. A requested schema is ignored, as the interface allows.
    #[pyo3(signature = (requested_schema=None))]
    pub fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batch = self.batch()?;
        let schema = batch.schema();
        stream(py, Box::new(RecordBatchIterator::new([Ok(batch)], schema)))
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<&'static str> {
        self.columns.iter().map(|column| column.name).collect()
    }

    fn __len__(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    fn __repr__(&self) -> String {
        format!("<trimtab.Table of {} rows and {} columns>", self.__len__(), self.columns.len())
    }

    /// Returns the rows as dictionaries.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        for place in 0..self.__len__() {
            let row = PyDict::new(py);
            for column in &self.columns {
                match &column.values {
                    Values::Text(values) => row.set_item(column.name, values[place].as_deref())?,
                    Values::Count(values) => row.set_item(column.name, values[place])?,
                    Values::Real(values) => row.set_item(column.name, values[place])?,
                    Values::Flag(values) => row.set_item(column.name, values[place])?,
                }
            }
            rows.append(row)?;
        }
        Ok(rows)
    }
}

/// A stream of batches as the capsule that the interface asks for. Whoever takes the stream out frees it; the capsule
/// does if nobody took it.
pub fn stream(py: Python<'_>, reader: Box<dyn RecordBatchReader + Send>) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), c"arrow_array_stream")
}
