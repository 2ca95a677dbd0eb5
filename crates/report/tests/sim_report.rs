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

/// A count at the end and no mean: blocks stay bad from pass to pass.
#[test]
fn blocks_that_turned_bad_are_in_the_table_where_there_are_any() {
    let mut document = json!(sims::simulation());
    let text =
        |document: &serde_json::Value| Document::parse(&document.to_string()).unwrap().text(false).to_owned();
    assert!(!text(&document).contains("blocks"));
    let outcome = &mut document["runs"][1]["outcome"];
    outcome["bad_blocks"] = json!(123);
    outcome["passes"] = json!(10);
    let shown = text(&document);
    let row = |policy: &str| shown.lines().find(|line| line.starts_with(policy)).unwrap().to_owned();
    let heads = shown.lines().find(|line| line.starts_with("policy ")).unwrap();
    assert!(heads.contains(" blocks "), "{shown}");
    assert!(row("online").contains(" 123 "), "{shown}");
    assert!(!row("none").contains("123") && row("none").contains('–'), "{shown}");
}
