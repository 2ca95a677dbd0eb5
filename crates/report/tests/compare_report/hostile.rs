//! Documents with impossible figures and with text that means to do harm.

use proptest::prelude::{Just, any, prop, prop_assert, prop_oneof, proptest};
use proptest::strategy::Strategy;
use trimtab_core::document::{Clock, CompareDocument, Engine, Run, StepKind, Timeline};
use trimtab_core::policy::PolicyKind;
use trimtab_core::stats::LatencySummary;
use trimtab_core::units::{Bytes, Nanos};
use trimtab_report::compare::{Summary, html, text};

use crate::PLAIN;
use crate::fixture::{empty, fragment, step};

#[test]
fn markup_from_outside_is_escaped() {
    let mut document = fragment(&["<script>alert(1)</script>\u{1b}[31m"], &PLAIN, 1);
    let evil = "\"'><script src=//example.org></script>\u{1b}]0;x\u{7}".to_owned();
    document.command.push(evil.clone());
    document.workload.summary = evil.clone();
    document.workload.delete_steps.push(evil.clone());
    document.workload.write_step = Some(evil.clone());
    document.smart_profile = Some(evil.clone());
    document.clock = Clock::Virtual { kernel: evil.clone(), engine: Engine::Qemu };
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
        reads: None,
        steps: vec![step("write", StepKind::Activity, 0.0, 0.0, Bytes::GIB)],
        trims: Vec::new(),
        timeline: Timeline::default(),
        stale: None,
        pending: None,
        stderr: None,
        verified: true,
    };
    let empty_run = Run { steps: Vec::new(), policy: PolicyKind::Online.into(), ..run.clone() };
    document.runs = vec![run, empty_run];
    let row = Summary::of(&document).file_systems[0].situations[0].rows[0].clone();
    assert_eq!((row.write_mib_s, row.waited_s.unwrap().median), (None, 0.0));
    assert!(is_finite(&html(&document)) && is_finite(&text(&document, false)));
}
