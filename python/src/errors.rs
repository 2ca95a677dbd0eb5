//! Errors as Python exceptions, with the text that the command line prints.

use pyo3::PyErr;
use pyo3::exceptions::PyException;
use trimtab_core::error::chain;

pyo3::create_exception!(
    trimtab,
    Error,
    PyException,
    "An error of trimtab, with the text that the command line prints."
);

/// The exception of an error and its causes, in one line.
pub fn raised(error: &dyn std::error::Error) -> PyErr {
    Error::new_err(chain(error))
}
