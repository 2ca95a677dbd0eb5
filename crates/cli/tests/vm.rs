//! What needs another kernel: Debian's 6.12, which `vm/run` boots.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The exit code of `vm/run` where the machine has not what it takes.
const CANNOT: i32 = 125;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs `vm/run` in the repository's root. Where this machine can't, says why and gives nothing, and
/// fails instead where CI is set.
fn run(arguments: &[&str]) -> Option<Output> {
    let output = Command::new("vm/run").args(arguments).current_dir(repository()).output().unwrap();
    if output.status.code() != Some(CANNOT) {
        return Some(output);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(std::env::var_os("CI").is_none(), "a test of another kernel cannot be skipped in CI: {why}");
    eprintln!("skipped: {why}");
    None
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn a_guest_discards_on_every_kind_of_disk() {
    let disks = ["nvme:64M", "virtio-blk:64M", "virtio-scsi:64M", "ahci:64M"];
    let mut arguments: Vec<_> = disks.into_iter().flat_map(|disk| ["-d", disk]).collect();
    arguments.push("vm/disks");
    let Some(output) = run(&arguments) else { return };
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((stderr.as_str(), output.status.code()), ("to standard error\n", Some(7)), "{stdout}");
    let mut lines = stdout.lines();
    assert!(lines.next().unwrap().starts_with("6.12."), "{stdout}");
    // 8 MiB in blocks of 512 bytes, and nothing.
    assert_eq!(lines.collect::<Vec<_>>(), ["16384 0"; 4]);
}

#[test]
fn the_parsers_are_tested_with_what_the_kernel_says() {
    let dir = TempDir::new().unwrap();
    let Some(output) = run(&["-o", dir.path().to_str().unwrap(), "vm/formats"]) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let kept = repository().join("crates/linux/tests/data/6.12");
    let files = files_below(&kept);
    assert!(!files.is_empty());
    // An event's number is another at each boot.
    let described = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().filter(|line| !line.starts_with("ID: ")).map(str::to_owned).collect::<Vec<_>>()
    };
    for file in files {
        let name = file.strip_prefix(&kept).unwrap();
        assert_eq!(described(&dir.path().join(name)), described(&file), "{}", name.display());
    }
}

#[test]
fn bad_arguments_are_one_clear_line() {
    for (arguments, reason) in [
        (&["-x"][..], "there is no option -x"),
        (&["-d"], "-d needs a value"),
        (&["-d", "floppy", "true"], "no kind of disk 'floppy'"),
        (&["-d", "nvme:much", "true"], "no disk has the size 'much'"),
        (&["-t", "1h", "true"], "'1h' is no number of seconds"),
        (&[], "no program to run"),
        (&["vm/none"], "there is no program vm/none"),
    ] {
        let output = run(arguments).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.starts_with("vm: ") && stderr.contains(reason), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
