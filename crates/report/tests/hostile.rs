//! Results with impossible figures: each is refused or rendered, and none ends in a panic. Debug builds,
//! as these tests are, check every sum.

#[path = "fixture/bench.rs"]
#[allow(dead_code)]
mod benches;
#[allow(dead_code)]
mod fixture;
#[path = "fixture/sim.rs"]
mod sims;

use serde_json::{Value, json};
use trimtab_core::policy::PolicyKind;
use trimtab_report::bench::Comparison;
use trimtab_report::{Document, page};

/// Elements of a list that are changed: the others are like them.
const ELEMENTS: usize = 2;

/// The JSON pointers of all numbers in `value`.
fn numbers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(at.to_owned()),
        Value::Array(items) => {
            let items = items.iter().enumerate().take(ELEMENTS);
            items.for_each(|(place, item)| numbers(item, &format!("{at}/{place}"), found));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| numbers(field, &format!("{at}/{name}"), found));
        }
        _ => {}
    }
}

/// Reads and renders it in every way there is; returns whether it could be read.
fn is_rendered(document: &Value) -> bool {
    let Ok(document) = Document::parse(&document.to_string()) else { return false };
    let text = document.text(false);
    let html = page(&document.sections());
    let figures = serde_json::to_string(&document.figures()).unwrap();
    assert!(!text.is_empty() && !html.is_empty() && !figures.is_empty());
    if let Some(bench) = document.bench() {
        Comparison::of([bench, bench]).map(|comparison| (comparison.text(false), comparison.section()));
    }
    true
}

/// Gives one number, and then all of them, each of these values.
fn withstands(document: &impl serde::Serialize) {
    let whole = serde_json::to_value(document).unwrap();
    assert!(is_rendered(&whole));
    let mut places = Vec::new();
    numbers(&whole, "", &mut places);
    assert!(places.len() > 30, "{places:?}");
    let values =
        [json!(u64::MAX), json!(u32::MAX), json!(0), json!(-1), json!(1e308), json!(-1e308), json!(5e-324)];
    let mut rendered = 0;
    for value in values {
        for place in &places {
            let mut changed = whole.clone();
            *changed.pointer_mut(place).unwrap() = value.clone();
            rendered += usize::from(is_rendered(&changed));
        }
        let mut changed = whole.clone();
        for place in &places {
            let before = changed.pointer(place).unwrap().clone();
            *changed.pointer_mut(place).unwrap() = value.clone();
            if Document::parse(&changed.to_string()).is_err() {
                *changed.pointer_mut(place).unwrap() = before;
            }
        }
        assert!(is_rendered(&changed));
    }
    assert!(rendered > 2 * places.len(), "{rendered} of {}: most could be read", places.len());
}

#[test]
fn comparisons_with_impossible_figures_do_not_panic() {
    withstands(&fixture::fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Online, PolicyKind::Smart], 2));
}

#[test]
fn benches_with_impossible_figures_do_not_panic() {
    withstands(&benches::bench("Slow", 10_100.0, 302.0));
}

#[test]
fn simulations_with_impossible_figures_do_not_panic() {
    withstands(&sims::simulation());
}

#[test]
fn totals_of_huge_figures_do_not_panic() {
    let mut simulation = serde_json::to_value(sims::simulation()).unwrap();
    for pages in ["host_pages", "copied_pages", "journal_pages", "map_pages", "map_reads"] {
        simulation["runs"][0]["outcome"]["counters"][pages] = json!(u64::MAX);
    }
    let bucket = json!({ "from_bytes": 4096, "count": u64::MAX });
    simulation["runs"][0]["outcome"]["counters"]["discard_sizes"] = json!([bucket, bucket]);
    assert!(is_rendered(&simulation));
    let mut bench = serde_json::to_value(benches::bench("Slow", 10_100.0, 302.0)).unwrap();
    let histogram = json!([{ "ns": 1, "count": u64::MAX }, { "ns": u64::MAX, "count": u64::MAX }]);
    bench["sweeps"][0]["latency"]["histogram"] = histogram;
    assert!(is_rendered(&bench));
}
