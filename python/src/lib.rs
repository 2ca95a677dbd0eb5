//! The extension module of the Python package `trimtab`: thin functions over the library crates.

mod errors;
mod fit;
mod plan;
mod profile;
mod signals;
mod simulation;
mod table;
mod trace;

use pyo3::prelude::pymodule;

/// Simulations, traces and sweeps.
#[pymodule]
mod _trimtab {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::errors::Error;
    #[pymodule_export]
    use crate::fit::fit_discards;
    #[pymodule_export]
    use crate::plan::{Plan, run_cell, trace_hash};
    #[pymodule_export]
    use crate::profile::{Profile, profiles};
    #[pymodule_export]
    use crate::simulation::{Simulation, simulate};
    #[pymodule_export]
    use crate::table::Table;
    #[pymodule_export]
    use crate::trace::{Trace, read_trace};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", trimtab_sim::sweep::VERSION)
    }
}
