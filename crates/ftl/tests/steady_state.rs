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
    println!(
        "{} {} S={} Np={}: {:.4} {predicted:.4} {:+.2} %",
        options.workload,
        options.gc,
        options.spare,
        options.pages_per_block,
        outcome.waf,
        error * 100.0
    );
    assert!(error.abs() < 0.01, "{options:?}: {} is not {predicted}", outcome.waf);
    assert!(outcome.steady, "{options:?}: {:?}", outcome.waf_windows);
}

#[test]
fn uniform_writes() {
    for gc in [
        GcPolicy::Greedy,
        GcPolicy::Fifo,
        GcPolicy::DChoices(1),
        GcPolicy::DChoices(3),
        GcPolicy::DChoices(10),
    ] {
        for (spare, pages) in [(0.05, 128), (0.127, 256), (0.10, 64), (0.28, 32), (0.5, 256)] {
            assert_as_predicted(&options(Workload::Uniform, gc, spare, pages));
        }
    }
}

#[test]
fn trims() {
    for gc in [GcPolicy::Greedy, GcPolicy::Fifo, GcPolicy::DChoices(4)] {
        for (spare, probability) in [(0.1, 0.05), (0.07, 0.1), (0.127, 0.25)] {
            assert_as_predicted(&options(Workload::Trim { probability }, gc, spare, 64));
        }
    }
}
