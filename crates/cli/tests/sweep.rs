//! `trimtab sweep` as a user runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use serde_json::Value;
use tempfile::TempDir;

/// Two garbage collectors on two seeds of a synthetic workload.
const GRID: &str =
    "workloads = [\"uniform\"]\ngc = [\"greedy\", \"fifo\"]\nspare = [0.1]\nseeds = [1, 2]\nblocks = 128\n";

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
    assert!(fs::metadata(out.join("sweep.parquet")).unwrap().len() > 0);
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
    ] {
        let dir = with_grid(grid);
        let output = sweep(dir.path(), &["grid.toml", "-o", "out"]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) || output.status.code() == Some(2), "{text}");
        assert!(text.contains(reason) && text.trim_end().lines().count() == 1, "{text}");
    }
}
