//! `trimtab sweep` as a user runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

/// Two garbage collectors on two seeds of a synthetic workload.
const GRID: &str =
    "workloads = [\"uniform\"]\ngc = [\"greedy\", \"fifo\"]\nspare = [0.1]\nseeds = [1, 2]\nblocks = 128\n";

const FIO: &str = "fio version 3 iolog\n0 sda add\n0 sda open\n1 sda write 0 4096\n";

fn sweep(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trimtab")).arg("sweep").args(args).current_dir(dir).output().unwrap()
}

fn json(dir: &Path, args: &[&str]) -> Value {
    let output = sweep(dir, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn with_grid(grid: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("grid.toml"), grid).unwrap();
    dir
}

/// The files of cells, with their times.
fn cells(results: &Path) -> Vec<(PathBuf, SystemTime)> {
    let entries = fs::read_dir(results.join("cells")).unwrap();
    let files =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension() == Some("json".as_ref()));
    let mut all: Vec<_> =
        files.map(|path| (path.clone(), fs::metadata(path).unwrap().modified().unwrap())).collect();
    all.sort();
    all
}

#[test]
fn repeated_sweep_computes_damaged_cells_only() {
    let dir = with_grid(GRID);
    let first = json(dir.path(), &["grid.toml", "-o", "out"]);
    assert_eq!((&first["cells"], first["rows"].as_array().map(Vec::len)), (&Value::from(4), Some(4)));
    let out = dir.path().join("out");
    let before = cells(&out);
    assert_eq!(before.len(), 4);
    let table = "sweep.parquet is a Parquet table: report reads the JSON files";
    let refused =
        Command::new(env!("CARGO_BIN_EXE_trimtab")).arg("report").arg(out.join("sweep.parquet")).output();
    assert!(String::from_utf8_lossy(&refused.unwrap().stderr).contains(table));
    fs::write(&before[0].0, "{").unwrap();
    let again = json(dir.path(), &["grid.toml", "-o", "out"]);
    assert_eq!(again["rows"], first["rows"]);
    let after = cells(&out);
    assert_ne!(after[0].1, before[0].1, "the damaged one is computed again");
    assert_eq!(after[1..], before[1..], "the others are not");
}

#[test]
fn shards_together_equal_the_whole() {
    let dir = with_grid(GRID);
    let whole = json(dir.path(), &["grid.toml", "-o", "whole"]);
    for shard in ["1/3", "2/3", "3/3"] {
        assert!(sweep(dir.path(), &["grid.toml", "-o", "parts", "--shard", shard]).status.success());
    }
    let names = |results: &str| -> Vec<_> {
        cells(&dir.path().join(results))
            .iter()
            .map(|(path, _)| path.file_name().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names("parts"), names("whole"));
    assert_eq!(json(dir.path(), &["grid.toml", "-o", "parts"])["rows"], whole["rows"]);
}

#[test]
fn cell_equals_sim_with_the_same_inputs() {
    let dir = with_grid(GRID);
    let document = json(dir.path(), &["grid.toml", "-o", "out"]);
    let row = document["rows"].as_array().unwrap().iter().find(|row| row["cell"]["gc"] == "fifo").unwrap();
    let seed = row["cell"]["seed"].to_string();
    let args = [
        "sim",
        "--workload",
        "uniform",
        "--gc",
        "fifo",
        "--spare",
        "0.1",
        "--blocks",
        "128",
        "--json",
        "--seed",
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_trimtab")).args(args).arg(seed).output().unwrap();
    let alone: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(row["figures"]["waf"], alone["waf"], "{row}\n{alone}");
}

#[test]
fn bad_input_gets_one_clear_line_before_work() {
    for (grid, reason) in [
        ("workloads = [\"uniform\"]\ncolour = 1\n", "colour"),
        ("traces = [\"none.parquet\"]\nprofiles = [\"nvme-tlc\"]\n", "none.parquet"),
        ("workloads = [\"zipf\"]\n", "zipf"),
        ("", "traces"),
        ("traces = [\"fio.log\"]\nprofiles = [\"no-such-drive\"]\n", "no-such-drive"),
        ("workloads = [\"uniform\"]\nspare = [1.5]\n", "grid.toml: spare: "),
        ("workloads = [\"uniform\"]\nblocks = 1\n", "grid.toml: blocks: "),
    ] {
        let dir = with_grid(grid);
        fs::write(dir.path().join("fio.log"), FIO).unwrap();
        let output = sweep(dir.path(), &["grid.toml", "-o", "out"]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) || output.status.code() == Some(2), "{text}");
        assert!(text.contains(reason) && text.trim_end().lines().count() == 1, "{text}");
        assert!(!dir.path().join("out").exists(), "{reason}: before work");
    }
}

#[test]
fn interrupted_sweep_resumes() {
    let grid = GRID.replace("[1, 2]", "[1, 2, 3, 4, 5, 6, 7, 8]");
    let dir = with_grid(&grid);
    let mut child = Command::new(env!("CARGO_BIN_EXE_trimtab"))
        .args(["sweep", "grid.toml", "-o", "out", "--jobs", "1", "--report", "page"])
        .current_dir(dir.path())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let out = dir.path().join("out");
    while !out.join("cells").exists() || cells(&out).len() < 2 {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it was interrupted");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let before = cells(&out);
    assert!((2..16).contains(&before.len()), "{}", before.len());
    let page = dir.path().join("page/index.html");
    assert!(!page.exists(), "it would keep the same command from going on");
    let resumed = json(dir.path(), &["grid.toml", "-o", "out", "--report", "page"]);
    assert!(page.exists());
    let after = cells(&out);
    assert_eq!(after.len(), 16);
    assert!(before.iter().all(|cell| after.contains(cell)), "the finished ones are not computed again");
    assert_eq!(resumed["rows"], json(dir.path(), &["grid.toml", "-o", "whole"])["rows"]);
}

#[test]
fn failed_cells_are_recorded_and_the_others_computed() {
    let dir = with_grid(&format!("traces = [\"fio.log\"]\npolicies = [\"none\"]\n{GRID}"));
    fs::write(dir.path().join("fio.log"), format!("{FIO}rubbish\n")).unwrap();
    let output = sweep(dir.path(), &["grid.toml", "-o", "out", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (failed, done): (Vec<_>, Vec<_>) =
        document["rows"].as_array().unwrap().iter().partition(|row| row["error"].is_string());
    assert_eq!((failed.len(), done.len()), (2, 4));
    let reason = failed[0]["error"].as_str().unwrap();
    assert!(reason.contains("fio.log") && reason.contains("row 5"), "{reason}");
    assert_eq!(cells(&dir.path().join("out")).len(), 6);
}
