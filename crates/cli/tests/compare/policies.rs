//! The trade-off shows, the counters agree, and the figures repeat.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::document::{Clock, Engine, Run, StepKind};
use trimtab_core::policy::PolicyKind::{Async, Batched, None, Online, Smart};

use crate::support::{FAST, SMALL, compare, counters_agree, discards, finish, possible, step};

/// Policies, pauses and file systems in virtual time.
#[test]
fn virtual_time_shows_the_trade_off_of_every_file_system() {
    let finished = finish(compare(&SMALL), &["--fs", "ext4,xfs,btrfs", "--idle", "30s", "--runs", "1"]);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    assert_eq!(finished.document.stopped, Option::None);
    assert_eq!(finished.document.runs.len(), 3 * 4);
    assert!(
        matches!(&finished.document.clock, Clock::Virtual { kernel, engine: Engine::Qemu } if kernel.starts_with("6.12"))
    );
    for run in &finished.document.runs {
        assert!(run.verified);
        assert!(counters_agree(run), "{run:?}");
        let pause = step(run, "after-delete");
        assert_eq!(pause.kind, StepKind::Pause);
        assert!((30.0..30.2).contains(&pause.length_s), "{}", pause.length_s);
        let probe = pause.probe.expect("the probe reads in pauses");
        assert!((290..=301).contains(&probe.count), "ten reads a second: {}", probe.count);
    }
    for fs in ["ext4", "xfs", "btrfs"] {
        let [none, online, batched, smart] =
            [None, Online, Batched, Smart].map(|policy| finished.run(fs, policy));
        assert_eq!(discards(none), 0, "{fs}");
        for policy in [online, batched, smart] {
            assert!(discards(policy) > 0, "{fs} {}", policy.policy);
        }
        assert_eq!((batched.trims.len(), smart.trims.len()), (2, 0), "{fs}");
        for (trim, pause) in batched.trims.iter().zip(["start", "after-delete"]) {
            let start = step(batched, pause).start_s;
            assert!((start..start + 0.1).contains(&trim.start_s), "{fs}: {:?}", batched.trims);
        }
        let write = |run| step(run, "write").length_s;
        assert!(write(batched) < 0.8 * write(none), "{fs}: {} and {}", write(batched), write(none));
        // On a btrfs as small as this, the service leaves the only chunk of metadata to its writers.
        let most = if fs == "btrfs" { 1.4 } else { 1.1 };
        assert!(write(smart) < most * write(batched), "{fs}: {} and {}", write(smart), write(batched));
        let erases = |run: &Run| run.steps.iter().map(|step| step.erases.unwrap()).sum::<u64>();
        for policy in [online, batched, smart] {
            assert!(erases(policy) < erases(none), "{fs} {}", policy.policy);
        }
        assert!(none.stale.unwrap() > smart.stale.unwrap(), "{fs}");
    }
    // XFS waits for its discards; ext4 has a worker of its own for them.
    let delete = |fs, policy| step(finished.run(fs, policy), "delete").length_s;
    assert!(delete("xfs", Online) > 20.0 * delete("xfs", None));
    assert!(delete("ext4", Online) < 5.0);
    let page = std::fs::read_to_string(finished.dir.path().join("index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("btrfs"));
    assert!(finished.stdout().contains("online"), "{}", finished.stdout());
}

/// A file system that this machine's kernel may not have.
#[test]
fn f2fs_runs_in_guests() {
    let options =
        ["--fs", "f2fs", "--policy", "online,batched", "--idle", "2m", "--runs", "1", "--size", "256M"];
    let finished = finish(compare(&["--profile", "ocz-agility-3"]), &options);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    let [online, batched] = [Online, Batched].map(|policy| finished.run("f2fs", policy));
    for run in [online, batched] {
        assert!(run.verified && counters_agree(run), "{run:?}");
    }
    // Its thread looks once a minute whether the file system is idle, and discards then.
    assert!(step(online, "after-delete").discards > 0);
    assert_eq!(batched.trims.len(), 2);
    assert!(step(batched, "after-delete").discard_bytes > step(batched, "delete").discard_bytes);
}

/// A process that ends when this is dropped.
struct Running(Child);

/// Keeps a processor busy.
fn busy() -> Running {
    Running(Command::new("sh").args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap())
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Whether two figures differ by at most 1 %, or by less than a drive's single command takes.
fn nearly(one: f64, other: f64) -> bool {
    (one - other).abs() <= 0.01 * one.max(other) + 0.001
}

/// Nearly every time the runs are the same to the nanosecond, and never further apart than this.
#[test]
fn virtual_time_repeats_on_a_busy_machine() {
    let options = ["--policy", "smart", "--idle", "20s", "--runs", "2", "--size", "256M"];
    let with_load = [busy(), busy()];
    let finished = finish(compare(&["--profile", "ocz-agility-3"]), &options);
    drop(with_load);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    let runs = finished.runs("ext4", Smart);
    assert_eq!(runs.len(), 2);
    for (one, other) in runs[0].steps.iter().zip(&runs[1].steps) {
        assert_eq!(one.name, other.name);
        assert!(nearly(one.length_s, other.length_s), "{one:?}, then {other:?}");
        let erases = [one, other].map(|step| step.erases.unwrap() as f64);
        assert!(nearly(erases[0], erases[1]), "{one:?}, then {other:?}");
    }
}

/// The files of the guest of a comparison whose temporary files are in `directory`.
fn image_in(directory: &Path) -> Vec<u8> {
    // One run alone: several begin in any order.
    let options = ["--policy", "smart", "--idle", "0s", "--size", "256M"];
    let mut command = compare(&["--profile", "ocz-agility-3"]);
    command.args(options);
    command.env("TMPDIR", directory).stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running(command.spawn().unwrap());
    let entries = |directory: &Path, start: &str| -> Vec<PathBuf> {
        let all = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
        all.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(start)).collect()
    };
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let rooms =
            entries(directory, "trimtab-guest-").into_iter().flat_map(|guest| entries(&guest, "run-"));
        // The machine makes this file when it starts.
        if let Some(room) = rooms.into_iter().find(|room| room.join("console").exists()) {
            let image = fs::read(room.join("initramfs")).unwrap();
            let id = running.0.id().to_string();
            assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
            running.0.wait().unwrap();
            return image;
        }
        assert!(Instant::now() < deadline, "no guest started");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Longer or other names would change how long a guest looks for files, and so all that follows.
#[test]
fn guests_do_not_depend_on_the_names_of_temporary_directories() {
    let images = ["one", "another"].map(|name| {
        let dir = tempfile::Builder::new().prefix(name).tempdir().unwrap();
        image_in(dir.path())
    });
    assert_eq!(images[0].len(), images[1].len());
    assert!(images[0] == images[1], "the guests differ");
}

#[test]
fn every_policy_runs_on_the_real_clock() {
    if !possible() {
        return;
    }
    let run = |systems, policies, idle| {
        let options = ["--fs", systems, "--policy", policies, "--idle", idle, "--runs", "1"];
        let finished = finish(compare(&FAST), &options);
        assert!(finished.output.status.success(), "{}", finished.stderr());
        finished.document.runs
    };
    let with_pauses = run("ext4,btrfs", "none,online,async,batched,batched:5s,smart", "20s");
    let without = run("ext4", "batched,smart", "0s");
    assert_eq!((with_pauses.len(), without.len()), (5 + 6, 2));
    for run in &[with_pauses, without].concat() {
        assert!(run.verified);
        assert!(counters_agree(run), "{run:?}");
        let named = run.steps.iter().any(|step| step.name == "after-delete");
        assert_eq!(named, run.idle_s > 0.0, "no pause without a length");
        match (run.policy.kind(), run.policy.interval()) {
            (None, _) => assert_eq!(discards(run), 0),
            (Batched, Option::None) => assert_eq!(run.trims.len(), 1 + usize::from(run.idle_s > 0.0)),
            (Batched, Some(_)) => assert!(!run.trims.is_empty()),
            (Smart, _) => assert!(run.pending.is_some()),
            _ => {}
        }
    }
}

#[test]
fn async_is_for_btrfs_and_skipped_elsewhere() {
    if !possible() {
        return;
    }
    let options = ["--fs", "ext4", "--policy", "async"];
    let output = compare(&FAST).args(options).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("only btrfs has"));
    let options = ["--fs", "ext4,btrfs", "--policy", "none,async", "--runs", "1", "--", "true"];
    let finished = finish(compare(&FAST), &options);
    let ran: Vec<_> = finished.document.runs.iter().map(|run| (run.fs.as_str(), run.policy.kind())).collect();
    assert_eq!(ran, [("ext4", None), ("btrfs", None), ("btrfs", Async)]);
}

#[test]
fn drive_that_forgets_discarded_data_costs_no_time() {
    let profile = include_str!("../../../../profiles/samsung-870-evo.toml");
    let zeros = "reads = { value = \"zeros\"";
    assert!(profile.contains(zeros));
    let waited = |reads: &str| -> f64 {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("drive.toml");
        fs::write(&file, profile.replace(zeros, &format!("reads = {{ value = \"{reads}\""))).unwrap();
        let options = ["--profile", file.to_str().unwrap(), "--size", "512M"];
        let finished = finish(compare(&options), &["--policy", "smart", "--idle", "0s", "--runs", "1"]);
        let run = finished.run("ext4", Smart);
        let activities = run.steps.iter().filter(|step| step.kind == StepKind::Activity);
        activities.map(|step| step.length_s).sum()
    };
    let [zeros, old] = ["zeros", "old"].map(waited);
    assert!((old / zeros - 1.0).abs() < 0.005, "{zeros} s and {old} s");
}
