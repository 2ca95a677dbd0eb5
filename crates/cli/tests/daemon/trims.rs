//! Freed extents are trimmed, and the status and metrics show it.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::fs::OFlags;
use trimtab_core::aligned::Aligned;
use trimtab_core::document::StatusDocument;
use trimtab_core::document::status::{FileSystemStatus, State};
use trimtab_core::{Bytes, Extent};
use trimtab_keeper::service::control::Control;

use crate::support::{Daemon, TRIMTAB, Volume, eager, patient, possible, smart, wait_until, weekly};

const FILE: Bytes = Bytes(64 << 20);

fn freed_extents_are_trimmed(fstype: &str) {
    if !possible() {
        return;
    }
    let volume = Volume::mounted(fstype);
    volume.write("stays", Bytes::MIB);
    volume.write("goes", FILE);
    let decisions = tempfile::tempdir().unwrap();
    let daemon = Daemon::start_with(&eager(&volume), |command| {
        command.arg("--decisions").arg(decisions.path());
    });
    let is_idle = |fs: &FileSystemStatus| fs.state == State::Idle && fs.pending == Bytes::ZERO;
    daemon.wait_for(&volume, "all that was free is trimmed", is_idle);
    let before = (daemon.status_of(&volume).unwrap(), volume.counters());
    volume.delete("goes");
    let trimmed = |fs: &FileSystemStatus| fs.trimmed - before.0.trimmed;
    daemon.wait_for(&volume, "the file is trimmed", |fs| trimmed(fs) >= FILE && is_idle(fs));
    let after = daemon.status_of(&volume).unwrap();
    let discarded = volume.counters().discard_bytes - before.1.discard_bytes;
    assert_eq!(trimmed(&after), discarded, "what the device counted");
    assert!(
        after.last_trim.is_some() && after.discards > before.0.discards && after.trim_s > before.0.trim_s
    );
    assert_eq!((after.policy.as_str(), after.oldest_s, after.max_age_s), ("smart", None, Some(1.0)));
    // Trimmed extents must not count as freed, or the service would never become idle.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(is_idle(&daemon.status_of(&volume).unwrap()));
    assert_eq!(volume.counters().discard_bytes - before.1.discard_bytes, discarded);
    drop(daemon);
    let name = format!("{}-1.jsonl", volume.target.display().to_string().trim_matches('/').replace('/', "-"));
    decisions_are_made_again(&decisions.path().join(name.replace('.', "-").replace("-jsonl", ".jsonl")));
    let expected: Vec<u8> = (0..Bytes::MIB.0).map(|at| (at ^ (at >> 8)) as u8).collect();
    assert!(std::fs::read(volume.target.join("stays")).unwrap() == expected);
}

/// Replays a log of decisions, which holds trims.
fn decisions_are_made_again(log: &Path) {
    let output = Command::new(TRIMTAB).arg("sim").arg("--decisions").arg(log).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{text}{errors}");
    assert!(text.contains(": trims ") && text.ends_with(" of them trims, as logged\n"), "{text}");
}

#[test]
fn ext4_freed_extents_are_trimmed() {
    freed_extents_are_trimmed("ext4");
}

#[test]
fn xfs_freed_extents_are_trimmed() {
    freed_extents_are_trimmed("xfs");
}

#[test]
fn btrfs_freed_extents_are_trimmed() {
    freed_extents_are_trimmed("btrfs");
}

fn extents_that_files_took_are_no_longer_pending(fstype: &str) {
    const LARGE: Bytes = Bytes(192 << 20);
    if !possible() {
        return;
    }
    let volume = Volume::mounted(fstype);
    volume.write("goes", LARGE);
    // Nothing is trimmed while others read.
    let reading = AtomicBool::new(true);
    thread::scope(|scope| {
        scope.spawn(|| read_until(&volume.device, &reading));
        let told = std::panic::catch_unwind(|| {
            let daemon = Daemon::start(&(smart(&volume) + "idle_only = true\n"));
            let free = || {
                let stat = rustix::fs::statvfs(&volume.target).unwrap();
                Bytes(stat.f_bfree * stat.f_frsize)
            };
            let before = free();
            volume.delete("goes");
            // XFS frees in the background.
            wait_until("the file's space is free", || free() >= before + LARGE);
            daemon.wait_for(&volume, "it is pending", |fs| fs.pending >= LARGE);
            volume.write("takes", Bytes(free().0 - LARGE.0 / 2));
            // XFS keeps some of it for itself.
            let left = free() + Bytes(40 << 20);
            assert!(left < LARGE, "{left}");
            daemon.wait_for(&volume, "no more is pending than is free", |fs| fs.pending <= left);
        });
        reading.store(false, Ordering::Relaxed);
        told.unwrap();
    });
}

/// Reads the start of `device` again and again, past the page cache.
fn read_until(device: &Path, reading: &AtomicBool) {
    let flags = OFlags::RDONLY | OFlags::DIRECT;
    let device = rustix::fs::open(device, flags, rustix::fs::Mode::empty()).unwrap();
    let mut buffer = Aligned::zeroed(4096);
    while reading.load(Ordering::Relaxed) {
        rustix::io::pread(&device, &mut buffer[..], 0).unwrap();
    }
}

#[test]
fn ext4_extents_that_files_took_are_no_longer_pending() {
    extents_that_files_took_are_no_longer_pending("ext4");
}

#[test]
fn xfs_extents_that_files_took_are_no_longer_pending() {
    extents_that_files_took_are_no_longer_pending("xfs");
}

#[test]
fn batched_policy_trims_all_free_space() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("ext4");
    let daemon = Daemon::start(&weekly(&volume));
    let fs = || daemon.status_of(&volume).unwrap();
    daemon.wait_for(&volume, "it is trimmed", |fs| fs.state == State::Idle && fs.trimmed > Bytes(256 << 20));
    assert_eq!((fs().policy.as_str(), fs().max_age_s), ("batched:1w", None));
}

#[test]
fn leased_extents_become_pending_again() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("xfs");
    let dir = tempfile::TempDir::new().unwrap();
    let daemon = Daemon::start(&patient(&volume, dir.path()));
    daemon.wait_for_first_trims(&volume);
    let fs = || daemon.status_of(&volume).unwrap();
    let freed = volume.fray();
    // XFS reports some frees only after it commits; trims of the others end before.
    daemon.wait_for(&volume, "small pieces are pending", |fs| {
        fs.state == State::Waiting && fs.pending >= freed && fs.pending < Bytes::MIB
    });
    let pending = fs().pending;

    let mut control = Control::connect(&daemon.run()).unwrap();
    let taken = control.take_pending(&volume.target).unwrap();
    assert_eq!(taken.iter().map(|extent| extent.len()).sum::<Bytes>(), pending);
    assert_eq!((fs().state, fs().pending), (State::Trimming, Bytes::ZERO));
    let refused = Control::connect(&daemon.run()).unwrap().take_pending(&volume.target).unwrap_err();
    assert!(refused.to_string().contains("another trim of it is in progress"), "{refused}");
    // The connection ends without giving anything back.
    drop(control);
    daemon.wait_for(&volume, "all is pending again", |fs| fs.pending == pending);

    let mut control = Control::connect(&daemon.run()).unwrap();
    let taken = control.take_pending(&volume.target).unwrap();
    control.give_back(taken[..1].iter().copied()).unwrap();
    assert_eq!(fs().pending, taken[0].len());
    drop(control);
    let refused = Control::connect(&daemon.run()).unwrap().take_pending(dir.path()).unwrap_err();
    assert!(refused.to_string().contains("no file system on a block device is mounted there"), "{refused}");
}

#[test]
fn extents_skipped_by_a_trim_stay_pending() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("xfs");
    let dir = tempfile::TempDir::new().unwrap();
    let daemon = Daemon::start(&patient(&volume, dir.path()));
    daemon.wait_for_first_trims(&volume);
    let pending = || daemon.status_of(&volume).unwrap().pending;
    let freed = volume.fray();
    daemon.wait_for(&volume, "small pieces are pending", |fs| fs.pending >= freed && fs.pending < Bytes::MIB);
    // Makes the whole device pending, including space in use.
    let mut control = Control::connect(&daemon.run()).unwrap();
    control.take_pending(&volume.target).unwrap();
    control.give_back([Extent::at(Bytes::ZERO, volume.block().size().unwrap())]).unwrap();
    drop(control);
    let mut trim = Command::new(TRIMTAB);
    trim.args(["trim", "-m", "1M", "--run"]).arg(daemon.run()).arg(&volume.target);
    let output = trim.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!((freed..Bytes(2 << 20)).contains(&pending()), "{} of {freed}", pending());
}

#[test]
fn status_is_shown_and_metrics_served() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("ext4");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let metrics = format!("[metrics]\naddress = \"127.0.0.1:{port}\"\n");
    let daemon = Daemon::start(&(smart(&volume) + &metrics));
    let status = |arguments: &[&str]| {
        let output =
            Command::new(TRIMTAB).arg("status").arg("--run").arg(daemon.run()).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success() && output.stderr.is_empty());
        String::from_utf8(output.stdout).unwrap()
    };
    let mount = volume.target.display().to_string();
    let line = |text: &str| text.lines().find(|line| line.starts_with(&mount)).map(str::to_owned);
    let shown = line(&status(&[])).unwrap();
    assert!(shown.contains("ext4") && shown.contains("smart"), "{shown}");
    let document: StatusDocument = serde_json::from_str(&status(&["--json"])).unwrap();
    assert_eq!((document.schema.as_str(), document.pid), ("trimtab/status/2", daemon.pid()));

    let ask = |request: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4;"), "{head}");
    assert!(body.ends_with('\n'));
    let labels = format!("mountpoint=\"{mount}\",device=\"{}\",fstype=\"ext4\"", volume.device.display());
    for name in [
        "pending_bytes",
        "pending_oldest_age_seconds",
        "discarded_bytes_total",
        "discards_total",
        "trim_seconds_total",
        "latency_added_seconds",
    ] {
        assert!(body.contains(&format!("trimtab_{name}{{{labels}}} ")), "{name} is not in {body}");
    }
    assert!(body.contains("trimtab_lost_events_total 0\n"), "{body}");
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(ask("\r\n\r\n").starts_with("HTTP/1.1 400 "));
    // Those who ask for nothing keep nobody else out, and nothing waits for them.
    let _idle: Vec<_> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    assert!(line(&status(&[])).is_some());
    assert!(ask("GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
}

#[test]
fn extents_within_one_free_extent_are_trimmed_at_once() {
    if !possible() {
        return;
    }
    const FILES: usize = 400;
    const SIZE: usize = 256 << 10;
    let volume = Volume::mounted("ext4");
    let names: Vec<_> = (0..FILES).map(|number| volume.target.join(number.to_string())).collect();
    names.iter().for_each(|path| fs::write(path, vec![7; SIZE]).unwrap());
    volume.sync();
    let daemon = Daemon::start(&smart(&volume));
    daemon.wait_for(&volume, "all is trimmed", |fs| fs.pending == Bytes::ZERO);
    let freed = Bytes((FILES / 2 * SIZE) as u64);
    let delete = |first: usize| {
        let before = daemon.status_of(&volume).unwrap().trimmed;
        names[first..].iter().step_by(2).for_each(|path| fs::remove_file(path).unwrap());
        volume.sync();
        let mut trimmed = Bytes::ZERO;
        daemon.wait_for(&volume, "what was freed is trimmed", |fs| {
            trimmed = fs.trimmed.saturating_sub(before);
            trimmed >= freed && fs.pending == Bytes::ZERO
        });
        trimmed
    };
    delete(0);
    // Now what is freed lies between what is trimmed.
    let again = delete(1);
    // The groups that it lies in, and not the rest of them for each of two hundred pieces.
    assert!(again.0 <= 4 * (128 << 20), "{again} discarded for {freed}");
}
