//! Fits of discard costs.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use trimtab_core::Bytes;
use trimtab_core::document::bench::{Estimate, LatencyBucket, LatencyHistogram};
use trimtab_core::fit::{Cell, cost};

use crate::errors::Error;

/// The longest latency that is believed, in seconds.
const LONGEST: f64 = 1e6;

/// Fits the cost of a discard to measured ones. `trimtab.fit_discards` documents it.
#[pyfunction]
pub fn fit_discards(
    py: Python<'_>,
    sizes: Vec<u64>,
    latencies: Vec<f64>,
) -> PyResult<Option<Bound<'_, PyDict>>> {
    if sizes.len() != latencies.len() {
        let (sizes, latencies) = (sizes.len(), latencies.len());
        return Err(Error::new_err(format!(
            "{sizes} sizes and {latencies} latencies: each discard needs both"
        )));
    }
    let mut by_size: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for (size, latency) in sizes.into_iter().zip(latencies) {
        if !(0.0..=LONGEST).contains(&latency) {
            return Err(Error::new_err(format!(
                "the latency {latency} is not between 0 and {LONGEST} seconds"
            )));
        }
        *by_size.entry(size).or_default().entry((latency * 1e9) as u64).or_default() += 1;
    }
    let bucket = |(ns, count)| LatencyBucket { ns, count };
    let curve: Vec<_> = by_size
        .into_iter()
        .map(|(size, counted)| (size, LatencyHistogram(counted.into_iter().map(bucket).collect())))
        .collect();
    let cell = |(size, latencies)| Cell { size: Bytes(size), commands: 1.0, latencies };
    let cells: Vec<_> = curve.iter().map(|(size, latencies)| cell((*size, latencies))).collect();
    let Some(cost) = py.detach(|| cost(&cells)) else { return Ok(None) };
    let interval = |estimate: Estimate| (estimate.value, estimate.low, estimate.high);
    let fit = PyDict::new(py);
    fit.set_item("command_us", interval(cost.command_us))?;
    fit.set_item("per_gib_ms", interval(cost.per_gib_ms))?;
    fit.set_item("residual", cost.residual)?;
    fit.set_item("sizes", cost.cells)?;
    Ok(Some(fit))
}
