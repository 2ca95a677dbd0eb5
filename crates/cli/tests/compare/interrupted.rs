//! Interrupted in every phase: results so far are kept and nothing is left behind.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::{FAST, compare, leftovers, possible, saved};

/// Where the comparison of a test that reports to `dir` mounts its file systems.
fn mounts(dir: &TempDir) -> PathBuf {
    dir.path().join("mounts")
}

fn assert_nothing_mounted(dir: &TempDir, delay: u64) {
    let left: Vec<_> = std::fs::read_dir(mounts(dir)).unwrap().flatten().collect();
    assert!(left.is_empty(), "after {delay} ms: {left:?}");
}

/// A comparison whose first run is over and whose second has begun.
fn in_second_run(dir: &TempDir) -> Child {
    let mut command = compare(&FAST);
    std::fs::create_dir(mounts(dir)).unwrap();
    command.env("TMPDIR", mounts(dir));
    command.args(["--fs", "ext4", "--runs", "2", "--idle", "20s", "--report"]).arg(dir.path());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("ext4 online")), "the second run begins");
    thread::spawn(move || lines.for_each(drop));
    child
}

fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

fn settled(id: u32) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !leftovers(id).is_empty() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(50));
    }
    leftovers(id)
}

#[test]
fn interrupt_at_any_moment_leaves_nothing_and_keeps_results() {
    if !possible() {
        return;
    }
    // A run takes a second or a few: these moments fall into all of its phases.
    for (turn, delay) in [0, 100, 300, 600, 900, 1300, 1800, 2500].into_iter().enumerate() {
        let dir = TempDir::new().unwrap();
        let mut child = in_second_run(&dir);
        thread::sleep(Duration::from_millis(delay));
        let (name, code) = [("-INT", 130), ("-TERM", 143)][turn % 2];
        signal(&child, name);
        let started = Instant::now();
        let status = child.wait().unwrap();
        assert!(started.elapsed() < Duration::from_secs(30), "it stops soon");
        assert_eq!(status.code(), Some(code), "after {delay} ms");
        assert_eq!(leftovers(child.id()), Vec::<String>::new(), "after {delay} ms");
        assert_nothing_mounted(&dir, delay);
        let document = saved(&dir.path().join("compare.json")).expect("what was done is kept");
        assert!(!document.runs.is_empty());
        assert_eq!(document.stopped.as_deref(), Some("interrupted"));
        assert!(std::fs::read_to_string(dir.path().join("index.html")).unwrap().contains("ext4"));
    }
}

#[test]
fn a_killed_comparison_leaves_nothing_but_its_results() {
    if !possible() {
        return;
    }
    for delay in [0, 500, 1500] {
        let dir = TempDir::new().unwrap();
        let mut child = in_second_run(&dir);
        thread::sleep(Duration::from_millis(delay));
        signal(&child, "-KILL");
        child.wait().unwrap();
        assert_eq!(settled(child.id()), Vec::<String>::new(), "after {delay} ms");
        assert_nothing_mounted(&dir, delay);
        let document = saved(&dir.path().join("compare.json")).expect("what was done is kept");
        assert!(!document.runs.is_empty() && document.stopped.is_some());
    }
}
