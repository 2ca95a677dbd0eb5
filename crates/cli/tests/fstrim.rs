//! trimtab called as `fstrim`, beside the fstrim of util-linux 2.41.

mod common;
mod guest;

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

use common::possible;
use guest::{ran, repository};

/// A directory with `fstrim`, a link to this build.
fn program() -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("fstrim");
    symlink(env!("CARGO_BIN_EXE_trimtab"), &path).unwrap();
    // Other users run it, too.
    Command::new("chmod").arg("755").arg(dir.path()).status().unwrap();
    (dir, path)
}

/// The fstrim of util-linux 2.41; `None` if it can't be fetched.
fn reference() -> Option<String> {
    let output = ran("vm/util-linux", &[])?;
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// Checks that no case of `vm/fstrim` differed, and that there were at least `cases`.
fn assert_same(output: &Output, cases: u32) {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && stderr.is_empty(), "{stdout}{stderr}");
    let count = stdout.trim().strip_suffix(" cases").and_then(|count| count.parse::<u32>().ok());
    assert!(count.is_some_and(|count| count >= cases), "{stdout}");
}

#[test]
fn messages_and_exit_codes_are_those_of_util_linux() {
    if !possible() {
        return;
    }
    let Some(reference) = reference() else { return };
    let (_dir, ours) = program();
    let parts = ["arguments", "unsupported", "ext4:lists", "xfs:lists", "btrfs:lists"];
    let command =
        Command::new("vm/fstrim").arg(ours).arg(reference).args(parts).current_dir(repository()).output();
    assert_same(&command.unwrap(), 320);
}

#[test]
fn a_reader_that_is_gone_ends_it_with_sigpipe() {
    let (_dir, ours) = program();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(ours).arg("--version").stdout(writer).output().unwrap();
    assert_eq!((output.status.signal(), output.stderr), (Some(13), Vec::new()));
}

/// Checks that no case of `vm/fitrim` failed, and that all of `cases` were tried.
fn assert_kept(output: &Output, cases: &[&str]) {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && stderr.is_empty(), "{stdout}{stderr}");
    assert_eq!(
        stdout.lines().last(),
        Some(format!("{} cases, 0 failures", cases.len()).as_str()),
        "{stdout}"
    );
}

/// Tries `cases` of `vm/fitrim` on this machine.
fn try_here(cases: &[&str]) {
    let arguments = [&[env!("CARGO_BIN_EXE_trimtab")][..], cases].concat();
    if let Some(output) = ran("vm/fitrim", &arguments) {
        assert_kept(&output, cases);
    }
}

#[test]
fn nothing_in_use_is_discarded_and_everything_free_is() {
    if !possible() {
        return;
    }
    let cases = [
        "ranges:ext4",
        "ranges:xfs",
        "ranges:btrfs",
        "short:ext4",
        "short:xfs",
        "short:btrfs",
        "free:ext4",
        "free:xfs",
        "free:btrfs",
        "writers:ext4",
        "writers:xfs",
        "writers:btrfs",
        "unrecovered:ext4",
        "unrecovered:xfs",
        "unrecovered:btrfs",
    ];
    try_here(&cases);
}

#[test]
fn chunks_of_btrfs_are_kept_and_their_free_space_is_discarded() {
    if !possible() {
        return;
    }
    let cases = [
        "btrfs-moved",
        "btrfs-shrunk",
        "btrfs-replaced",
        "btrfs-seed",
        "btrfs-degraded",
        "btrfs-striped",
        "btrfs-boot",
    ];
    try_here(&cases);
}

#[test]
fn other_file_systems_are_trimmed_as_by_util_linux() {
    let Some(reference) = reference() else { return };
    let (_dir, ours) = program();
    let script = repository().join("vm/fstrim");
    let arguments = [script.to_str().unwrap(), ours.to_str().unwrap(), &reference, "f2fs", "vfat", "exfat"];
    let Some(output) = guest::run(&arguments) else { return };
    assert_same(&output, 21);
}

#[test]
fn devices_of_the_mapper_and_f2fs_are_trimmed_of_free_space_only() {
    let script = repository().join("vm/fitrim");
    let cases = ["thin:ext4", "thin:xfs", "btrfs-aborted", "f2fs"];
    let arguments =
        [&["-t", "600", script.to_str().unwrap(), env!("CARGO_BIN_EXE_trimtab")][..], &cases].concat();
    let Some(output) = guest::run(&arguments) else { return };
    assert_kept(&output, &cases);
}
