//! A run that ends early keeps what it measured and says what is missing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::BenchDocument;
use trimtab_core::profile::Profile;
use trimtab_drive::Clock;

use crate::support::{Loop, bench, drive, possible, refusal, saved, turn};

/// A full bench of `device` that has begun the step `step`.
fn reached(device: &Path, json: &Path, step: &str) -> Child {
    let arguments =
        ["--sizes", "1M,64K,4K", "--depth", "1", "--time", "30s", "--overwrite-results", "--json"];
    let mut child =
        bench(device, &arguments).arg(json).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(step)), "it gets to {step}");
    thread::spawn(move || lines.for_each(drop));
    child
}

fn signal(id: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
}

#[test]
fn measurements_survive_an_interrupt_at_any_step_and_are_resumed() {
    if !possible() {
        return;
    }
    let _turn = turn();
    let device = Loop::new(Bytes(128 << 20));
    let dir = TempDir::new().unwrap();
    let json = dir.path().join("bench.json");
    for step in ["random", "verify", "interference", "degradation"] {
        let mut child = reached(&device.device, &json, step);
        let started = Instant::now();
        signal(child.id(), "-INT");
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(started.elapsed() < Duration::from_secs(5), "it stops soon");
        let document = saved(&json);
        assert_eq!(document.stopped.as_deref(), Some("interrupted"), "{step}");
        assert!(!document.sweeps.is_empty() && !document.missing.is_empty(), "{step}");
        let known = |why: &str| why == "interrupted" || why.contains("--time");
        assert!(document.missing.iter().all(|missing| known(&missing.why)), "{:?}", document.missing);
    }
    let measured = saved(&json).sweeps;
    let output = bench(&device.device, &["--time", "20s", "--resume"]).arg(&json).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document = saved(&json);
    // On a busy machine, the time may have ended before all sizes were measured; these are added.
    let is_kept = |cell| document.sweeps.contains(cell);
    assert!(measured.iter().all(is_kept), "what was measured is not measured again");
    assert!(document.stopped.is_none() && document.fit.is_some() && !document.degradation.is_empty());
    // Of a complete run, nothing is measured again.
    let complete = serde_json::to_vec(&BenchDocument { missing: Vec::new(), ..document }).unwrap();
    fs::write(&json, &complete).unwrap();
    let (status, reason) = refusal(&bench(&device.device, &["--resume"]).arg(&json).output().unwrap());
    assert_eq!(status, Some(1));
    assert!(reason.contains("the earlier run of ") && reason.contains(" is complete"), "{reason}");
    assert!(fs::read(&json).unwrap() == complete);
}

/// Waits until the drive of a killed server is gone: whoever lists the drives once the process has ended cleans up.
fn clean_up(name: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while trimtab_drive::list().unwrap().iter().any(|listed| listed.name == name) {
        assert!(Instant::now() < deadline, "the server of {name} does not end");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_device_that_disappears_is_named_with_the_command_that_failed() {
    if !possible() {
        return;
    }
    let _turn = turn();
    for step in ["latency: discard sequential", "verify", "interference", "degradation"] {
        let drive = drive(Profile::named("nvme-tlc").unwrap(), Bytes(1 << 30), Clock::Real { speed: 1.0 });
        let dir = TempDir::new().unwrap();
        let json: PathBuf = dir.path().join("bench.json");
        let child = reached(drive.device(), &json, step);
        signal(drive.stats().unwrap().server, "-KILL");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{step}");
        let document = saved(&json);
        let reason = document.stopped.unwrap();
        assert!(reason.starts_with("cannot ") && reason.contains("os error"), "{step}: {reason}");
        assert!(!document.sweeps.is_empty(), "{step}");
        fs::remove_file(&json).unwrap();
        clean_up(drive.name());
    }
}
