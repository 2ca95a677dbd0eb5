//! The extension module of the Python package.
use pyo3::prelude::pymodule;

/// Simulations, traces and sweeps.
#[pymodule]
mod _trimtab {}
