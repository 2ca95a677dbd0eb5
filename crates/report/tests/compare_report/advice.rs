//! The advised policy, and the sentences about the others.

use trimtab_core::document::{Clock, CompareDocument, Run, Step, StepKind};
use trimtab_core::policy::PolicyKind;
use trimtab_core::units::{Bytes, Nanos};
use trimtab_report::compare::{html, text};

use crate::fixture::fragment;
use crate::{PLAIN, advice, as_none, change, one_line, with_pause, without_pause};

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
             erases 66 % fewer blocks; its trims take 2.42 s; smart is equal in waits and erases; with online \
             you wait 2.2× as long as with none (deletes take 69.0 s instead of 1.08 s).",
            "On btrfs without a pause, async is best: you wait 35 % less than with none and the drive erases \
             46 % fewer blocks; smart is equal in waits and erases; with online you wait 2.2× as long as with none \
             (deletes take 89.7 s instead of 1.40 s); batched discards nothing.",
            "On btrfs with a pause of 1 min, batched is best: you wait 49 % less than with none and the drive \
             erases 66 % fewer blocks; its trims take 3.14 s; smart is equal in waits and erases; with online \
             you wait 2.2× as long as with none (deletes take 89.7 s instead of 1.40 s).",
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
fn none_is_not_best_without_a_word_on_what_it_leaves_stale() {
    let mut document = with_pause(fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Batched], 3));
    let none = document.runs[0].steps.clone();
    for run in &mut document.runs {
        let discards = run.policy.kind() == PolicyKind::Batched;
        run.steps.clone_from(&none);
        run.steps[0].discards = u64::from(discards);
        run.stale = Some(Bytes(if discards { 0 } else { 328 << 20 }));
        run.steps.iter_mut().for_each(|step| step.programmed_pages = step.host_pages);
    }
    let equal = "On ext4 with a pause of 1 min, no policy stands out: all count as equal.";
    let note = "In this run the drive of none copied hardly anything; the 328 MiB that it holds as stale data can cost \
                later. A workload that writes more shows how much.";
    assert_eq!(advice(&document), [format!("{equal} {note}")]);
    change(&mut document, PolicyKind::Batched, |step| step.length_s *= 1.5);
    let [slower] = advice(&document).try_into().unwrap();
    assert!(slower.contains("none is best: with batched you wait") && slower.ends_with(note), "{slower}");
    // Its drive copied: the run shows what that costs.
    change(&mut document, PolicyKind::None, |step| {
        step.programmed_pages = step.programmed_pages.map(|pages| pages * 2);
    });
    assert!(!advice(&document)[0].contains("stale"));
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
    assert!(text.contains("batched trimmed nothing. It is the same as none."));
    assert!(text.contains("online discarded nothing."));
}

#[test]
fn comparison_without_none_shows_the_figures_of_every_policy() {
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
    let noise = "On ext4 with a pause of 1 min, no policy stands out: all count as equal.";
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
    assert!(text.contains("One run of each policy, in virtual time: differences below 5 % count as equal."));
    document.clock = Clock::Real { speed: 4.0 };
    let text = one_line(&document);
    assert!(text.contains("no policy stands out"), "{text}");
    assert!(text.contains(
        "its spread is not known; differences below 10 % count as equal, and reads decide nothing."
    ));
}

#[test]
fn runs_that_overlap_are_not_called_equal() {
    let mut document = without_pause(fragment(&["ext4"], &[PolicyKind::None, PolicyKind::Smart], 3));
    document.clock = Clock::Real { speed: 1.0 };
    let of = |document: &CompareDocument, policy| {
        document.runs.iter().position(|run| run.policy.kind() == policy).unwrap()
    };
    let (none, smart) = (of(&document, PolicyKind::None), of(&document, PolicyKind::Smart));
    assert!(advice(&document)[0].contains("smart is best: you wait 33 % less"));
    let slow = document.runs[none].steps.clone();
    for (step, slow) in document.runs[smart].steps.iter_mut().zip(&slow) {
        step.length_s = slow.length_s;
    }
    let [only_erases] = advice(&document).try_into().unwrap();
    assert!(only_erases.contains("smart is best: its runs and those of none overlap"), "{only_erases}");
    document.runs[smart].steps = slow;
    let [nothing] = advice(&document).try_into().unwrap();
    assert!(nothing.contains("no policy stands out: their runs overlap"), "{nothing}");
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

    document.runs.retain(|run| run.run == 1);
    document.clock = Clock::Real { speed: 4.0 };
    let once = &self::advice(&document)[0];
    assert!(
        once.contains("batched is best") && once.ends_with("smart is equal in waits and erases."),
        "{once}"
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
fn policy_that_loses_data_is_reported_and_never_advised() {
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
fn advice_says_for_how_many_writers() {
    let one = without_pause(fragment(&["ext4"], &PLAIN, 1));
    let mut eight = CompareDocument { writers: 8, ..one.clone() };
    let sentence = "Measured with one writer: --writers N runs the workload with N at once.";
    assert!(one_line(&one).contains(sentence));
    let mut old = one.clone();
    old.workload.divisible = false;
    assert!(!one_line(&old).contains("Measured with one writer"), "it is not known of old documents");

    for run in &mut eight.runs {
        let activities = run.steps.iter_mut().filter(|step| step.kind == StepKind::Activity);
        activities
            .for_each(|step| step.writers_s = (1..=8).map(|n| step.length_s * n as f64 / 8.0).collect());
    }
    let [advice] = advice(&eight).try_into().unwrap();
    assert!(advice.starts_with("On ext4 with 8 writers, without a pause, "), "{advice}");
    let text = one_line(&eight);
    assert!(text.starts_with("compare: fragment with 8 writers on an emulated ocz-agility-3"), "{text}");
    for part in [
        "Writers: 8 at once.",
        "A step ends when the last writer",
        "Seconds that a single writer waited: none ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains(sentence));
    let page = html(&eight);
    assert!(page.contains("<dt>Writers</dt><dd>8 at once."), "{page}");
}
