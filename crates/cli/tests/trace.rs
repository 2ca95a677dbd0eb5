//! `trimtab trace`, run as a user would.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data").join(name)
}

fn trace(words: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trimtab")).arg("trace").args(words).args(paths).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn info(path: &Path) -> serde_json::Value {
    let out = trace(&["info", "--json"], &[path]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn converted_trace_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (data("trim.iolog"), dir.path().join("trace"));
    let out = trace(&["convert"], &[&from, &to]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let read = "records 84, events 80; skipped: file actions 3, version lines 1";
    assert_eq!(text(&out.stderr), format!("{}: {read}\n", from.display()));
    let (before, after) = (info(&from), info(&to));
    assert_eq!(before["tallies"], after["tallies"]);
    assert_eq!(before["header"], after["header"]);
    assert_eq!(after["tallies"][0]["kind"], "write");
    assert_eq!((&after["tallies"][1]["count"], &after["tallies"][1]["bytes"]), (&40.into(), &327_680.into()));

    let again = trace(&["convert"], &[&from, &to]);
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(text(&again.stderr), format!("trimtab: {} exists; --overwrite replaces it\n", to.display()));
    assert!(trace(&["convert", "--overwrite"], &[&from, &to]).status.success());
    assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing else is left there");
}

#[test]
fn synthetic_frees_are_added_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from.csv"), dir.path().join("to"));
    // Alibaba's format: device, kind, offset, length, microseconds. A file of 64 KiB each second.
    let rows: String = (0..60).map(|n| format!("0,W,{},65536,{}\n", n * 131_072, n * 1_000_000)).collect();
    std::fs::write(&from, rows).unwrap();
    let synth =
        |more: &[&str]| trace(&[&["synth", "--share", "1", "--life", "5s"], more].concat(), &[&from, &to]);
    let out = synth(&[]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("60 files took 3.75 MiB; "), "{}", text(&out.stderr));
    let made = info(&to);
    let gaps = made["header"]["gaps"].to_string();
    assert!(gaps.contains("its frees are synthetic") && gaps.contains("seed 1"), "{gaps}");
    let kinds: Vec<_> = made["tallies"].as_array().unwrap().iter().map(|row| row["kind"].clone()).collect();
    assert_eq!(kinds, ["write", "free"]);
    for (trace, is_synthetic) in [(&from, false), (&to, true)] {
        let results = dir.path().join("results");
        let options = ["--policy", "none", "--size", "1GiB", "--profile", "nvme-tlc", "--json"];
        let mut sweep = Command::new(env!("CARGO_BIN_EXE_trimtab"));
        sweep.arg("sweep").args(options).arg("-o").arg(&results).arg("--trace").arg(trace);
        let swept: serde_json::Value = serde_json::from_slice(&sweep.output().unwrap().stdout).unwrap();
        assert_eq!(swept["rows"][0]["figures"]["synthetic_frees"], is_synthetic, "{swept}");
        std::fs::remove_dir_all(results).unwrap();
    }
    assert!(text(&synth(&[]).stderr).contains("--overwrite replaces it"));
    let again = trace(&["synth", "--share", "1", "--life", "5s"], &[&to, &dir.path().join("more")]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("the trace has frees of its own"), "{}", text(&again.stderr));
    for (share, life) in [("2", "5s"), ("0.5", "0s")] {
        let out = trace(&["synth", "--overwrite", "--share", share, "--life", life], &[&from, &to]);
        assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    }
    assert_eq!(dir.path().read_dir().unwrap().count(), 2, "nothing else is left there");
}

#[test]
fn failed_conversion_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    let in_seconds: String = (0..10).map(|row| format!("0,R,0,99999999999,{row}\n")).collect();
    for (lines, reason) in [
        ("0,R,0,4096,x\n", "row 1: timestamp is \"x\", which is no number, or too large a one"),
        (
            in_seconds.as_str(),
            "row 10: up to here 186.26 GiB were read and written in 1 us, more than any device can",
        ),
    ] {
        std::fs::write(&from, lines).unwrap();
        let out = trace(&["convert"], &[&from, &to]);
        assert_eq!(out.status.code(), Some(1));
        let said = text(&out.stderr);
        assert!(said.starts_with(&format!("trimtab: {}: {reason}", from.display())), "{said}");
        assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    }
}

#[test]
fn conversion_keeps_the_events_before_the_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    std::fs::write(&from, "0,R,0,4096,1577808000000626\n0,R,0,4096\n").unwrap();
    let out = trace(&["convert"], &[&from, &to]);
    assert_eq!(out.status.code(), Some(1));
    let damage = format!("{}: row 2: it has not the 5 fields that a line of this format has", from.display());
    let said = text(&out.stderr);
    let last = format!("trimtab: {} has only what came before the damage: {damage}\n", to.display());
    assert!(said.ends_with(&last), "{said}");
    let kept = info(&to);
    assert_eq!(kept["events"], 1);
    assert_eq!(kept["header"]["gaps"][2], format!("it was read up to its damage: {damage}"));
}

#[test]
fn escape_codes_in_a_trace_are_not_printed() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    std::fs::write(&from, "fio version 3 iolog\n0 /dev/\x1b[2Jsda write 0 4096\n").unwrap();
    for verb in ["info", "head"] {
        let out = trace(&[verb], &[&from]);
        assert!(text(&out.stdout).contains("/dev/\u{fffd}[2Jsda"), "{verb}");
        assert!(!out.stdout.contains(&0x1b), "{verb}");
    }
}

#[test]
fn missing_file_is_named_once() {
    let out = trace(&["info"], &[Path::new("/nonexistent/trace")]);
    assert_eq!(text(&out.stderr), "trimtab: /nonexistent/trace: No such file or directory (os error 2)\n");
}

#[test]
fn head_prints_the_requested_number_of_events() {
    for events in [0, 1, 7] {
        let out = trace(&["head", "-n", &events.to_string()], &[&data("bt.txt")]);
        assert!(out.status.success());
        assert_eq!(text(&out.stdout).lines().count(), events + 1);
    }
}

#[test]
fn closed_pipe_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_trimtab"))
        .args(["trace", "head", "-n", "1000"])
        .arg(data("bt.txt"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn report_names_the_verbs_that_take_a_trace() {
    let trace = data("trim.iolog");
    let out = Command::new(env!("CARGO_BIN_EXE_trimtab")).arg("report").arg(&trace).output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    let verbs = "trimtab trace info says what it holds, trimtab sim replays it";
    let said = format!("trimtab: {} is a trace (fio3): {verbs}\n", trace.display());
    assert_eq!(text(&out.stderr), said);
}
