//! Steady-state write amplification is held to the closed forms within 1 %.

use trimtab_core::profile::GcPolicy;
use trimtab_ftl::Workload;
use trimtab_ftl::synthetic::{SyntheticOptions, SyntheticOutcome};

fn options(workload: Workload, gc: GcPolicy, spare: f64, pages_per_block: u32) -> SyntheticOptions {
    SyntheticOptions {
        workload,
        blocks: 2048,
        pages_per_block,
        spare,
        gc,
        streams: 1,
        drive_writes: 6.0,
        seed: 1,
    }
}

/// Runs it and checks conservation: what was programmed is in erased blocks or the open ones.
fn run(options: &SyntheticOptions) -> SyntheticOutcome {
    let outcome = options.run().unwrap();
    let erased = outcome.erases * u64::from(options.pages_per_block);
    let open = u64::from((options.streams + 2) * options.pages_per_block);
    assert!(erased.abs_diff(outcome.flash_pages) <= open, "{erased} pages erased, {}", outcome.flash_pages);
    outcome
}

fn assert_as_predicted(options: &SyntheticOptions) {
    let outcome = run(options);
    let predicted = outcome.predicted_waf.unwrap();
    let error = outcome.waf / predicted - 1.0;
    assert!(error.abs() < 0.01, "{options:?}: {} is not {predicted}", outcome.waf);
    assert!(outcome.steady, "{options:?}: {:?}", outcome.waf_windows);
    assert!((outcome.effective_spare - options.spare).abs() < 1e-5, "{}", outcome.effective_spare);
}

#[test]
fn uniform_writes_match_the_closed_forms() {
    for gc in [GcPolicy::Greedy, GcPolicy::Fifo, GcPolicy::DChoices(3), GcPolicy::DChoices(10)] {
        for (spare, pages) in [(0.05, 128), (0.127, 256), (0.10, 64), (0.28, 32), (0.5, 256)] {
            assert_as_predicted(&options(Workload::Uniform, gc, spare, pages));
        }
    }
}

/// A victim drawn blindly makes each cleaning a sample of the whole drive, so that the mean needs
/// more of them than the other policies do.
#[test]
fn uniform_writes_cleaned_blindly_match_the_closed_form() {
    for (spare, pages) in [(0.127, 256), (0.10, 64), (0.3, 64)] {
        let long = options(Workload::Uniform, GcPolicy::DChoices(1), spare, pages);
        assert_as_predicted(&SyntheticOptions { drive_writes: 30.0, ..long });
    }
}

#[test]
fn trims_match_the_closed_form() {
    for gc in [GcPolicy::Greedy, GcPolicy::Fifo, GcPolicy::DChoices(4)] {
        for (spare, probability) in [(0.1, 0.05), (0.07, 0.1), (0.127, 0.25)] {
            assert_as_predicted(&options(Workload::Trim { probability }, gc, spare, 64));
        }
    }
}

#[test]
fn hot_and_cold_writes_cleaned_in_turn_match_the_closed_form() {
    for (writes, space) in [(0.9, 0.1), (0.8, 0.2), (0.6, 0.3)] {
        for (spare, pages) in [(0.127, 64), (0.07, 128), (0.28, 32)] {
            let workload = Workload::HotCold { writes, space };
            let options = options(workload, GcPolicy::Fifo, spare, pages);
            assert_as_predicted(&SyntheticOptions { drive_writes: 12.0, ..options });
        }
    }
}

#[test]
fn sequential_writes_copy_nothing() {
    for gc in [GcPolicy::Greedy, GcPolicy::Fifo, GcPolicy::CostBenefit] {
        assert_eq!(run(&options(Workload::Sequential, gc, 0.05, 128)).waf, 1.0, "{gc}");
    }
}

#[test]
fn separate_stream_for_hot_writes_saves_copies() {
    let hot_cold = Workload::HotCold { writes: 0.9, space: 0.1 };
    let together = options(hot_cold, GcPolicy::Greedy, 0.127, 128);
    let apart = SyntheticOptions { streams: 2, ..together.clone() };
    let (together, apart) = (run(&together), run(&apart));
    assert!(apart.waf < 0.98 * together.waf, "{} apart, {} together", apart.waf, together.waf);
}

#[test]
fn cost_benefit_beats_greedy_where_writes_are_hot_and_cold() {
    let hot_cold = Workload::HotCold { writes: 0.9, space: 0.1 };
    let greedy = run(&options(hot_cold, GcPolicy::Greedy, 0.127, 128));
    let cost_benefit = run(&options(hot_cold, GcPolicy::CostBenefit, 0.127, 128));
    assert!(cost_benefit.waf < greedy.waf, "{} against {}", cost_benefit.waf, greedy.waf);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let options = options(Workload::Uniform, GcPolicy::DChoices(3), 0.2, 64);
    let (first, second) = (run(&options), run(&options));
    assert_eq!((first.waf_windows, first.erase_spread), (second.waf_windows, second.erase_spread));
    let other = run(&SyntheticOptions { seed: 2, ..options });
    assert_ne!(other.erases, second.erases);
}

#[test]
fn a_page_takes_at_most_eight_bytes() {
    for pages in [64, 256] {
        let outcome = run(&options(Workload::Uniform, GcPolicy::Greedy, 0.127, pages));
        assert!(outcome.bytes_per_page <= 8.0, "{} at {pages} pages a block", outcome.bytes_per_page);
    }
}

#[test]
fn impossible_models_are_refused_with_the_reason() {
    let good = options(Workload::Uniform, GcPolicy::Greedy, 0.1, 64);
    let refusal = |options: SyntheticOptions| options.run().unwrap_err().to_string();
    for (options, reason) in [
        (SyntheticOptions { spare: 1.0, ..good.clone() }, "a spare factor of 1 is not possible"),
        (SyntheticOptions { spare: f64::NAN, ..good.clone() }, "a spare factor of NaN is not possible"),
        (SyntheticOptions { blocks: 3, ..good.clone() }, "3 erase blocks are too few; it must be 4 or more"),
        (SyntheticOptions { pages_per_block: 0, ..good.clone() }, "must be 1 or more"),
        (SyntheticOptions { drive_writes: 0.0, ..good.clone() }, "0 drive writes are not possible"),
        (
            SyntheticOptions { drive_writes: 1e300, ..good.clone() },
            "drive writes are not possible; it must be a number above 0 and at most 1000000",
        ),
        (SyntheticOptions { streams: 2, ..good.clone() }, "2 streams are not possible with uniform"),
        (SyntheticOptions { blocks: u32::MAX, ..good.clone() }, "take fewer blocks"),
    ] {
        let message = refusal(options);
        assert!(message.contains(reason), "{message}");
    }
}
