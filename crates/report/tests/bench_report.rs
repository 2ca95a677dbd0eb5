//! Benches rendered as a reader gets them.

#[path = "fixture/bench.rs"]
mod fixture;

use proptest::prelude::{prop, prop_assert, proptest};
use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::{DegradationRound, DegradationStep, Estimate, Missing, Pattern};
use trimtab_core::erase::Operation;
use trimtab_core::extent::Extent;
use trimtab_core::profile::DiscardedReads;
use trimtab_core::units::Bytes;
use trimtab_report::bench::{Comparison, Degradation, Summary, section, text};
use trimtab_report::{Document, Figures, ImageError, latency_png, page};

use fixture::{about, bench, cell, empty, lying};

fn html(document: &BenchDocument) -> String {
    page(&[section(document)])
}

fn findings(document: &BenchDocument) -> Vec<String> {
    Summary::of(document).findings
}

/// A bench that was interrupted early.
fn stopped() -> BenchDocument {
    let mut document = BenchDocument { sweeps: bench("Half", 100.0, 3.0).sweeps, ..empty("Half") };
    document.sweeps.truncate(7);
    document.stopped = Some("interrupted".to_owned());
    let what = "latency: discard sequential, depth 32, 2 GiB".to_owned();
    document.missing.push(Missing { what, why: "interrupted before it began".to_owned() });
    document
}

fn one_cell() -> BenchDocument {
    let mut document = empty("One");
    document.sweeps.push(cell(Pattern::Random, 1, Bytes(4096), 30.0));
    document
}

/// Everything awkward, with latencies from 30 µs to 10 s and a model name that fills a line.
fn awkward() -> Vec<BenchDocument> {
    let long = bench(&"A model whose name does not end ".repeat(4), 30.0, 4900.0);
    let mut few_sizes = bench("Few sizes", 10_100.0, 302.0);
    few_sizes.sweeps.retain(|cell| cell.size.0.ilog2() % 4 == 0);
    vec![long, few_sizes, lying(), stopped(), one_cell(), empty("Nothing")]
}

#[test]
fn the_answer_comes_first() {
    let document = bench("Agility", 10_100.0, 302.0);
    assert_eq!(
        findings(&document),
        [
            "A discard costs 10.1 ms plus 302 ms a GiB (wall time). It pays from 1.24 MiB on.",
            "Discarded data reads as zeros; it honours the 4 KiB granularity it advertises.",
            "A discard waits for the commands before it and holds back those after it; discards of 1 MiB at \
             100/s take the p99 of reads to 8.42 ms (39×).",
            "Random writes slow to 0.40× without discards; a full discard brings 98 % of the sequential speed \
             back.",
        ]
    );
    let text = text(&document, false);
    let head = text.lines().take(10).map(str::trim).collect::<Vec<_>>().join(" ");
    assert!(findings(&document).iter().all(|finding| head.contains(finding)), "{head}");
}

#[test]
fn differences_within_noise_are_not_claimed() {
    let mut document = bench("Noisy", 100.0, 3.0);
    let fit = document.fit.as_mut().unwrap();
    fit.per_gib_ms = Estimate { value: 3.0, low: -1.0, high: 7.0 };
    fit.pays_from_bytes = None;
    assert_eq!(
        findings(&document)[0],
        "A discard costs 100 µs whatever its size, at most 7.00 ms a GiB (wall time)."
    );
    let fit = document.fit.as_mut().unwrap();
    fit.command_us = Estimate { value: 1.0, low: -1.0, high: 9.0 };
    fit.per_gib_ms = about(3.0);
    assert_eq!(
        findings(&document)[0],
        "A discard costs 3.00 ms a GiB and at most 9.00 µs a command (wall time)."
    );
}

#[test]
fn drive_that_lies_is_reported_first() {
    let document = lying();
    let shouts = [
        "DATA LOSS: 17 logical blocks outside every discard did not read back as written.",
        "WRONG DATA: 16\u{a0}736 logical blocks read as what was written to another address, which no drive \
         may do.",
        "UNSTABLE DATA: 12 logical blocks read otherwise when read again.",
        "DISCARDS IGNORED: one of every 10 discards is ignored (7 of 64).",
    ];
    assert_eq!(Summary::of(&document).alarms, shouts);
    let told = findings(&document).join(" ");
    for fact in [
        "Its cost changes between 4 KiB and 8 KiB: 240 µs where the smaller sizes foretell 80.0 µs; there is another \
         cliff.",
        "reads as another address's data, WHICH IS A FAULT",
        "discards below 64 KiB do nothing, although 512 B is advertised",
    ] {
        assert!(told.contains(fact), "{told}");
    }
    let text = text(&document, false).replace('\n', " ");
    assert!(text.find(shouts[0]).unwrap() < text.find("A discard costs").unwrap(), "{text}");
    assert!(html(&document).contains("<p class=\"alarm\">DATA LOSS"));
}

#[test]
fn a_drive_that_ignores_all_discards_is_found_out() {
    let mut document = bench("Deaf", 50.0, 0.1);
    document.verify.as_mut().unwrap().reads = None;
    assert_eq!(
        Summary::of(&document).alarms,
        ["NO DISCARD WAS SEEN TO WORK. All discarded data reads as before: the drive returns old data, or \
          ignores discards."]
    );
    let text = Comparison::of(&[document.clone(), bench("Sound", 50.0, 0.1)]).unwrap().text(false);
    let line = text.lines().find(|line| line.starts_with("discards ignored")).unwrap();
    assert!(line.contains("all, it seems") && line.contains("none"), "{line}");

    document.verify.as_mut().unwrap().areas = 0;
    assert!(Summary::of(&document).alarms.is_empty());
    let text = self::text(&document, false).replace("\n  ", " ");
    assert!(text.contains("is not known: no area fit into the range"), "{text}");
    assert!(!text.contains("reads as before"), "{text}");
}

#[test]
fn stable_data_is_distinguished_from_unstable() {
    let mut document = bench("Ones", 50.0, 0.1);
    let verify = document.verify.as_mut().unwrap();
    verify.reads = Some(DiscardedReads::Garbage);
    assert!(findings(&document)[1].starts_with("Discarded data reads as data that was never written there;"));
    assert!(Summary::of(&document).alarms.is_empty());
    document.verify.as_mut().unwrap().readings[1].unstable = 5;
    assert!(findings(&document)[1].starts_with("Discarded data reads as something else at every read;"));
    let alarms = Summary::of(&document).alarms;
    assert_eq!(alarms, ["UNSTABLE DATA: 5 logical blocks read otherwise when read again."]);
}

#[test]
fn only_a_steady_state_is_called_steady() {
    let sound = bench("Sound", 50.0, 0.1);
    let mut too_few = sound.clone();
    too_few.plan.range = Extent::at(Bytes::ZERO, Bytes(1 << 40));
    let mut falling = sound.clone();
    let overwrites = |round: &&mut DegradationRound| round.step == DegradationStep::Overwrite;
    for (nth, round) in (1..).zip(falling.degradation.iter_mut().filter(overwrites)) {
        round.mib_s = 1000.0 / f64::from(nth * nth);
    }
    let told = |document: &BenchDocument| {
        let text = text(document, false);
        let table = text.contains("random 4 KiB, steady without discards");
        assert_eq!(text.contains("random 4 KiB, at the end, not steady yet"), !table, "{text}");
        assert_eq!(findings(document).last().unwrap().contains("discards, not steady yet;"), !table);
        let across = Comparison::of(&[document.clone(), document.clone()]).unwrap().text(false);
        assert_eq!(across.contains("\nsteady MiB/s"), table, "{across}");
        assert_eq!(across.contains("\nnot steady yet"), !table, "{across}");
        table
    };
    assert_eq!([told(&sound), told(&too_few), told(&falling)], [true, false, false]);
}

#[test]
fn percentiles_need_enough_commands() {
    let mut document = bench("Few", 50.0, 0.1);
    document.interference.truncate(1);
    let cell = &mut document.interference[0];
    for (n, shown) in [(99, 1), (100, 2), (999, 2), (1000, 3)] {
        (cell.reads.n, cell.writes.n) = (n, n);
        let text = text(&BenchDocument { interference: vec![cell.clone()], ..empty("Few") }, false);
        let line = text.lines().find(|line| line.starts_with("alone")).unwrap();
        assert_eq!(line.matches("µs").count(), shown, "{n}: {text}");
    }
}

#[test]
fn interrupted_bench_names_what_is_missing() {
    let document = stopped();
    let text = text(&document, false);
    for rendered in [&text, &html(&document)] {
        assert!(
            rendered.contains("STOPPED EARLY: interrupted. One part of the plan is missing."),
            "{rendered}"
        );
        assert!(rendered.contains("depth 32, 2 GiB: interrupted before it began"), "{rendered}");
    }
    assert!(text.contains("A discard of 32 MiB takes 194 µs, one of 2 GiB takes 6.10 ms"), "{text}");
    assert!(self::text(&empty("Nothing"), false).contains("Nothing was measured to the end."));
}

#[test]
fn the_kernel_s_marks_stand_beside_the_figures() {
    let text = text(&bench("Agility", 10_100.0, 302.0), false);
    let marked: Vec<_> = text.lines().filter(|line| line.ends_with(" split")).collect();
    assert!(marked.iter().all(|line| line.starts_with("2 GiB")) && marked.len() == 7, "{marked:?}");
    assert!(!self::text(&one_cell(), false).contains("kernel"));
}

#[test]
fn degradation_is_weighed_by_time() {
    let mut document = bench("Agility", 1.0, 1.0);
    let rounds = &mut document.degradation;
    rounds.truncate(2);
    (rounds[0].bytes, rounds[0].wall_s) = (Bytes(300 << 20), 1.0);
    (rounds[1].bytes, rounds[1].wall_s) = (Bytes(100 << 20), 3.0);
    let figures = Degradation::of(&document).unwrap();
    assert_eq!(figures.fill_mib_s, Some(100.0));
    assert_eq!((figures.steady_mib_s, figures.slowed(), figures.recovered()), (None, None, None));
    assert_eq!(Degradation::of(&empty("Nothing")), None);
}

#[test]
fn drives_stand_beside_each_other() {
    let mut other = one_cell();
    other.sweeps[0].operation = Operation::Zeroout;
    let documents = [bench("Slow", 10_000.0, 300.0), bench("Fast", 100.0, 3.0), other, lying()];
    let comparison = Comparison::of(&documents).unwrap();
    let text = comparison.text(false);
    let line =
        |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(line("A: Slow"), "A: Slow (/dev/sdx, 64 GiB), measured 2026-11-21 20:00");
    assert!(line("D: DATA LOSS").contains("17 logical blocks"));
    let joined = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let fastest = "A discard of 512 B (sequential, depth 1) is fastest on D with 60.0 µs and slowest on A with \
                   10.0 ms (167×).";
    assert!(joined.contains(fastest), "{text}");
    assert!(joined.contains("Without such a measurement: C."), "{text}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(line("512 B ")),
        ["512", "B", "10.0", "ms", "100", "µs", "0.0100×", "60.0", "µs", "0.0060×"]
    );
    assert_eq!(words(line("granularity")), ["granularity", "4", "KiB", "4", "KiB", "–", "64", "KiB"]);
    assert!(line("reads, 1 MiB at 100/s").contains("39×"), "{text}");
    assert!(Comparison::of(&documents[..1]).is_none());

    let page = page(&[comparison.section()]);
    assert_eq!(
        page.matches("<polyline class=\"line ").count(),
        2 * 3,
        "a line and a legend for each of three"
    );
    assert!(page.contains("DATA LOSS") && page.contains("<td class=\"worse\">64 KiB</td>"));
}

#[test]
fn drives_without_a_size_in_common_are_not_ranked() {
    let mut small = one_cell();
    small.sweeps[0].pattern = Pattern::Sequential;
    let mut large = small.clone();
    large.sweeps[0].size = Bytes::MIB;
    let documents = [small, large];
    let text = Comparison::of(&documents).unwrap().text(false);
    assert!(text.contains("No two drives were measured at the same sizes in the same way."), "{text}");
}

#[test]
fn the_pattern_that_most_drives_share_is_compared() {
    let other = |operation, pattern| {
        let mut document = one_cell();
        (document.sweeps[0].operation, document.sweeps[0].pattern) = (operation, pattern);
        document
    };
    let documents = [bench("All", 50.0, 1.0), one_cell(), other(Operation::Zeroout, Pattern::Sequential)];
    let text = Comparison::of(&documents).unwrap().text(false);
    assert!(text.contains("Median latency: discard, random, depth 1"), "{text}");
}

#[test]
fn all_text_fits_eighty_columns() {
    let documents = awkward();
    let several = (2..=6).map(|count| Comparison::of(&documents[..count]).unwrap().text(false));
    for text in documents.iter().map(|document| text(document, false)).chain(several) {
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= 80, "{text}");
        assert!(text.to_lowercase().contains("wall time") && !text.contains('\u{1b}'), "{text}");
    }
}

#[test]
fn markup_from_outside_is_escaped() {
    let evil = "\"'><script src=//example.org></script>\u{1b}]0;x\u{7}".to_owned();
    let mut document = lying();
    document.command.push(evil.clone());
    document.device.model = evil.clone();
    document.stopped = Some(evil.clone());
    document.missing.push(Missing { what: evil.clone(), why: evil.clone() });
    let verify = document.verify.as_mut().unwrap();
    verify.readings[0].when = evil.clone();
    verify.granularity.honoured = None;
    verify.granularity.reason = Some(evil.clone());
    document.fit.as_mut().unwrap().pays_note = evil;
    let documents = [document.clone(), document];
    let comparison = Comparison::of(&documents).unwrap();
    for page in [html(&documents[0]), page(&[comparison.section()])] {
        assert!(!page.contains("<script") && !page.contains('\u{1b}'));
    }
    for text in [text(&documents[0], false), comparison.text(false)] {
        assert!(!text.contains(['\u{1b}', '\u{7}']));
    }
}

#[test]
fn json_round_trips_to_the_same_page() {
    for document in awkward() {
        let read = Document::parse(&serde_json::to_string(&document).unwrap()).unwrap();
        assert_eq!(read.text(false), text(&document, false));
        assert_eq!(page(&read.sections()), html(&document));
        let Figures::Bench(figures) = read.figures() else { panic!("it is a bench") };
        assert_eq!(figures.findings, findings(&document));
    }
}

#[test]
fn the_latency_chart_is_an_image_too() {
    let documents: Vec<_> =
        awkward().into_iter().map(|document| Document::Bench(Box::new(document))).collect();
    match latency_png(&documents) {
        Ok(png) => {
            assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
            let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
            assert_eq!(side(16), 1400);
            assert!((800..1200).contains(&side(20)), "{}", side(20));
        }
        Err(ImageError::NoFont) if std::env::var_os("CI").is_none() => {
            eprintln!("skipped: no font is installed (package fonts-dejavu-core)");
        }
        Err(error) => panic!("{error}"),
    }
    assert!(matches!(latency_png(&[]), Err(ImageError::NoBench)));
    assert!(matches!(latency_png(&documents[5..]), Err(ImageError::NoLatency)));
}

proptest! {
    /// Whatever the figures are, everything renders, and every length in a chart is a number.
    #[test]
    fn any_figures_render(figures in prop::collection::vec((0.0..1.0_f64, -12..12_i32), 1..40)) {
        let mut document = lying();
        let mut figures = figures.iter().cycle().map(|(part, power)| (part - 0.2).max(0.0) * 10_f64.powi(*power));
        let mut next = || figures.next().unwrap_or(0.0);
        for cell in &mut document.sweeps {
            (cell.latency.p50_us, cell.latency.p99_us, cell.mib_s) = (next(), next(), next());
        }
        for cell in &mut document.interference {
            (cell.reads.p99_us, cell.writes.p99_us, cell.writes.p999_us) = (next(), next(), next());
        }
        for round in &mut document.degradation {
            (round.mib_s, round.wall_s) = (next(), next());
        }
        let fit = document.fit.as_mut().unwrap();
        fit.per_gib_ms = Estimate { value: next() - 1.0, low: -1.0, high: next() };
        fit.command_us = Estimate { value: next(), low: next(), high: next() };
        let documents = [document.clone(), document];
        let comparison = Comparison::of(&documents).unwrap();
        let page = page(&[comparison.section(), section(&documents[0])]);
        prop_assert!(!page.contains("NaN") && !page.contains("inf,") && !page.contains("\"inf"), "{}", page);
        prop_assert!(!text(&documents[0], true).contains("NaN"));
        prop_assert!(!comparison.text(true).contains("NaN"));
    }
}
