//! Warnings to read before trusting the figures.

use trimtab_core::document::CompareDocument;

use super::summary::Summary;

/// Lost data, counters that disagree, commands that complained, and runs that are missing.
pub fn alarms(document: &CompareDocument, summary: &Summary) -> Vec<String> {
    let mut alarms = Vec::new();
    if !summary.unverified.is_empty() {
        let runs = summary.unverified.join("; ");
        alarms.push(format!("DATA NOT VERIFIED: files did not read back as written in {runs}."));
    }
    if !summary.miscounted.is_empty() {
        let runs = summary.miscounted.join("; ");
        alarms.push(format!(
            "COUNTERS DISAGREE: the drive and the kernel counted different discards in {runs}."
        ));
    }
    let complaints = || document.runs.iter().filter_map(|run| run.stderr.as_deref());
    if let Some(complaint) = complaints().next() {
        let (count, runs) = (complaints().count(), document.runs.len());
        alarms.push(format!(
            "The command wrote to standard error in {count} of {runs} runs, last: {}. Check that it did all its work.",
            crate::printable(complaint).trim_end_matches('.')
        ));
    }
    if let Some(reason) = &document.stopped {
        let reason = reason.trim().trim_end_matches('.');
        alarms.push(format!("STOPPED EARLY: {reason}. File systems and policies not begun are not shown."));
    }
    if !summary.incomplete.is_empty() && !document.runs.is_empty() {
        alarms.push(format!("RUNS MISSING: {}.", summary.incomplete.join("; ")));
    }
    alarms
}

/// Returns the sentence that data was verified, if it was in every run.
pub fn verified(document: &CompareDocument) -> Option<String> {
    let sound = !document.runs.is_empty() && document.runs.iter().all(|run| run.verified);
    sound.then(|| "Data: the live files of every run read back as they were written.".to_owned())
}
