//! Comparisons rendered as a reader gets them.

mod fixture;

use proptest::prelude::{prop, prop_assert, proptest};
use trimtab_core::document::{CompareDocument, Phase};
use trimtab_core::policy::PolicyKind;
use trimtab_core::units::Bytes;
use trimtab_report::compare::{Summary, html, text};
use trimtab_report::{Document, Figures, page};

use fixture::{empty, fragment, without_drive};

const PLAIN: [PolicyKind; 3] = [PolicyKind::None, PolicyKind::Online, PolicyKind::Batched];

fn advice(document: &CompareDocument) -> Vec<String> {
    Summary::of(document).file_systems.into_iter().map(|fs| fs.advice).collect()
}

/// Changes every phase of one policy.
fn change(document: &mut CompareDocument, policy: PolicyKind, change: impl Fn(&mut Phase)) {
    let runs = document.runs.iter_mut().filter(|run| run.policy == policy);
    runs.flat_map(|run| &mut run.phases).for_each(change);
}

#[test]
fn the_best_trade_off_is_drawn_from_the_figures() {
    let document = fragment(
        &["ext4", "btrfs"],
        &[PolicyKind::None, PolicyKind::Online, PolicyKind::Async, PolicyKind::Batched],
        3,
    );
    assert_eq!(
        advice(&document),
        [
            "On ext4, batched is the best trade-off: against none it takes 1.02× the delete time (within \
             noise), writes 4.1× as fast afterwards and needs 38 % fewer erases; its trims take 2.42 s in \
             pauses; online takes 64× the delete time.",
            "On btrfs, batched is the best trade-off: against none it takes 1.02× the delete time (within \
             noise), writes 4.1× as fast afterwards and needs 38 % fewer erases; its trims take 3.14 s in \
             pauses; online takes 64× the delete time; async takes 1.30× the delete time, writes only 2.2× \
             as fast afterwards and needs only 20 % fewer erases.",
        ]
    );
}

#[test]
fn where_discards_cost_nothing_the_fastest_write_wins() {
    let mut document = fragment(&["ext4"], &PLAIN, 3);
    change(&mut document, PolicyKind::Online, |phase| {
        if phase.name.starts_with("delete") {
            phase.model_s = phase.model_s.map(|seconds| seconds / 64.0);
        }
    });
    change(&mut document, PolicyKind::Batched, |phase| {
        if phase.name == "write" {
            phase.model_s = phase.model_s.map(|seconds| seconds * 2.0);
            phase.throughput_mib_s = phase.throughput_mib_s.map(|rate| rate / 2.0);
        }
    });
    assert_eq!(
        advice(&document),
        [
            "On ext4, online is the best trade-off: against none it takes 1.00× the delete time (within noise), \
          writes 4.3× as fast afterwards and needs 40 % fewer erases; batched writes only 2.0× as fast \
          afterwards."
        ]
    );
}

#[test]
fn where_trims_gain_nothing_none_is_advised() {
    let mut document = fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Online], 3);
    let none = document.runs[0].clone();
    for run in &mut document.runs {
        for (phase, same) in run.phases.iter_mut().zip(&none.phases) {
            (phase.throughput_mib_s, phase.erases) = (same.throughput_mib_s, same.erases);
            if phase.name == "write" {
                phase.model_s = same.model_s;
            }
        }
    }
    let none_is_best = "On ext4, none is the best trade-off: online takes 64× the delete time.";
    assert_eq!(advice(&document), [none_is_best]);
}

#[test]
fn noise_decides_nothing() {
    let mut document = fragment(&["ext4"], &PLAIN, 3);
    let none = document.runs[0].phases.clone();
    for (place, run) in document.runs.iter_mut().enumerate() {
        run.phases = none.clone();
        for phase in &mut run.phases {
            phase.model_s = phase.model_s.map(|seconds| seconds * [1.0, 0.97, 1.04][(place + place / 3) % 3]);
        }
    }
    assert_eq!(advice(&document), ["On ext4, no policy stands out: all differences are within noise."]);
}

#[test]
fn fewer_erases_decide_between_equals() {
    let mut document = fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Batched], 3);
    document.workload.write_phase = None;
    change(&mut document, PolicyKind::Batched, |phase| {
        phase.erases = phase.erases.map(|erases| erases * 10);
    });
    assert_eq!(advice(&document), ["On ext4, none is the best trade-off: batched needs 6.2× the erases."]);
}

#[test]
fn lost_data_is_shouted_and_never_advised() {
    let mut document = fragment(&["ext4"], &PLAIN, 3);
    let lost = document.runs.iter_mut().find(|run| run.policy == PolicyKind::Batched && run.run == 2);
    lost.unwrap().verified = false;
    let [advice] = advice(&document).try_into().unwrap();
    assert!(advice.starts_with("On ext4, none is the best trade-off: online"), "{advice}");
    assert!(advice.ends_with("Never batched: it did not keep its data."), "{advice}");
    let shout = "DATA NOT VERIFIED: files did not read back as written in ext4 batched, run 2.";
    assert!(text(&document, false).contains(shout));
    assert!(html(&document).contains(shout));

    document.runs.iter_mut().for_each(|run| run.verified = run.policy == PolicyKind::None);
    let only_none = "On ext4, only none kept its data and ran every phase: no other can be advised.";
    assert_eq!(self::advice(&document), [only_none]);
}

#[test]
fn counters_that_disagree_are_named() {
    let mut document = fragment(&["ext4"], &PLAIN, 1);
    assert!(!text(&document, false).contains("COUNTERS DISAGREE"));
    document.runs[1].phases[3].discards += 1;
    assert!(text(&document, false).contains("COUNTERS DISAGREE"));
    assert!(html(&document).contains("different discards in ext4 online, run 1."));
}

#[test]
fn an_interrupted_comparison_says_what_is_missing() {
    let mut document = fragment(&["ext4", "xfs"], &PLAIN, 3);
    document.runs.truncate(8);
    document.stopped = Some("interrupted".to_owned());
    let text = text(&document, false).replace('\n', " ");
    assert!(text.contains("STOPPED EARLY: interrupted."), "{text}");
    assert!(
        text.contains("RUNS MISSING: ext4 none: 2 of 3 runs; ext4 online: 2 of 3 runs; ext4 batched: 1 of")
    );
    assert!(text.contains("Medians of 1 to 2 runs"));

    let nothing = CompareDocument { stopped: document.stopped, ..empty() };
    assert!(self::text(&nothing, false).contains("No run finished"));
    assert!(html(&nothing).contains("No run finished"));
}

#[test]
fn one_policy_is_no_comparison() {
    let document = fragment(&["ext4"], &[PolicyKind::Online], 1);
    assert_eq!(advice(&document), ["On ext4, only online was run: run it beside none to see the trade-off."]);
    let text = text(&document, false);
    assert!(text.contains("One run a policy") && !text.contains("vs"), "{text}");
}

#[test]
fn a_workload_without_phases_is_judged_by_its_whole_time() {
    let mut document = fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Online], 3);
    document.workload.delete_phases.clear();
    document.workload.write_phase = None;
    let [advice] = advice(&document).try_into().unwrap();
    assert!(advice.starts_with("On ext4, none is the best trade-off: online"), "{advice}");
    assert!(advice.contains("takes 1.66× the time"), "{advice}");
    assert!(html(&document).contains("Time of the workload"));
}

#[test]
fn what_nothing_counted_is_not_shown_as_none() {
    let mut document = without_drive(fragment(&["tmpfs"], &PLAIN, 3));
    let shows = |document: &CompareDocument| {
        (text(document, false).contains("cards"), html(document).contains("<th>discards</th>"))
    };
    assert_eq!(shows(&document), (true, true));
    document.runs.iter_mut().flat_map(|run| &mut run.phases).for_each(|phase| phase.kernel = None);
    assert_eq!(shows(&document), (false, false));
}

#[test]
fn wall_time_is_called_wall_time() {
    let document = without_drive(fragment(&["ext4"], &PLAIN, 3));
    for rendered in [text(&document, false), html(&document)] {
        let rendered = rendered.to_lowercase();
        assert!(rendered.contains("wall time") && !rendered.contains("model time"));
        assert!(!rendered.contains("erases</th>") && !rendered.contains(" waf "));
    }
    let model = text(&fragment(&["ext4"], &PLAIN, 3), false);
    assert!(model.contains("model time") && !model.contains("wall time"));
}

#[test]
fn figures_are_medians_and_weighted() {
    let mut document = fragment(&["ext4"], &[PolicyKind::None], 3);
    for run in &mut document.runs {
        run.phases.truncate(2);
        for (phase, (seconds, waf, mib)) in run.phases.iter_mut().zip([(1.0, 2.0, 30), (4.0, 1.0, 10)]) {
            phase.name = if seconds > 1.0 { "write" } else { "delete" }.to_owned();
            phase.model_s = Some(seconds * f64::from(run.run * run.run));
            (phase.waf, phase.host_bytes) = (Some(waf), Bytes(mib << 20));
        }
    }
    let summary = Summary::of(&document);
    let row = &summary.file_systems[0].rows[0];
    let (wait, delete) = (row.wait_s.unwrap(), row.delete_s.unwrap());
    assert_eq!([wait.min, wait.median, wait.max], [5.0, 20.0, 45.0]);
    assert_eq!([delete.min, delete.median, delete.max], [1.0, 4.0, 9.0]);
    assert_eq!(row.waf.unwrap().median, (2.0 * 30.0 + 10.0) / 40.0);
    assert_eq!(row.discard_bytes, None);
}

#[test]
fn the_table_fits_eighty_columns() {
    let mut document = fragment(&["ext4", "btrfs"], &PolicyKind::ALL, 3);
    for phase in document.runs.iter_mut().flat_map(|run| &mut run.phases) {
        phase.model_s = phase.model_s.map(|seconds| seconds * 150.0);
        phase.erases = phase.erases.map(|erases| erases * 10);
    }
    document.stopped = Some("a reason with many words ".repeat(9));
    let text = text(&document, false);
    let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(longest <= 80, "{text}");
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn colour_marks_what_is_better_and_worse() {
    let document = fragment(&["ext4"], &PLAIN, 3);
    let coloured = text(&document, true);
    let (mut plain, mut escape) = (String::new(), false);
    for c in coloured.chars() {
        match (escape, c) {
            (false, '\u{1b}') => escape = true,
            (false, _) => plain.push(c),
            (true, _) => escape = c != 'm',
        }
    }
    assert!(coloured.len() > plain.len());
    assert_eq!(plain, text(&document, false));
}

#[test]
fn text_from_outside_stays_text() {
    let mut document = fragment(&["<script>alert(1)</script>\u{1b}[31m"], &PLAIN, 1);
    let evil = "\"'><script src=//example.org></script>\u{1b}]0;x\u{7}".to_owned();
    document.command.push(evil.clone());
    document.workload.summary = evil.clone();
    document.stopped = Some(evil.clone());
    document.environment.tools.push((evil.clone(), evil.clone()));
    document.drive.as_mut().unwrap().profile_toml = evil.clone();
    document.drive.as_mut().unwrap().profile = evil.clone();
    document.runs[0].phases[0].name = evil;
    let page = html(&document);
    assert!(!page.contains("<script") && !page.contains('\u{1b}'));
    assert!(!text(&document, false).contains(['\u{1b}', '\u{7}']));
}

#[test]
fn json_round_trips_to_the_same_page() {
    let document = fragment(&["ext4"], &PLAIN, 2);
    let json = serde_json::to_string(&document).unwrap();
    let read = Document::parse(&json).unwrap();
    assert_eq!(read.text(false), text(&document, false));
    assert_eq!(page(&[read.section()]), html(&document));
    let Figures::Compare(figures) = read.figures() else { panic!("it is a comparison") };
    assert_eq!(figures.file_systems[0].rows.len(), 3);
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let reason = |json: &str| {
        let error = Document::parse(json).unwrap_err();
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        format!("{error}{}", source.unwrap_or_default())
    };
    let json = serde_json::to_string(&fragment(&["ext4"], &PLAIN, 1)).unwrap();
    assert!(reason(&json[..json.len() / 2]).starts_with("the file ends too early, it was cut off: EOF"));
    assert!(reason("").starts_with("the file ends too early"));
    assert!(reason("hello").starts_with("not JSON: expected value at line 1"));
    assert!(reason("[1]").contains("no \"schema\""));
    assert_eq!(
        reason("{\"schema\": \"trimtab/compare/9\"}"),
        "unknown schema \"trimtab/compare/9\"; known schemas: trimtab/compare/1, trimtab/bench/1, trimtab/sim/1"
    );
    let wrong = json.replacen("\"wall_s\":", "\"wall\":", 1);
    assert!(reason(&wrong).contains(": runs[0].phases[0]: missing field `wall_s`"), "{}", reason(&wrong));
}

proptest! {
    /// Whatever the figures are, everything renders, and every length in a chart is a number.
    #[test]
    fn any_figures_render(
        figures in prop::collection::vec((0.0..1.0_f64, -12..9_i32, 0..1000_u64), 1..40),
        policies in prop::sample::subsequence(PolicyKind::ALL.to_vec(), 1..=4),
        known in prop::collection::vec(prop::bool::weighted(0.9), 12),
    ) {
        let mut document = fragment(&["ext4", "btrfs"], &policies, 2);
        let phases = document.runs.iter_mut().flat_map(|run| &mut run.phases);
        for (place, (phase, (part, power, erases))) in phases.zip(figures.iter().cycle()).enumerate() {
            let figure = (part - 0.2).max(0.0) * 10_f64.powi(*power);
            phase.model_s = known[place % 12].then_some(figure);
            phase.throughput_mib_s = known[(place + 1) % 12].then_some(figure);
            phase.erases = known[(place + 2) % 12].then_some(*erases);
            phase.waf = known[(place + 3) % 12].then_some(figure);
        }
        let page = html(&document);
        prop_assert!(!page.contains("NaN") && !page.contains("\"inf"), "{}", page);
        prop_assert!(!text(&document, true).contains("NaN"));
    }
}
