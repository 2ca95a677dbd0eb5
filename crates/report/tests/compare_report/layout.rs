//! The contents of tables, notes and pages.

use trimtab_core::document::{Clock, CompareDocument, Reads, StepKind};
use trimtab_core::policy::PolicyKind;
use trimtab_core::stats::LatencySummary;
use trimtab_core::units::Nanos;
use trimtab_report::compare::{Row, Summary, html, text};
use trimtab_report::{Document, Figures, page};

use crate::fixture::{empty, fragment, without_drive};
use crate::{PLAIN, change, one_line, with_pause, without_pause};

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
    document.runs[0].reads = Some(Reads {
        activities: Some(LatencySummary {
            count: 250,
            p99_ns: Nanos(7_000_000),
            ..LatencySummary::default()
        }),
        pauses: Some(LatencySummary { count: 99, p99_ns: Nanos(9_000_000), ..LatencySummary::default() }),
    });
    assert_eq!(p99(&document), (Some(0.007), Some(0.02)), "that of all reads, where there are enough");
    document.runs[0].reads = None;
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
fn sleeps_of_a_command_are_not_waited_for() {
    let mut document = without_pause(fragment(&["ext4"], &[PolicyKind::None], 1));
    let waited = |document: &CompareDocument| {
        Summary::of(document).file_systems[0].situations[0].rows[0].waited_s.unwrap().median
    };
    let before = waited(&document);
    change(&mut document, PolicyKind::None, |step| {
        if step.kind == StepKind::Activity {
            step.length_s += 60.0;
            step.idle_s = 60.0;
        }
    });
    assert!((waited(&document) - before).abs() < 1e-6);
    assert!(one_line(&document).contains("Waited: the time of the command but for its sleeps"));
    assert!(html(&document).contains("slept in it"));
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
fn interrupted_comparison_names_what_is_missing() {
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
fn uncounted_figures_are_not_shown_as_zero() {
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
fn operations_without_space_are_named() {
    let mut document = fragment(&["btrfs"], &PLAIN, 2);
    assert!(!text(&document, false).contains("no space left"));
    let batched = document.runs.iter_mut().filter(|run| run.policy.kind() == PolicyKind::Batched);
    batched.for_each(|run| run.steps[0].no_space = 2);
    let found = text(&document, false).replace('\n', " ");
    assert!(found.contains("batched: \"no space left\" 4 times while a trim held free space."), "{found}");
    assert!(html(&document).contains("4 times while a trim held free space"));
}

#[test]
fn messages_of_a_command_that_succeeded_are_shown() {
    let mut document = fragment(&["ext4"], &PLAIN, 1);
    document.runs[1].stderr = Some("cp: cannot stat '/usr/include'\u{1b}[2J.".to_owned());
    let found = text(&document, false).replace('\n', " ");
    let wanted = format!("standard error in 1 of {} runs, last: cp: cannot stat", document.runs.len());
    assert!(found.contains(&wanted) && !found.contains('\u{1b}'), "{found}");
    assert!(html(&document).contains("cannot stat"));
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
    let mut document = fragment(&["ext4"], &PolicyKind::ALL, 2);
    document.command.extend(["--", "sh", "-c", "rm *; sync"].map(str::to_owned));
    let page = html(&document);
    let tooltips: Vec<_> =
        page.split("<title>").skip(2).filter_map(|rest| rest.split("</title>").next()).collect();
    for with_unit in [" s, all activities", " block erases", " discards in a run"] {
        assert!(tooltips.iter().any(|note| note.ends_with(with_unit)), "{with_unit}");
    }
    for part in [
        "-- sh -c &#39;rm *; sync&#39;</pre>",
        "<figcaption>Time waited, ext4: less is better; no bar: the policy trimmed nothing, as none</figcaption>",
        "<h2>ext4 without a pause</h2>",
        "<h2>ext4 with a pause of 1 min</h2>",
        "</i>ext4 with a pause of 1 min: batched, run 1 of 2</figcaption>",
        "aria-label=\"ext4 with a pause of 1 min: online, run",
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
fn json_round_trips_to_the_same_page() {
    let document = fragment(&["ext4"], &PLAIN, 2);
    let json = serde_json::to_string(&document).unwrap();
    let read = Document::parse(&json).unwrap();
    assert_eq!(read.text(false), text(&document, false));
    assert_eq!(page(&read.sections()), html(&document));
    let Figures::Compare(figures) = read.figures() else { panic!("it is a comparison") };
    assert_eq!(figures.file_systems[0].situations[1].rows.len(), 3);
    let figures = serde_json::to_value(&figures).unwrap();
    let row = &figures["file_systems"][0]["situations"][1]["rows"][2];
    assert_eq!((&row["policy"], &row["idle"]), (&"batched".into(), &false.into()));
    assert!(row["waited_s"]["median"].as_f64().is_some_and(|seconds| seconds > 29.0));
}

#[test]
fn processor_that_limits_a_policy_is_named() {
    let mut document = without_pause(fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Online], 1));
    let note = "processor is the limit";
    assert!(!one_line(&document).contains(note));
    change(&mut document, PolicyKind::Online, |step| {
        let length = step.length_s;
        step.processor.as_mut().unwrap().others_s = Some(length * 0.6);
    });
    let text = one_line(&document);
    assert!(text.contains("this part of the wait: online 100 %. There the processor is the limit"), "{text}");
    // A real machine's processors also work for other programs.
    document.clock = Clock::Real { speed: 1.0 };
    assert!(!one_line(&document).contains(note));
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
        "unknown schema \"trimtab/compare/9\"; known schemas: trimtab/compare/2, trimtab/bench/1, trimtab/sim/2, \
         trimtab/reproduce/1, trimtab/sweep/1"
    );
    let old = reason("{\"schema\": \"trimtab/compare/1\", \"runs\": []}");
    assert!(old.contains("trimtab/compare/1") && old.ends_with("run the comparison again"), "{old}");
    assert!(!old.contains('\n'));
    let wrong = json.replacen("\"length_s\":", "\"length\":", 1);
    assert!(reason(&wrong).contains(": runs[0].steps[0]: missing field `length_s`"), "{}", reason(&wrong));
}
