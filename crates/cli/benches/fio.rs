//! The discard latencies that `trimtab bench` finds beside those that fio finds, on the same emulated
//! drive in turns: medians at depth 1. Needs root, FUSE and fio.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use trimtab_core::document::BenchDocument;
use trimtab_core::profile::{self, Profile};
use trimtab_core::stats::median;
use trimtab_core::{Bytes, Nanos};
use trimtab_drive::{Clock, CreateOptions, Drive, Room};

const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");
const ROUNDS: usize = 3;
const SIZES: [Bytes; 2] = [Bytes(4 << 10), Bytes(1 << 20)];
/// fio's names of the patterns, and ours.
const PATTERNS: [(&str, &str); 2] = [("trim", "sequential"), ("randtrim", "random")];

fn main() {
    println!("medians of {ROUNDS} rounds, us; the ratio is the median of the rounds' ratios");
    println!(
        "{:24} {:>5} {:>9} {:>6} {:>9} {:>9} {:>6}",
        "profile", "speed", "job", "size", "fio", "bench", "ratio"
    );
    for profile in profile::builtin().expect("built-in profiles are valid") {
        compare(&profile);
    }
}

fn compare(profile: &Profile) {
    let speed = if profile.discard.command.value < Nanos(200_000) { 0.1 } else { 1.0 };
    let drive = Drive::create(&CreateOptions {
        name: format!("fio-{}", std::process::id()),
        profile: profile.clone(),
        size: Bytes::GIB,
        preconditioned: false,
        clock: Clock::Real { speed },
        data: None,
        server: PathBuf::from(TRIMTAB),
        owned: true,
        room: Room::default(),
    })
    .expect("a drive can be created");
    let results = std::env::temp_dir().join(format!("{}.json", drive.name()));
    for (job, pattern) in PATTERNS {
        for size in SIZES {
            let rounds: Vec<_> = (0..ROUNDS)
                .map(|_| (fio(drive.device(), job, size), bench(drive.device(), pattern, size, &results)))
                .collect();
            let of = |figure: fn(&(f64, f64)) -> f64| {
                median(&rounds.iter().map(figure).collect::<Vec<_>>()).expect("there are rounds")
            };
            println!(
                "{:24} {speed:>5} {job:>9} {:>6} {:>9.1} {:>9.1} {:>6.3}",
                profile.name,
                size.to_string().replace(' ', ""),
                of(|round| round.0),
                of(|round| round.1),
                of(|round| round.1 / round.0)
            );
        }
    }
    // It may never have been written.
    let _ = std::fs::remove_file(results);
    drive.remove().expect("the drive can be removed");
}

/// The median latency of fio's discards, in microseconds.
fn fio(device: &Path, job: &str, size: Bytes) -> f64 {
    let output = Command::new("fio")
        .args(["--name=discard", "--ioengine=psync", "--direct=1", "--time_based", "--runtime=1"])
        .args(["--output-format=json", "--percentile_list=50", &format!("--rw={job}")])
        .arg(format!("--bs={}", size.0))
        .arg(format!("--filename={}", device.display()))
        .output();
    let report: serde_json::Value = serde_json::from_slice(&stdout(output)).expect("fio prints JSON");
    let median = &report["jobs"][0]["trim"]["clat_ns"]["percentile"]["50.000000"];
    median.as_f64().expect("fio measured discards") / 1e3
}

/// The median latency that `trimtab bench` finds, in microseconds.
fn bench(device: &Path, pattern: &str, size: Bytes, results: &Path) -> f64 {
    let output = Command::new(TRIMTAB)
        .arg("bench")
        .arg(device)
        .arg("--destroy-data")
        .arg(device)
        .args(["--part", "latency", "--depth", "1", "--time", "2s", "--pattern", pattern])
        .arg(format!("--sizes={}", size.0))
        .arg("--json")
        .arg(results)
        .output();
    stdout(output);
    let json = std::fs::read(results).expect("results are kept");
    let document: BenchDocument = serde_json::from_slice(&json).expect("results are a document");
    document.sweeps[0].latency.p50_us
}

/// Returns the program's output; panics if it failed.
fn stdout(output: std::io::Result<Output>) -> Vec<u8> {
    let output = output.expect("the program is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
