//! Results of `trimtab compare`, as text and as a page.

use trimtab_core::document::CompareDocument;

/// The results as text for a terminal; `colour` is whether it shows colours.
pub fn text(document: &CompareDocument, _colour: bool) -> String {
    let mut out = String::new();
    for run in &document.runs {
        out += &format!("{} {} idle {} waited {:.3}\n", run.fs, run.policy, run.idle_s, run.waited_s());
        for step in &run.steps {
            let probe = step.probe.map(|probe| {
                (
                    probe.count,
                    probe.p50_ns.seconds() * 1e3,
                    probe.p99_ns.seconds() * 1e3,
                    probe.max_ns.seconds() * 1e3,
                )
            });
            out += &format!(
                "  {:12} {:8.3} s {:7.1} MiB/s discards {} busy {:.3} erases {:?} probe {probe:.2?}\n",
                step.name,
                step.length_s,
                step.throughput_mib_s().unwrap_or(0.0),
                step.discards,
                step.discard_busy_s.unwrap_or(0.0),
                step.erases
            );
        }
        out += &format!(
            "  trims {:?} stale {:?} pending {:?} waf {:?}\n",
            run.trims,
            run.stale,
            run.pending,
            run.waf()
        );
    }
    out
}

/// The results as a page.
pub fn html(_document: &CompareDocument) -> String {
    String::new()
}

/// The figures of a comparison.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Summary;

impl Summary {
    /// The figures of `document`.
    pub fn of(_document: &CompareDocument) -> Self {
        Self
    }
}

/// The section of a page.
pub fn section(_document: &CompareDocument) -> crate::html::Section {
    todo!()
}
