//! Each workload, on an emulated drive and on a directory of the user's.

use std::path::Path;

use tempfile::TempDir;
use trimtab_core::policy::PolicyKind::{Batched, None, Online, Smart};

use crate::support::{Mounted, SMALL, compare, finish, phase, possible, sh};

#[test]
fn a_tree_of_the_users_as_directory_and_tarball() {
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
        let options =
            ["--fs", "ext4,xfs,btrfs", "--policy", "none,online", "--runs", "1", "--workload", "tree"];
        let finished = finish(compare(&SMALL), &[&options[..], &["--tree", path.to_str().unwrap()]].concat());
        assert!(finished.output.status.success(), "{}", finished.stderr());
        assert!(finished.document.workload.summary.contains("300 files"), "{:?}", finished.document.workload);
        let names: Vec<_> =
            finished.document.runs[0].phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["unpack", "sync", "delete", "sync-deleted"]);
        for fs in ["ext4", "xfs", "btrfs"] {
            let online: u64 = finished.run(fs, Online).phases.iter().map(|phase| phase.discards).sum();
            assert!(online > 0, "{fs} {tree}");
        }
    }
}

#[test]
fn the_built_in_tree_is_too_large_for_a_small_drive() {
    if !possible() {
        return;
    }
    let finished = finish(compare(&SMALL), &["--fs", "ext4", "--workload", "tree", "--runs", "1"]);
    assert_eq!(finished.output.status.code(), Some(1));
    assert!(finished.stderr().contains("use a larger --size"), "{}", finished.stderr());
}

#[test]
fn a_command_of_the_users() {
    if !possible() {
        return;
    }
    let line = "dd if=/dev/urandom of={dir}/kept bs=1M count=8; dd if=/dev/zero of={dir}/gone bs=1M count=64; \
                sync; rm {dir}/gone";
    let options = ["--fs", "ext4", "--policy", "none,online,batched", "--runs", "1", "--", "sh", "-c", line];
    let finished = finish(compare(&SMALL), &options);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    assert_eq!(phase(finished.run("ext4", None), "exec").discards, 0);
    assert!(phase(finished.run("ext4", Online), "exec").discard_bytes.0 >= 64 << 20);
    assert!(phase(finished.run("ext4", Batched), "trim").discard_bytes.0 >= 64 << 20);
}

#[test]
fn a_command_that_fails_ends_the_comparison_with_its_reason() {
    if !possible() {
        return;
    }
    let line = "echo no such luck >&2; exit 7";
    let finished = finish(compare(&SMALL), &["--fs", "ext4", "--runs", "1", "--", "sh", "-c", line]);
    assert_eq!(finished.output.status.code(), Some(1));
    let said = finished.stderr();
    assert!(said.contains("exit status: 7") && said.contains("no such luck"), "{said}");
    assert!(finished.document.stopped.unwrap().contains("exit status: 7"));
}

#[test]
fn a_mount_that_somebody_looks_at_is_waited_for() {
    if !possible() {
        return;
    }
    let line = "(cd {dir} && exec sleep 1) >/dev/null 2>&1 & echo kept > {dir}/kept";
    let options = ["--fs", "ext4", "--policy", "none", "--runs", "1", "--", "sh", "-c", line];
    let finished = finish(compare(&SMALL), &options);
    assert!(finished.output.status.success(), "{}", finished.stderr());
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().flatten().all(|entry| entry.file_name() == "lost+found")
}

#[test]
fn a_directory_of_the_users_is_left_as_it_was() {
    if !possible() {
        return;
    }
    let mounted = Mounted::new("rw");
    let finished = finish(compare(&["--on", mounted.dir(), "--size", "100M", "--runs", "1"]), &[]);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    assert!(is_empty(Path::new(mounted.dir())));
    assert_eq!(finished.document.drive, Option::None);
    assert!(finished.stdout().contains("wall time"), "{}", finished.stdout());
    let [none, batched, smart] = [None, Batched, Smart].map(|policy| finished.run("ext4", policy));
    for phase in &none.phases {
        assert_eq!(
            (phase.model_s, phase.erases, phase.waf, phase.discards),
            (Option::None, Option::None, Option::None, 0)
        );
    }
    for trimmed in [batched, smart] {
        assert!(phase(trimmed, "trim").kernel.unwrap().discards > 0);
    }
}

#[test]
fn a_directory_mounted_with_discard_has_one_policy() {
    if !possible() {
        return;
    }
    let mounted = Mounted::new("discard");
    let finished = finish(compare(&["--on", mounted.dir(), "--size", "100M", "--runs", "1"]), &[]);
    assert!(finished.output.status.success(), "{}", finished.stderr());
    assert!(finished.document.runs.iter().all(|run| run.policy == Online));
    let on = ["--on", mounted.dir(), "--policy", "none"];
    let refused = compare(&on).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("ask for --policy online") && said.lines().count() == 1, "{said}");
}
