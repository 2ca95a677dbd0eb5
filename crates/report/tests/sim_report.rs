//! The tables of simulations.

#[allow(dead_code)]
mod fixture;
#[path = "fixture/sim.rs"]
mod sims;

use serde_json::json;
use trimtab_report::Document;

/// A policy that takes ten times as many passes to get steady does not look ten times as costly.
#[test]
fn counts_and_times_are_means_of_a_pass() {
    let mut document = json!(sims::simulation());
    let rows = |document: &serde_json::Value| {
        let parsed = Document::parse(&document.to_string()).unwrap();
        let text = parsed.text(false);
        text.lines().filter(|line| line.starts_with("online ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let before = rows(&document);
    let outcome = &mut document["runs"][1]["outcome"];
    outcome["passes"] = json!(10);
    let of_ten_passes = |value: &serde_json::Value| json!(value.as_u64().unwrap() * 10);
    outcome["waited_ns"] = of_ten_passes(&outcome["waited_ns"]);
    for counter in ["erases", "discards", "discard_bytes", "discard_busy_ns"] {
        outcome["counters"][counter] = of_ten_passes(&outcome["counters"][counter]);
    }
    assert_eq!(before.len(), 1);
    assert_eq!(rows(&document), before);
    let text = Document::parse(&document.to_string()).unwrap().text(false).replace('\n', " ");
    assert!(text.contains("Counts and times are means of a pass: online over 10 passes"), "{text}");
}
