//! Results with impossible figures: each is refused or rendered, and none ends in a panic. Debug builds,
//! as these tests are, check every sum.

#[path = "fixture/bench.rs"]
#[allow(dead_code)]
mod benches;
#[allow(dead_code)]
mod fixture;

use serde_json::{Value, json};
use trimtab_core::document::sim::{
    DiscardsFrom, KindTotal, Passes, ReplayDescription, ReplayOutcome, ReplayedTrace, ReservePoint,
    SIM_SCHEMA, SimDocument, SimRun,
};
use trimtab_core::policy::{PolicyKind, SimPolicy};
use trimtab_core::stats::{DriveCounters, EraseSpread, LatencySummary, SizeHistogram};
use trimtab_core::trace::{Kind, TraceHeader};
use trimtab_core::{Bytes, Nanos};
use trimtab_report::bench::Comparison;
use trimtab_report::{Document, page};

/// Elements of a list that are changed: the others are like them.
const ELEMENTS: usize = 2;

fn simulation() -> SimDocument {
    let compared = fixture::fragment(&["ext4"], &PolicyKind::ALL, 1);
    let policies = ["none", "online", "batched:1h", "ideal"].map(|name| name.parse::<SimPolicy>().unwrap());
    let latency = LatencySummary { count: 7, p99_ns: Nanos(5_000), ..LatencySummary::default() };
    let run = |policy: SimPolicy| {
        let mut discard_sizes = SizeHistogram::default();
        [4096, 8192, 1 << 20].into_iter().for_each(|size| discard_sizes.record(Bytes(size)));
        let counters = DriveCounters {
            host_pages: 1000,
            copied_pages: 300,
            journal_pages: 4,
            erases: 50 + u64::from(policy.is(PolicyKind::None)) * 70,
            discards: 3,
            discard_bytes: Bytes::MIB,
            discard_sizes,
            ..DriveCounters::default()
        };
        let outcome = ReplayOutcome {
            passes: 1,
            trace_ns: Nanos(60_000_000_000),
            events: 2000,
            failed: 1,
            counters,
            waf_passes: vec![Some(1.3), None],
            erase_blocks: 100,
            erase_spread: EraseSpread::of(&[1, 2, 3]),
            erases_by_phase: vec![5; 10],
            reads: latency,
            writes: latency,
            discards: latency,
            flushes: latency,
            waited_ns: Nanos(9_000_000),
            pending: Bytes::MIB,
            reserve: (0..4)
                .map(|at| ReservePoint {
                    trace_ns: Nanos(at * 1_000_000_000),
                    free_blocks: 9,
                    free_share: 0.2,
                })
                .collect(),
        };
        SimRun {
            profile: "ocz-agility-3".to_owned(),
            policy,
            discards_from: DiscardsFrom::Frees,
            steady: Some(false),
            lifetime_years: outcome.lifetime_years(3000),
            wall_s: 1.0,
            outcome,
        }
    };
    SimDocument {
        schema: SIM_SCHEMA.to_owned(),
        version: compared.version,
        command: compared.command,
        started: compared.started,
        environment: compared.environment,
        trace: ReplayedTrace {
            path: "a.parquet".to_owned(),
            header: TraceHeader {
                lost: 3,
                duration: Some(Nanos(60_000_000_000)),
                ..TraceHeader::new("record")
            },
            device: "sda".to_owned(),
            size: Bytes::GIB,
            span_ns: Nanos(60_000_000_000),
            kinds: vec![KindTotal { kind: Kind::Write, count: 2000, bytes: Bytes::GIB }],
        },
        replay: ReplayDescription {
            scaled_to: Some(Bytes::GIB),
            passes: Passes::Count(1),
            preconditioned: true,
            endurance_cycles: 3000,
            endurance_assumed: true,
        },
        drives: compared.drive.into_iter().collect(),
        policies: policies.to_vec(),
        notes: Vec::new(),
        runs: policies.map(run).to_vec(),
        stopped: None,
    }
}

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
    let html = page(&[document.section()]);
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
    withstands(&simulation());
}

#[test]
fn totals_of_huge_figures_do_not_panic() {
    let mut simulation = serde_json::to_value(simulation()).unwrap();
    for pages in ["host_pages", "copied_pages", "journal_pages"] {
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
