//! A bench in a few figures and sentences.

use serde::Serialize;
use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::Fit;
use trimtab_core::units::Bytes;

use super::figures::Degradation;
use super::findings;

/// A bench in a few figures and sentences.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The device's model.
    pub model: String,
    /// Its path when it was measured.
    pub path: String,
    /// Its size.
    pub size: Bytes,
    /// The warnings to read first: lost data, and a run that ended early.
    pub alarms: Vec<String>,
    /// The findings, in a few sentences.
    pub findings: Vec<String>,
    /// The cost of a discard and what else was fitted.
    pub fit: Option<Fit>,
    /// How the drive slows and recovers; none where that was not measured.
    pub degradation: Option<Degradation>,
}

impl Summary {
    /// The figures of `document`.
    pub fn of(document: &BenchDocument) -> Self {
        Self {
            model: document.device.model.clone(),
            path: document.device.path.clone(),
            size: document.device.size,
            alarms: findings::alarms(document),
            findings: findings::findings(document),
            fit: document.fit.clone(),
            degradation: Degradation::of(document),
        }
    }
}
