//! Measures the cost of the flash model: an emulated drive and a bare FUSE file in memory, each behind a loop
//! device, under the same fio jobs, turn by turn. Needs root and fio:
//! `cargo bench -p trimtab-drive --bench throughput`, with the name of a job at the end for that one
//! alone.

mod bare;

use std::path::{Path, PathBuf};
use std::process::Command;

use trimtab_core::Bytes;
use trimtab_core::profile::Profile;
use trimtab_core::stats::median;
use trimtab_drive::{Clock, CreateOptions, Drive, Room};

const SIZE: Bytes = Bytes(2 << 30);
const ROUNDS: usize = 9;
const SECONDS: u32 = 2;

/// fio's name of a job's kind, its block size, and which of fio's results counts.
const JOBS: [(&str, &str, &str); 4] = [
    ("randread", "4k", "read"),
    ("randwrite", "4k", "write"),
    ("write", "1m", "write"),
    ("randtrim", "64k", "trim"),
];

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["drive", "serve", name] => Ok(trimtab_drive::serve(name)?),
        ["drive", "serve", name, "--release", server] => Ok(trimtab_drive::release(name, server.parse()?)?),
        ["bare", target] => Ok(bare::serve(Path::new(target), SIZE)?),
        _ => compare(&std::env::current_exe()?, &arguments),
    }
}

/// Measures the jobs that `wanted` names, or all.
fn compare(executable: &Path, wanted: &[String]) -> Result<(), Failure> {
    let bare = bare::Bare::start(executable)?;
    let drive = Drive::create(&CreateOptions {
        name: format!("bench-{}", std::process::id()),
        profile: Profile::named("ocz-agility-3")?,
        size: SIZE,
        preconditioned: false,
        clock: Clock::Model,
        data: None,
        server: PathBuf::from(executable),
        owned: true,
        room: Room::default(),
    })?;
    let devices = [bare.device(), drive.device()];
    for device in devices {
        fio(device, ("write", "1m", "write"), &["--size=100%"])?;
    }
    println!("requests a second: medians of {ROUNDS} rounds; the ratio is the median of the rounds' ratios");
    println!("{:<10} {:>5} {:>12} {:>12} {:>6}", "job", "block", "bare", "drive", "ratio");
    let mut least = f64::INFINITY;
    let named = |job: &(&str, &str, &str)| wanted.iter().any(|name| name == job.0);
    let all = !JOBS.iter().any(named);
    for job in JOBS.into_iter().filter(|job| all || named(job)) {
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for turn in [round % 2, 1 - round % 2] {
                let time = format!("--runtime={SECONDS}");
                rates[turn].push(fio(devices[turn], job, &["--time_based", &time])?);
            }
        }
        let ratios: Vec<f64> = rates[0].iter().zip(&rates[1]).map(|(bare, drive)| drive / bare).collect();
        let [bare, drive, ratio] =
            [&rates[0], &rates[1], &ratios].map(|samples| median(samples).unwrap_or(f64::NAN));
        println!("{:<10} {:>5} {bare:>12.0} {drive:>12.0} {ratio:>6.3}", job.0, job.1);
        least = least.min(ratio);
    }
    println!("least ratio {least:.3}; the bar is 0.8");
    Ok(drive.remove()?)
}

/// Runs a fio job on `device` and returns its requests a second.
fn fio(device: &Path, (kind, block, result): (&str, &str, &str), more: &[&str]) -> Result<f64, Failure> {
    let output = Command::new("fio")
        .args(["--name=job", "--direct=1", "--ioengine=libaio", "--iodepth=32", "--output-format=json"])
        .args([format!("--filename={}", device.display()), format!("--rw={kind}"), format!("--bs={block}")])
        .args(more)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let results: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    results["jobs"][0][result]["iops"].as_f64().ok_or_else(|| "fio's results lack iops".into())
}
