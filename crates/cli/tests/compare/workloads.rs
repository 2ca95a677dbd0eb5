//! Each workload, on an emulated drive and on a directory of the user's.

use std::path::Path;

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::{Filling, Run, StepKind};
use trimtab_core::policy::PolicyKind::{Batched, None, Online, Smart};

use crate::support::{FAST, Finished, Mounted, SMALL, compare, discards, finish, possible, sh, step};

#[test]
fn user_tree_is_read_from_a_directory_and_a_tarball() {
    if !possible() {
        return;
    }
    let dir = TempDir::new().unwrap();
    let place = dir.path().display();
    sh(&format!(
        "mkdir -p {place}/src/a/b; cd {place}/src; for i in $(seq 300); do head -c $((i * 100)) /dev/urandom > a/b/$i; \
         done; ln -s b/1 a/link; cd ..; tar -cJf src.tar.xz src"
    ));
    for tree in ["src", "src.tar.xz"] {
        let path = dir.path().join(tree);
        let options = [
            "--fs",
            "ext4,xfs,btrfs",
            "--policy",
            "none,online",
            "--runs",
            "1",
            "--workload",
            "tree",
            "--idle",
            "1s",
        ];
        let finished = finish(compare(&FAST), &[&options[..], &["--tree", path.to_str().unwrap()]].concat());
        assert!(finished.output.status.success(), "{}", finished.stderr());
        assert!(finished.document.workload.summary.contains("300 files"), "{:?}", finished.document.workload);
        let names: Vec<_> = finished.document.runs[0].steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "start",
                "unpack",
                "sync-unpacked",
                "after-unpack",
                "delete",
                "sync-deleted",
                "after-delete",
                "unpack-again",
                "end"
            ]
        );
        for fs in ["ext4", "xfs", "btrfs"] {
            assert!(discards(finished.run(fs, Online)) > 0, "{fs} {tree}");
        }
    }
}

#[test]
fn the_built_in_tree_is_too_large_for_a_small_drive() {
    if !possible() {
        return;
    }
    let finished = finish(compare(&FAST), &["--fs", "ext4", "--workload", "tree", "--runs", "1"]);
    assert_eq!(finished.output.status.code(), Some(1));
    assert!(finished.stderr().contains("use a larger --size"), "{}", finished.stderr());
}

/// Runs a workload under `policies` on every file system, and returns what it left.
fn on_all(workload: &[&str], policies: &str) -> Finished {
    let options = ["--fs", "ext4,xfs,btrfs", "--policy", policies, "--runs", "1", "--workload"];
    let finished = finish(compare(&FAST), &[&options[..], workload].concat());
    assert!(finished.output.status.success(), "{workload:?}: {}", finished.stderr());
    assert!(finished.document.runs.iter().all(|run| run.verified));
    finished
}

/// The names of the steps of a run, each once.
fn names(run: &Run) -> Vec<&str> {
    let mut names = Vec::new();
    for step in &run.steps {
        if !names.contains(&step.name.as_str()) {
            names.push(&step.name);
        }
    }
    names
}

#[test]
fn builds_leave_no_pause_for_a_trim() {
    if !possible() {
        return;
    }
    let finished = on_all(&["builds"], "batched");
    assert_eq!(finished.document.runs.len(), 3, "the default lengths of pauses are no reason to repeat it");
    for fs in ["ext4", "xfs", "btrfs"] {
        let batched = finished.run(fs, Batched);
        assert_eq!(names(batched), ["start", "fill", "clear", "checkout", "compile", "clean", "end"]);
        assert_eq!(batched.trims.len(), 1, "{fs}");
        // On a busy machine the trim of the first pause may end after it, but not after the whole drive was filled.
        let later = ["clear", "checkout", "compile", "clean"].map(|name| step(batched, name).discards);
        assert!(discards(batched) > 0 && later == [0; 4], "{fs}: {later:?}");
    }
}

#[test]
fn database_and_postmark_pause_between_their_parts() {
    if !possible() {
        return;
    }
    let database = on_all(&["database", "--idle", "1s"], "batched");
    let small = "files=500,transactions=2000,sizes=512..10K,subdirectories=3,read_bias=7";
    let postmark = on_all(&["postmark", "--postmark", small, "--idle", "1s"], "batched");
    assert!(postmark.document.workload.summary.contains("transactions=2000,sizes=512..10240"));
    for fs in ["ext4", "xfs", "btrfs"] {
        let run = database.run(fs, Batched);
        assert_eq!(names(run), ["start", "fill", "clear", "ingest", "compact", "after-compaction", "end"]);
        assert!(run.trims.len() > 1 && discards(run) > 0, "{fs}");
        let run = postmark.run(fs, Batched);
        let parts =
            ["start", "fill", "clear", "create", "after-create", "transactions", "after-transactions"];
        assert_eq!(names(run), [&parts[..], &["delete", "end"]].concat());
        assert!(run.trims.len() > 1 && discards(run) > 0, "{fs}");
    }
}

#[test]
fn laptop_has_a_day_of_pauses_and_a_probe_of_its_own() {
    if !possible() {
        return;
    }
    let place = ["--clock", "real", "--speed", "20000", "--profile", "ocz-agility-3", "--size", "512M"];
    let options = ["--policy", "none,batched", "--runs", "1", "--workload", "laptop"];
    let finished = finish(compare(&place), &options);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    assert_eq!((finished.document.runs.len(), finished.document.probe_interval_s), (2, Some(5.0)));
    for run in &finished.document.runs {
        let pauses = run.steps.iter().filter(|step| step.kind == StepKind::Pause);
        assert!(pauses.map(|step| step.length_s).sum::<f64>() >= 86_400.0);
        assert!(run.verified);
    }
    assert!(discards(finished.run("ext4", Batched)) > 0);
}

/// Bytes that the host wrote in a run.
fn written(run: &Run) -> f64 {
    run.steps.iter().map(|step| step.host_bytes.mib()).sum()
}

#[test]
fn large_drive_is_full_before_the_workload_begins() {
    if !possible() {
        return;
    }
    let real =
        ["--clock", "real", "--speed", "50", "--profile", "ocz-agility-3", "--runs", "1", "--idle", "0s"];
    let large = ["--size", "whole", "--room", "128M", "--fs", "ext4,xfs,btrfs", "--policy", "none,batched"];
    let finished = finish(compare(&real), &large);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    let drive = finished.document.drive.as_ref().unwrap();
    assert_eq!(drive.size, Bytes(120_034_123_776), "the capacity that its profile names");
    assert_eq!(finished.document.filling, Some(Filling { percent: 80, room: Bytes(128 << 20) }));
    for fs in ["ext4", "xfs", "btrfs"] {
        let [none, batched] = [None, Batched].map(|policy| finished.run(fs, policy));
        assert!(none.verified && batched.verified, "{fs}");
        // 0.9, 0.8 and 0.9 of the room, and metadata.
        assert!((300.0..500.0).contains(&written(none)), "{fs}: {} MiB", written(none));
        // A fifth of the drive is free and was written before; a trim tells the drive.
        let stale = |run: &Run| run.stale.unwrap().0 as f64 / drive.size.0 as f64;
        assert!((0.14..0.26).contains(&stale(none)), "{fs}: {}", stale(none));
        assert!(stale(batched) < 0.03, "{fs}: {}", stale(batched));
        assert_eq!(batched.trims.len(), 1, "{fs}");
    }
    let text = finished.stdout();
    assert!(text.contains("on an emulated ocz-agility-3 (111.79 GiB, 80 % full)"), "{text}");
    assert!(text.contains("The workload uses 128 MiB at most."), "{text}");
    let options = ["--size", "1G", "--full", "95", "--room", "500M", "--policy", "none"];
    let finished = finish(compare(&real), &options);
    assert_eq!(finished.output.status.code(), Some(1));
    let said = finished.stderr();
    assert!(said.contains("95 % full") && said.contains("choose a smaller --full or --room"), "{said}");
    // The drive has memory for 1 GiB and three times the room.
    let options = ["--size", "24G", "--room", "64M", "--policy", "none", "--"];
    let command = ["dd", "if=/dev/zero", "of={dir}/a", "bs=1M", "count=1500", "conv=fsync", "status=none"];
    let finished = finish(compare(&real), &[&options[..], &command].concat());
    assert_eq!(finished.output.status.code(), Some(1));
    let said = finished.stderr();
    assert!(said.contains("the drive has no memory left") && said.contains("a larger --room"), "{said}");
    let options = ["--size", "1G", "--full", "50", "--room", "200M", "--policy", "none"];
    let finished = finish(compare(&real), &options);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    assert!(written(finished.run("ext4", None)) < 700.0);
}

#[test]
fn writers_divide_a_workload_and_wait_each_for_themselves() {
    if !possible() {
        return;
    }
    let small = "files=500,transactions=1000";
    for workload in [&["fragment"][..], &["aged"], &["postmark", "--postmark", small]] {
        let options = ["--policy", "online", "--runs", "1", "--idle", "1s", "--workload"];
        let arguments = [&options[..], workload].concat();
        let alone = finish(compare(&FAST), &arguments);
        let together = finish(compare(&FAST), &[&arguments[..], &["--writers", "5"]].concat());
        for finished in [&alone, &together] {
            assert!(finished.output.status.success(), "{workload:?}: {}", finished.stderr());
        }
        assert_eq!((alone.document.writers, together.document.writers), (1, 5));
        let [one, five] = [&alone, &together].map(|finished| finished.run("ext4", Online));
        assert!(one.verified && five.verified && discards(five) > 0);
        assert_eq!(names(one), names(five));
        // Directories, and parts that are rounded down to whole MiB.
        let ratio = written(five) / written(one);
        assert!((0.9..1.1).contains(&ratio), "{workload:?}: {ratio}");
        assert!(one.writers_waited_s().is_empty());
        for step in &five.steps {
            let writers = if step.kind == StepKind::Activity { 5 } else { 0 };
            assert_eq!(step.writers_s.len(), writers, "{}", step.name);
            assert!(step.writers_s.iter().all(|span| (0.0..=step.length_s).contains(span)), "{step:?}");
        }
        let text = together.stdout();
        assert!(text.contains("with 5 writers on an emulated"), "{text}");
        assert!(text.contains("Seconds that a single writer waited: online"), "{text}");
        assert!(alone.stdout().contains("Measured with one writer"), "{}", alone.stdout());
    }
}

#[test]
fn writers_with_too_small_a_share_are_refused() {
    if !possible() {
        return;
    }
    let options = ["--policy", "none", "--runs", "1", "--workload", "database", "--writers", "20"];
    let finished = finish(compare(&FAST), &options);
    assert_eq!(finished.output.status.code(), Some(1));
    let said = finished.stderr();
    assert!(said.contains("each of 20 writers needs 48 MiB and has"), "{said}");
}

#[test]
fn sleeps_of_a_command_are_idle_periods_in_virtual_time() {
    let dir = TempDir::new().unwrap();
    // A file by itself, and a directory with a program that has more behind what is loaded, as data.
    let (single, tree) = (dir.path().join("single"), dir.path().join("tree"));
    std::fs::write(&single, "a file of the user's\n").unwrap();
    std::fs::create_dir(&tree).unwrap();
    let program = [std::fs::read("/bin/cat").unwrap(), vec![7; 5000]].concat();
    std::fs::write(tree.join("program"), &program).unwrap();
    let line = format!(
        "test \"$(cat {})\" = \"a file of the user's\" || {{ echo no single file >&2; exit 3; }}; \
         test $(wc -c <{}) = {} || {{ echo a program was shortened >&2; exit 4; }}; \
         dd if=/dev/urandom of={{dir}}/kept bs=1M count=8; dd if=/dev/zero of={{dir}}/gone bs=1M count=64; \
         sync; rm -rf {{dir}}/*; sync; sleep 60; dd if=/dev/zero of={{dir}}/again bs=1M count=8",
        single.display(),
        tree.join("program").display(),
        program.len(),
    );
    let policies = "none,online,batched,smart";
    let [single, tree] = [single, tree].map(|path| path.display().to_string());
    let options = ["--fs", "ext4", "--policy", policies, "--runs", "1", "--size", "256M"];
    let command = ["--guest-file", &single, "--guest-file", &tree, "--", "sh", "-c", &line];
    let finished = finish(compare(&["--profile", "ocz-agility-3"]), &[&options[..], &command].concat());
    assert!(finished.output.status.success(), "{}", finished.stderr());
    let discarded = |policy| step(finished.run("ext4", policy), "exec").discard_bytes.0;
    assert_eq!(discarded(None), 0);
    for policy in [Online, Batched, Smart] {
        assert!(discarded(policy) >= 64 << 20, "{policy}: {}", discarded(policy));
    }
    for run in &finished.document.runs {
        assert!(
            run.stderr.as_ref().is_some_and(|line| line.contains("copied")),
            "dd's last line: {:?}",
            run.stderr
        );
        assert!(run.verified, "the command may delete all that it finds");
        let exec = step(run, "exec");
        assert!(exec.length_s > 60.0, "the sleep is a part of it");
        assert!((59.0..=60.2).contains(&exec.idle_s), "and nobody waits for it: {}", exec.idle_s);
        assert!(run.waited_s() < exec.length_s - 59.0);
    }
}

#[test]
fn a_command_that_fails_ends_the_comparison_with_its_reason() {
    if !possible() {
        return;
    }
    let line = "echo no such luck >&2; exit 7";
    for place in [&SMALL[..], &FAST] {
        let options = ["--fs", "ext4", "--policy", "none", "--runs", "1", "--", "sh", "-c", line];
        let finished = finish(compare(place), &options);
        assert_eq!(finished.output.status.code(), Some(1));
        let said = finished.stderr();
        assert!(said.contains("exit status: 7") && said.contains("no such luck"), "{said}");
        assert!(finished.document.stopped.unwrap().contains("exit status: 7"));
    }
}

#[test]
fn busy_mount_is_waited_for() {
    if !possible() {
        return;
    }
    let line = "(cd {dir} && exec sleep 1) >/dev/null 2>&1 & echo kept > {dir}/kept";
    let options = ["--fs", "ext4", "--policy", "none", "--runs", "1", "--", "sh", "-c", line];
    let finished = finish(compare(&FAST), &options);
    assert!(finished.output.status.success(), "{}", finished.stderr());
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().flatten().all(|entry| entry.file_name() == "lost+found")
}

#[test]
fn directory_of_the_user_is_left_unchanged() {
    if !possible() {
        return;
    }
    let mounted = Mounted::new("rw");
    let on = ["--on", mounted.dir(), "--size", "100M", "--runs", "1", "--idle", "10s", "--probe", "0s"];
    let finished = finish(compare(&on), &[]);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    assert!(is_empty(Path::new(mounted.dir())));
    assert_eq!(finished.document.drive, Option::None);
    let [none, batched, smart] = [None, Batched, Smart].map(|policy| finished.run("ext4", policy));
    for step in &none.steps {
        assert_eq!((step.erases, step.host_pages, step.discards), (Option::None, Option::None, 0));
    }
    for trimmed in [batched, smart] {
        assert!(step(trimmed, "after-delete").kernel.unwrap().discards > 0);
    }
}

#[test]
fn a_directory_mounted_with_discard_has_one_policy() {
    if !possible() {
        return;
    }
    let mounted = Mounted::new("discard");
    let on = ["--on", mounted.dir(), "--size", "100M", "--runs", "1", "--idle", "1s"];
    let finished = finish(compare(&on), &[]);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    assert!(finished.document.runs.iter().all(|run| run.policy.kind() == Online));
    let on = ["--on", mounted.dir(), "--policy", "none"];
    let refused = compare(&on).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("use --policy online") && said.lines().count() == 1, "{said}");
}
