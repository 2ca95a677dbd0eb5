//! Comparisons rendered as a reader gets them.

mod advice;
#[path = "../fixture/mod.rs"]
mod fixture;
mod hostile;
mod layout;

use trimtab_core::document::{CompareDocument, Step};
use trimtab_core::policy::PolicyKind;
use trimtab_report::compare::{Summary, text};

use fixture::IDLE;

const PLAIN: [PolicyKind; 3] = [PolicyKind::None, PolicyKind::Online, PolicyKind::Batched];

fn advice(document: &CompareDocument) -> Vec<String> {
    Summary::of(document).file_systems.into_iter().flat_map(|fs| fs.advice).collect()
}

/// The text in one line.
fn one_line(document: &CompareDocument) -> String {
    text(document, false).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Changes every step of one policy.
fn change(document: &mut CompareDocument, policy: PolicyKind, change: impl Fn(&mut Step)) {
    let runs = document.runs.iter_mut().filter(|run| run.policy.kind() == policy);
    runs.flat_map(|run| &mut run.steps).for_each(change);
}

/// Only the runs without a pause.
fn without_pause(mut document: CompareDocument) -> CompareDocument {
    document.runs.retain(|run| run.idle_s == IDLE[0]);
    document
}

/// Only the runs with a pause.
fn with_pause(mut document: CompareDocument) -> CompareDocument {
    document.runs.retain(|run| run.idle_s == IDLE[1]);
    document
}

/// Gives every run of a policy the steps of `none`, its times `factor` as long, and no trims.
fn as_none(document: &mut CompareDocument, policy: PolicyKind, factor: f64) {
    let none = document.runs.iter().find(|run| run.policy.kind() == PolicyKind::None).unwrap().steps.clone();
    for run in document.runs.iter_mut().filter(|run| run.policy.kind() == policy) {
        run.steps = none.clone();
        run.steps.iter_mut().for_each(|step| step.length_s *= factor);
        run.trims.clear();
    }
}
