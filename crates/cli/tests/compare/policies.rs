//! The trade-off shows, the counters agree, and the figures repeat.

use trimtab_core::policy::PolicyKind::{Async, Batched, None, Online, Smart};

use crate::support::{Finished, SMALL, compare, finish, phase, possible};

fn write_rate(finished: &Finished, fs: &str, policy: trimtab_core::policy::PolicyKind) -> f64 {
    phase(finished.run(fs, policy), "write").throughput_mib_s.unwrap()
}

#[test]
fn every_file_system_shows_the_trade_off() {
    if !possible() {
        return;
    }
    let finished = finish(compare(&SMALL), &["--fs", "ext4,xfs,btrfs", "--runs", "2"]);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    assert_eq!(finished.document.stopped, Option::None);
    assert_eq!(finished.document.runs.len(), 3 * 4 * 2);
    for run in &finished.document.runs {
        assert!(run.verified);
        assert_eq!(run.counters_agree(), Some(true), "{run:?}");
    }
    for fs in ["ext4", "xfs", "btrfs"] {
        let [none, online, batched, smart] =
            [None, Online, Batched, Smart].map(|policy| finished.run(fs, policy));
        assert_eq!(none.phases.iter().map(|phase| phase.discards).sum::<u64>(), 0, "{fs}");
        let delete = |run| phase(run, "delete").model_s.unwrap();
        assert!(delete(online) > 5.0 * delete(none), "{fs}: online deletes are held up");
        assert!(delete(batched) < 2.0 * delete(none), "{fs}: batched deletes are not");
        assert!(phase(batched, "trim").discards > 0, "{fs}");
        assert!(write_rate(&finished, fs, Online) > 1.2 * write_rate(&finished, fs, None), "{fs}");
        assert!(write_rate(&finished, fs, Batched) > write_rate(&finished, fs, None), "{fs}");
        let erases = |run: &trimtab_core::document::Run| -> u64 {
            run.phases.iter().map(|phase| phase.erases.unwrap()).sum()
        };
        assert!(erases(online) < erases(none), "{fs}");
        assert!(erases(smart) < erases(none), "{fs}");
        assert!(delete(smart) < 2.0 * delete(none), "{fs}: smart deletes are not held up");
        let of = |run| phase(run, "trim").discards;
        assert!((1..of(batched)).contains(&of(smart)), "{fs}: {} and {}", of(smart), of(batched));
        assert!(write_rate(&finished, fs, Smart) > 0.9 * write_rate(&finished, fs, Batched), "{fs}");
    }
    let page = std::fs::read_to_string(finished.dir.path().join("index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("btrfs"));
    assert!(finished.stdout().contains("online"), "{}", finished.stdout());
}

#[test]
fn model_time_repeats_within_five_percent() {
    if !possible() {
        return;
    }
    let finished = finish(compare(&SMALL), &["--fs", "ext4,xfs", "--runs", "3"]);
    for fs in ["ext4", "xfs"] {
        for policy in [None, Online, Batched] {
            // The deletes of the others take some 60 ms of model time, of which a log write more or
            // less is 5 %.
            let slow: &[&str] = if policy == Online { &["delete"] } else { &[] };
            for name in ["fill", "write"].iter().chain(slow) {
                let runs = finished.runs(fs, policy);
                let times: Vec<f64> = runs.iter().map(|run| phase(run, name).model_s.unwrap()).collect();
                let (min, max) = times.iter().fold((f64::MAX, 0.0_f64), |(a, b), t| (a.min(*t), b.max(*t)));
                assert!(max <= 1.05 * min, "{fs} {policy} {name}: {times:?}");
            }
        }
    }
}

#[test]
fn async_is_for_btrfs_and_skipped_elsewhere() {
    if !possible() {
        return;
    }
    let options = ["--fs", "ext4", "--policy", "async"];
    let output = compare(&SMALL).args(options).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("only btrfs has"));
    let options = ["--fs", "ext4,btrfs", "--policy", "none,async", "--runs", "1", "--", "true"];
    let finished = finish(compare(&SMALL), &options);
    let ran: Vec<_> = finished.document.runs.iter().map(|run| (run.fs.as_str(), run.policy)).collect();
    assert_eq!(ran, [("ext4", None), ("btrfs", None), ("btrfs", Async)]);
}
