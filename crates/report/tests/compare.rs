//! Comparisons rendered as a reader gets them.

mod fixture;

use proptest::prelude::{Just, any, prop, prop_assert, prop_oneof, proptest};
use proptest::strategy::Strategy;
use trimtab_core::document::{Clock, CompareDocument, Run, Step, StepKind};
use trimtab_core::policy::PolicyKind;
use trimtab_core::stats::LatencySummary;
use trimtab_core::units::{Bytes, Nanos};
use trimtab_report::compare::{Row, Summary, html, text};
use trimtab_report::{Document, Figures, page};

use fixture::{IDLE, empty, fragment, step, without_drive};

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

#[test]
fn each_situation_gets_its_advice() {
    let document = fragment(&["ext4", "btrfs"], &PolicyKind::ALL, 3);
    assert_eq!(
        advice(&document),
        [
            "On ext4 without a pause, smart is best: you wait 33 % less than with none and the drive erases \
             44 % fewer blocks; with online you wait 2.2× as long as with none (deletes take 69.0 s instead of \
             1.08 s); batched discards nothing.",
            "On ext4 with a pause of 1 min, batched is best: you wait 49 % less than with none and the drive \
             erases 66 % fewer blocks; its trims take 2.42 s; smart does as well; with online you wait 2.2× as \
             long as with none (deletes take 69.0 s instead of 1.08 s).",
            "On btrfs without a pause, async is best: you wait 35 % less than with none and the drive erases \
             46 % fewer blocks; with online you wait 2.2× as long as with none (deletes take 89.7 s instead of \
             1.40 s); batched discards nothing.",
            "On btrfs with a pause of 1 min, batched is best: you wait 49 % less than with none and the drive \
             erases 66 % fewer blocks; its trims take 3.14 s; smart does as well; with online you wait 2.2× as \
             long as with none (deletes take 89.7 s instead of 1.40 s).",
        ]
    );
}

#[test]
fn a_policy_that_only_costs_is_not_advised() {
    let document = without_pause(fragment(&["xfs"], &[PolicyKind::None, PolicyKind::Online], 3));
    assert_eq!(
        advice(&document),
        [
            "On xfs without a pause, none is best: with online you wait 2.2× as long as with none (deletes take \
          69.0 s instead of 1.08 s), though the drive erases 40 % fewer blocks."
        ]
    );
}

#[test]
fn policies_that_discard_nothing_are_the_same_as_none() {
    let mut document = without_pause(fragment(&["ext4"], &PLAIN, 1));
    as_none(&mut document, PolicyKind::Batched, 0.7);
    as_none(&mut document, PolicyKind::Online, 1.5);
    let same = "On ext4 without a pause, no policy discarded anything: all are the same as none.";
    assert_eq!(advice(&document), [same]);
    let text = one_line(&document);
    assert!(text.contains("batched = none 0 One run"), "{text}");
    assert!(text.contains("batched trimmed nothing: there was no pause to trim in. It is the same as none."));
    assert!(text.contains("online discarded nothing."));
}

#[test]
fn without_none_every_policy_has_its_figures() {
    let document = without_pause(fragment(&["ext4"], &[PolicyKind::Batched, PolicyKind::Smart], 3));
    assert_eq!(
        advice(&document),
        [
            "On ext4 without a pause, smart is best: with batched you wait 49 % longer than with smart and the drive erases 79 % more blocks."
        ]
    );
    assert!(!text(&document, false).contains("= none") && !text(&document, false).contains("vs"));
}

#[test]
fn noise_decides_nothing() {
    let mut document = with_pause(fragment(&["ext4"], &PLAIN, 3));
    let none = document.runs[0].steps.clone();
    for (place, run) in document.runs.iter_mut().enumerate() {
        let discards: u64 = run.steps.iter().map(|step| step.discards).sum();
        run.steps = none.clone();
        run.steps[0].discards = discards;
        for step in &mut run.steps {
            step.length_s *= [1.0, 0.97, 1.04][(place + place / 3) % 3];
        }
    }
    let noise = "On ext4 with a pause of 1 min, no policy stands out: all differences are within noise.";
    assert_eq!(advice(&document), [noise]);
}

#[test]
fn one_run_decides_less_on_a_real_clock() {
    let mut document = with_pause(fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Batched], 1));
    let none = document.runs[0].steps.clone();
    document.runs[1].steps.clone_from(&none);
    document.runs[1].steps[4].discards = 3;
    for step in &mut document.runs[1].steps {
        step.length_s *= 0.93;
    }
    let text = one_line(&document);
    assert!(text.contains("batched is best: you wait 7 % less"), "{text}");
    assert!(
        text.contains("One run of each policy, which repeats exactly; differences below 2 % count as equal.")
    );
    document.clock = Clock::Real { speed: 4.0 };
    let text = one_line(&document);
    assert!(text.contains("no policy stands out"), "{text}");
    assert!(text.contains("its spread is not known; differences below 10 % count as equal."));
}

#[test]
fn idle_policies_show_how_well_runs_repeat() {
    let policies = [PolicyKind::None, PolicyKind::Batched, PolicyKind::Smart];
    let mut document = without_pause(fragment(&["ext4"], &policies, 1));
    document.clock = Clock::Real { speed: 1.0 };
    assert!(advice(&document)[0].contains("smart is best: you wait 33 % less"));
    as_none(&mut document, PolicyKind::Batched, 1.6);
    let [advice] = advice(&document).try_into().unwrap();
    assert!(advice.contains("smart is best: you wait as long as with none"), "{advice}");
}

#[test]
fn fewer_erases_decide_between_equals() {
    let mut document = with_pause(fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Batched], 3));
    as_none(&mut document, PolicyKind::Batched, 1.0);
    change(&mut document, PolicyKind::Batched, |step| {
        (step.discards, step.erases) = (1, step.erases.map(|erases| erases * 3 / 4));
    });
    let fewer = "On ext4 with a pause of 1 min, batched is best: you wait as long as with none and the drive \
                 erases 25 % fewer blocks.";
    assert_eq!(advice(&document), [fewer]);
    change(&mut document, PolicyKind::Batched, |step| step.erases = step.erases.map(|erases| erases * 8));
    let more = "On ext4 with a pause of 1 min, none is best: with batched the drive erases 6.0× the blocks.";
    assert_eq!(advice(&document), [more]);
}

#[test]
fn a_policy_that_stalls_the_reads_of_others_is_not_best() {
    let mut document =
        with_pause(fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Batched, PolicyKind::Smart], 3));
    let stall = |step: &mut Step, ns: u64| {
        if let Some(probe) = step.probe.as_mut().filter(|_| step.kind == StepKind::Pause) {
            (probe.p99_ns, probe.p999_ns, probe.max_ns) = (Nanos(ns), Nanos(ns), Nanos(ns));
        }
    };
    change(&mut document, PolicyKind::Batched, |step| stall(step, 700_000_000));
    assert_eq!(
        advice(&document),
        [
            "On ext4 with a pause of 1 min, smart is best: you wait 49 % less than with none and the drive erases \
          66 % fewer blocks; with batched the p99 of others' reads is 700 ms instead of 12 ms."
        ]
    );
    change(&mut document, PolicyKind::Batched, |step| {
        if let Some(probe) = &mut step.probe {
            probe.p99_ns = Nanos(12_000_000);
        }
    });
    let [advice] = advice(&document).try_into().unwrap();
    assert!(
        advice.ends_with("with batched the longest read of others takes 700 ms instead of 20 ms."),
        "{advice}"
    );
}

#[test]
fn a_stall_is_named_as_the_cost_of_waiting_less() {
    let mut document = with_pause(fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Batched], 3));
    change(&mut document, PolicyKind::Batched, |step| {
        if let Some(probe) = &mut step.probe {
            probe.max_ns = Nanos(900_000_000);
        }
    });
    let [advice] = advice(&document).try_into().unwrap();
    assert!(
        advice.contains("fewer blocks, but the longest read of others takes 900 ms instead of 20 ms;"),
        "{advice}"
    );
}

#[test]
fn few_reads_have_no_p99() {
    let mut document = without_pause(fragment(&["ext4"], &[PolicyKind::None], 1));
    let p99 = |document: &CompareDocument| {
        let Row { read_p99_s, read_max_s, .. } =
            Summary::of(document).file_systems[0].situations[0].rows[0].clone();
        (read_p99_s.map(|spread| spread.median), read_max_s.map(|spread| spread.median))
    };
    assert_eq!(p99(&document), (Some(0.012), Some(0.02)));
    change(&mut document, PolicyKind::None, |step| {
        step.probe = step.probe.map(|probe| LatencySummary { count: 3, ..probe });
    });
    assert_eq!(p99(&document), (None, Some(0.02)));
    let few = one_line(&document);
    assert!(!few.contains("p99 ms") && few.contains("max ms"), "{few}");
    change(&mut document, PolicyKind::None, |step| step.probe = None);
    document.probe_interval_s = None;
    let intervals = document.runs.iter_mut().flat_map(|run| &mut run.timeline.intervals);
    intervals.for_each(|interval| interval.probe_max_s = None);
    assert_eq!(p99(&document), (None, None));
    assert!(!text(&document, false).contains("eads") && html(&document).contains("no probe"));
}

#[test]
fn lost_data_is_shouted_and_never_advised() {
    let mut document = with_pause(fragment(&["ext4"], &PLAIN, 3));
    assert!(one_line(&document).contains("Data: the live files of every run read back"));
    let lost = |run: &&mut Run| run.policy.kind() == PolicyKind::Batched && run.run == 2;
    document.runs.iter_mut().find(lost).unwrap().verified = false;
    let [advice] = advice(&document).try_into().unwrap();
    assert!(advice.starts_with("On ext4 with a pause of 1 min, none is best: with online"), "{advice}");
    assert!(advice.ends_with("Never batched: it did not keep its data."), "{advice}");
    let shout =
        "DATA NOT VERIFIED: files did not read back as written in ext4 batched with a pause of 1 min, run 2.";
    let line = one_line(&document);
    assert!(line.contains(shout) && line.contains("BAD") && !line.contains("every run read back"), "{line}");
    assert!(html(&document).contains(shout));

    document.runs.iter_mut().for_each(|run| run.verified = run.policy.kind() == PolicyKind::None);
    assert!(self::advice(&document)[0].contains("only none kept its data: no other can be advised."));
    document.runs.iter_mut().for_each(|run| run.verified = false);
    assert!(self::advice(&document)[0].contains("there is nothing to advise."));
}

#[test]
fn counters_that_disagree_are_named() {
    let mut document = with_pause(fragment(&["ext4"], &PLAIN, 1));
    document.runs[1].steps[3].discards += 2;
    assert!(!text(&document, false).contains("COUNTERS DISAGREE"), "read one after the other");
    document.runs[1].steps[3].discards += 1000;
    assert!(text(&document, false).contains("COUNTERS DISAGREE"));
    assert!(html(&document).contains("different discards in ext4 online with a pause of 1 min, run 1."));
}

#[test]
fn an_interrupted_comparison_says_what_is_missing() {
    let mut document = without_pause(fragment(&["ext4", "xfs"], &PLAIN, 3));
    document.runs.truncate(8);
    document.stopped = Some("interrupted".to_owned());
    let text = one_line(&document);
    assert!(text.contains("STOPPED EARLY: interrupted."), "{text}");
    let missing = "RUNS MISSING: ext4 none without a pause: 2 of 3 runs; ext4 online without a pause: 2 of 3 \
                   runs; ext4 batched without a pause: 1 of 3 runs; xfs none";
    assert!(text.contains(missing), "{text}");
    assert!(text.contains("Medians of 1 to 2 runs"));

    let nothing = CompareDocument { stopped: document.stopped, ..empty() };
    assert!(self::text(&nothing, false).contains("No run finished"));
    assert!(html(&nothing).contains("No run finished"));
}

#[test]
fn one_policy_is_no_comparison() {
    let document = fragment(&["ext4"], &[PolicyKind::Online], 1);
    let only = "On ext4 without a pause and with a pause of 1 min, only online was run: run it beside none to \
                see what it changes.";
    assert_eq!(advice(&document), [only]);
    let text = text(&document, false);
    assert!(text.contains("One run of each policy") && !text.contains("vs"), "{text}");
}

#[test]
fn a_workload_without_names_is_judged_by_its_whole_time() {
    let mut document = without_pause(fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Online], 3));
    document.workload.delete_steps.clear();
    document.workload.write_step = None;
    document.workload.has_pauses = false;
    let [advice] = advice(&document).try_into().unwrap();
    assert!(
        advice.starts_with("On ext4, none is best: with online you wait 2.2× as long as with none"),
        "{advice}"
    );
    let text = text(&document, false);
    assert!(!text.contains("delete\n") && !text.contains("MiB/s") && !text.contains("pause\n"), "{text}");
    assert!(html(&document).contains("Time waited"));
}

#[test]
fn repeated_steps_are_taken_together() {
    let mut document = with_pause(fragment(&["ext4"], &[PolicyKind::None], 1));
    let steps = &mut document.runs[0].steps;
    steps.extend(steps.clone());
    let row = Summary::of(&document).file_systems[0].situations[0].rows[0].clone();
    let single = Summary::of(&with_pause(fragment(&["ext4"], &[PolicyKind::None], 1)));
    let single = &single.file_systems[0].situations[0].rows[0];
    assert_eq!(row.delete_s.unwrap().median, 2.0 * single.delete_s.unwrap().median);
    assert_eq!(row.write_mib_s, single.write_mib_s);
    let page = html(&document);
    assert!(page.contains("with pauses of 1 min") && page.contains("after-delete (pause), 2 times"));
}

#[test]
fn what_nothing_counted_is_not_shown_as_none() {
    let mut document = without_drive(fragment(&["tmpfs"], &PLAIN, 3));
    let shows = |document: &CompareDocument| {
        (text(document, false).contains("dis-"), html(document).contains("<th>discards</th>"))
    };
    assert_eq!(shows(&document), (true, true));
    document.runs.iter_mut().flat_map(|run| &mut run.steps).for_each(|step| step.kernel = None);
    assert_eq!(shows(&document), (false, false));
    assert!(!text(&document, false).contains("discarded nothing"));
    assert!(text(&document, false).contains("= none"), "batched without a pause and without trims");
}

#[test]
fn the_clock_is_named() {
    let virtual_time = fragment(&["ext4"], &PLAIN, 3);
    for rendered in [one_line(&virtual_time), html(&virtual_time)] {
        assert!(rendered.contains("Virtual time: the clock of a guest with kernel 6.12.57+deb13-amd64"));
    }
    let mut fast = virtual_time;
    fast.clock = Clock::Real { speed: 4.0 };
    assert!(one_line(&fast).contains("Real clock of this machine (kernel 6.18.0), 4 times real speed"));
    let directory = without_drive(fast);
    let text = one_line(&directory);
    assert!(
        text.contains("Clock: Real clock of this machine (kernel 6.18.0). ext4 without a pause"),
        "{text}"
    );
    let page = html(&directory);
    assert!(!page.contains("erases</th>") && !page.contains("<th>WAF</th>"));
}

#[test]
fn waits_too_short_for_the_clock_have_no_ratio() {
    let mut document = without_pause(fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Online], 1));
    document.clock = Clock::Real { speed: 1.0 };
    document.runs.iter_mut().flat_map(|run| &mut run.steps).for_each(|step| step.length_s /= 1e4);
    let text = one_line(&document);
    assert!(!text.contains('×'), "{text}");
    assert!(text.contains("Waits below 100 ms are too short for a ratio."), "{text}");
}

#[test]
fn figures_are_medians() {
    let mut document = without_pause(fragment(&["ext4"], &[PolicyKind::None], 3));
    for run in &mut document.runs {
        run.steps.truncate(2);
        for (step, (seconds, pages)) in run.steps.iter_mut().zip([(1.0, 30), (4.0, 10)]) {
            step.name = if seconds > 1.0 { "write" } else { "delete" }.to_owned();
            step.length_s = seconds * f64::from(run.run * run.run);
            (step.host_pages, step.programmed_pages) = (Some(pages), Some(pages + 10));
        }
    }
    let row = Summary::of(&document).file_systems[0].situations[0].rows[0].clone();
    let (wait, delete) = (row.waited_s.unwrap(), row.delete_s.unwrap());
    assert_eq!([wait.min, wait.median, wait.max], [5.0, 20.0, 45.0]);
    assert_eq!([delete.min, delete.median, delete.max], [1.0, 4.0, 9.0]);
    assert_eq!(row.waf.unwrap().median, 1.5);
    assert_eq!(row.discard_bytes, None);
}

#[test]
fn text_fits_eighty_columns() {
    let mut document = fragment(&["ext4", "btrfs"], &PolicyKind::ALL, 3);
    for run in &mut document.runs {
        if run.policy.kind() == PolicyKind::Smart {
            run.policy = "batched:1h30m".parse().unwrap();
        }
        run.verified = run.run != 2;
        for step in &mut run.steps {
            step.length_s *= 1500.0;
            step.discards *= 1000;
            step.erases = step.erases.map(|erases| erases * 1000);
        }
    }
    document.stopped = Some("a reason with many words ".repeat(9));
    for document in [document.clone(), without_drive(document)] {
        let text = text(&document, false);
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= 80, "{text}");
        assert!(!text.contains('\u{1b}') && text.lines().all(|line| !line.ends_with(' ')));
    }
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
    let trimmed: Vec<_> = plain.lines().map(str::trim_end).collect();
    assert_eq!(trimmed, text(&document, false).lines().collect::<Vec<_>>());
}

#[test]
fn a_page_shows_every_part() {
    let page = html(&fragment(&["ext4"], &PolicyKind::ALL, 2));
    for part in [
        "<figcaption>Time waited, ext4: less is better; no bar: the policy trimmed nothing, as none</figcaption>",
        "<h2>ext4 without a pause</h2>",
        "<h2>ext4 with a pause of 1 min</h2>",
        "</i>ext4 with a pause of 1 min: batched, run 1 of 2</figcaption>",
        "aria-label=\"Reads of others, writes and discards over time, ext4 with a pause of 1 min: online, run",
        "longest read of the probe (log scale)",
        "written, MiB/s",
        "discards per second",
        "<rect class=\"fitrim\"",
        "<title>FITRIM: 2.41 s</title>",
        "<title>after-delete: a pause</title>",
        ">fragment</text>",
        "Discards by size, ext4 with a pause of 1 min",
        "Erases by step, ext4 without a pause",
        "<th>FITRIM s</th>",
        "<th>pending MiB</th>",
        "Every step, ext4 with a pause of 1 min",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("ext4 without a pause: batched"), "another run of none");
    for outside in ["<script", "http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn text_from_outside_stays_text() {
    let mut document = fragment(&["<script>alert(1)</script>\u{1b}[31m"], &PLAIN, 1);
    let evil = "\"'><script src=//example.org></script>\u{1b}]0;x\u{7}".to_owned();
    document.command.push(evil.clone());
    document.workload.summary = evil.clone();
    document.workload.delete_steps.push(evil.clone());
    document.workload.write_step = Some(evil.clone());
    document.smart_profile = Some(evil.clone());
    document.clock = Clock::Virtual { kernel: evil.clone() };
    document.stopped = Some(evil.clone());
    document.environment.tools.push((evil.clone(), evil.clone()));
    document.drive.as_mut().unwrap().profile_toml = evil.clone();
    document.drive.as_mut().unwrap().profile = evil.clone();
    document.runs[0].steps[0].name = evil.clone();
    document.runs.push(Run { policy: PolicyKind::Smart.into(), ..document.runs[0].clone() });
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
    assert_eq!(figures.file_systems[0].situations[1].rows.len(), 3);
    let figures = serde_json::to_value(&figures).unwrap();
    let row = &figures["file_systems"][0]["situations"][1]["rows"][2];
    assert_eq!((&row["policy"], &row["idle"]), (&"batched".into(), &false.into()));
    assert!(row["waited_s"]["median"].as_f64().is_some_and(|seconds| seconds > 29.0));
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
        "unknown schema \"trimtab/compare/9\"; known schemas: trimtab/compare/2, trimtab/bench/1, trimtab/sim/1"
    );
    let old = reason("{\"schema\": \"trimtab/compare/1\", \"runs\": []}");
    assert!(old.contains("trimtab/compare/1") && old.ends_with("run the comparison again"), "{old}");
    assert!(!old.contains('\n'));
    let wrong = json.replacen("\"length_s\":", "\"length\":", 1);
    assert!(reason(&wrong).contains(": runs[0].steps[0]: missing field `length_s`"), "{}", reason(&wrong));
}

/// Whether every word of `rendered` is one, and no figure that is not a number.
fn is_finite(rendered: &str) -> bool {
    let mut words = rendered.split(|c: char| !c.is_alphabetic());
    words.all(|word| !["nan", "inf", "infinity"].contains(&word.to_lowercase().as_str()))
        && !rendered.contains('∞')
}

/// A figure as a hostile or broken document has it.
fn figure() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (0.0..1.0_f64, -12..9_i32).prop_map(|(part, power)| (part - 0.1).max(0.0) * 10_f64.powi(power)),
        1 => Just(0.0),
        1 => prop::sample::select(vec![-1.0, 5e-324, 1e-300, 1e12, 1e300, f64::MAX, -f64::MAX]),
    ]
}

fn counter() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..1000_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

/// Applies figures to everything that a document holds.
fn scramble(document: &mut CompareDocument, figures: &[(f64, u64)], known: &[bool]) {
    let mut figures = figures.iter().copied().cycle();
    let mut known = known.iter().copied().cycle();
    let mut next = || figures.next().unwrap();
    let mut knows = || known.next().unwrap();
    for run in &mut document.runs {
        run.timeline.interval_s = next().0;
        for interval in &mut run.timeline.intervals {
            let (figure, number) = next();
            interval.probe_max_s = knows().then_some(figure);
            (interval.written, interval.discards) = (Bytes(number), number);
        }
        for trim in &mut run.trims {
            (trim.start_s, trim.length_s) = (next().0, next().0);
        }
        run.stale = knows().then(|| Bytes(next().1));
        for step in &mut run.steps {
            let (length, number) = next();
            (step.start_s, step.length_s, step.host_bytes) = (next().0, length, Bytes(number));
            step.discards = next().1;
            step.discard_bytes = Bytes(next().1);
            step.erases = knows().then(|| next().1);
            step.host_pages = knows().then(|| next().1);
            step.programmed_pages = knows().then(|| next().1);
            step.discard_busy_s = knows().then(|| next().0);
            step.kernel = step.kernel.filter(|_| knows());
            let ns = Nanos(number);
            step.probe = step.probe.filter(|_| knows()).map(|probe| LatencySummary {
                count: next().1,
                p99_ns: ns,
                max_ns: ns,
                ..probe
            });
        }
    }
}

proptest! {
    /// Whatever the figures are, everything renders, and every figure is a number.
    #[test]
    fn any_figures_render(
        figures in prop::collection::vec((figure(), counter()), 1..60),
        policies in prop::sample::subsequence(PolicyKind::ALL.to_vec(), 1..=5),
        known in prop::collection::vec(prop::bool::weighted(0.8), 13),
        speed in figure(),
        steps in 0..8_usize,
        has_drive in any::<bool>(),
    ) {
        let mut document = fragment(&["ext4", "btrfs"], &policies, 2);
        scramble(&mut document, &figures, &known);
        document.runs.iter_mut().for_each(|run| run.steps.truncate(steps));
        document.clock = Clock::Real { speed };
        document.probe_interval_s = Some(speed);
        if !has_drive {
            document.drive = None;
        }
        for idle_s in [speed, figures[0].0] {
            document.runs[0].idle_s = idle_s;
            let page = html(&document);
            prop_assert!(is_finite(&page), "{}", page);
            let text = text(&document, false);
            prop_assert!(is_finite(&text) && !text.contains("0.0000×"), "{}", text);
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            prop_assert!(longest <= 80, "{}", text);
            prop_assert!(serde_json::to_string(&Summary::of(&document)).is_ok());
        }
    }
}

#[test]
fn a_step_of_no_length_has_no_rate() {
    let mut document = empty();
    let none = PolicyKind::None.into();
    let run = Run {
        fs: "ext4".to_owned(),
        policy: none,
        workload: "fragment".to_owned(),
        idle_s: 0.0,
        run: 1,
        steps: vec![step("write", StepKind::Activity, 0.0, 0.0, Bytes::GIB)],
        trims: Vec::new(),
        timeline: trimtab_core::document::Timeline::default(),
        stale: None,
        pending: None,
        verified: true,
    };
    let empty_run = Run { steps: Vec::new(), policy: PolicyKind::Online.into(), ..run.clone() };
    document.runs = vec![run, empty_run];
    let row = Summary::of(&document).file_systems[0].situations[0].rows[0].clone();
    assert_eq!((row.write_mib_s, row.waited_s.unwrap().median), (None, 0.0));
    assert!(is_finite(&html(&document)) && is_finite(&text(&document, false)));
}
