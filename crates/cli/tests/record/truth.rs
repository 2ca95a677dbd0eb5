//! Recordings are complete, and a replay has the same effect on the model as the workload on the drive.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::sim::SimDocument;
use trimtab_core::trace::EventKind;
use trimtab_drive::Drive;
use trimtab_linux::SYSFS;

use crate::support::{Mounted, TRIMTAB, Trace, block, drive, possible, recorded};

/// Records `work`, lines of shell, with the drive's path in `$D` and a directory to mount it at in `$M`,
/// into the file `t.parquet` of the directory returned.
fn record_work(drive: &Drive, work: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    let place = dir.path().to_str().unwrap();
    let device = drive.device().to_str().unwrap();
    std::fs::create_dir(dir.path().join("mnt")).unwrap();
    let script =
        format!("D={device} M={place}/mnt\ntrap 'umount -q $M || :' EXIT\nset -e\n{work}\numount $M\n");
    let trace = format!("{place}/t.parquet");
    recorded(&["-d", device, "-o", &trace, "--", "sh", "-c", &script]);
    dir
}

/// Returns a shell command that makes a file system without discarding the device.
fn make(fs: &str) -> &'static str {
    match fs {
        "ext4" => "mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 $D",
        "xfs" => "mkfs.xfs -q -K $D",
        _ => "mkfs.btrfs -q -K $D",
    }
}

#[test]
fn recording_counts_what_the_kernel_counts() {
    if !possible() {
        return;
    }
    for fs in ["ext4", "xfs", "btrfs"] {
        let drive = drive(Bytes(1 << 30));
        let block = block(&drive);
        let before = block.counters().unwrap();
        let work = format!(
            "{}; mount -o discard $D $M; cp -r /usr/include $M; sync; rm -r $M/include; sync; fstrim $M",
            make(fs)
        );
        let dir = record_work(&drive, &work);
        let after = block.counters().unwrap();
        let counted = after.since(&before);
        let trace = Trace::read(&dir.path().join("t.parquet"));
        assert_eq!(trace.header.lost, 0);
        let total = |kind| trace.total(&block.name(), kind);
        assert_eq!(total(EventKind::Discard), (counted.discards, counted.discard_bytes), "{fs}");
        assert!(counted.discards > 0, "{fs}");
        let reads = (after.reads - before.reads, after.read_bytes - before.read_bytes);
        assert_eq!(total(EventKind::Read), reads, "{fs}");
        let flushes = after.flushes.unwrap() - before.flushes.unwrap();
        assert_eq!(total(EventKind::Flush), (flushes, Bytes::ZERO), "{fs}");
        // The kernel also counts a flush without data as an empty write.
        let (writes, written) = total(EventKind::Write);
        assert_eq!(written, counted.write_bytes, "{fs}");
        assert!((writes..=writes + flushes).contains(&counted.writes), "{fs}: {writes} {counted:?}");
        let (_, freed) = total(EventKind::Free);
        assert!(freed > Bytes(8 << 20), "{fs}: {freed}");
        let listed = total(EventKind::Unused).1 > Bytes(256 << 20);
        let gap = trace.header.gaps.iter().any(|gap| gap.contains("free space"));
        assert!(listed != gap && gap == (fs == "btrfs"), "{fs}: {:?}", trace.header.gaps);
    }
}

/// Replays the trace in `dir` on the drive it was recorded on.
fn replayed(dir: &TempDir, policy: &str) -> SimDocument {
    let output = Command::new(TRIMTAB)
        .args(["sim", dir.path().join("t.parquet").to_str().unwrap()])
        .args(["--profile", "ocz-agility-3", "--policy", policy, "--json", "-"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn replay_does_what_the_drive_did() {
    if !possible() {
        return;
    }
    for (fs, policy) in [("ext4", "none"), ("ext4", "online"), ("ext4", "batched"), ("xfs", "online")] {
        let drive = drive(Bytes(1 << 30));
        let discards = if policy == "online" { "discard" } else { "nodiscard" };
        let work = format!(
            "{}; mount -o {discards} $D $M; {TRIMTAB} compare --on $M --policy {policy} --idle 1s --runs 1 --size 1G \
             --json $M/../compare.json >/dev/null 2>&1",
            make(fs)
        );
        let dir = record_work(&drive, &work);
        let drive = drive.stats().unwrap().counters;
        // `online` replays the discards of the trace, including the trims of batched.
        let document = replayed(&dir, if policy == "none" { "none" } else { "online" });
        let replay = &document.runs[0].outcome.counters;
        assert_eq!(
            (replay.discards, replay.discard_bytes),
            (drive.discards, drive.discard_bytes),
            "{fs} {policy}"
        );
        assert_eq!(replay.discard_sizes, drive.discard_sizes);
        assert_eq!(replay.write_bytes, drive.write_bytes);
        let off = |replay: f64, drive: f64| (replay / drive - 1.0).abs();
        assert!(drive.erases > 500, "{fs} {policy}: the drive had little to do");
        assert!(off(replay.erases as f64, drive.erases as f64) <= 0.03, "{} {}", replay.erases, drive.erases);
        let (waf, expected) = (replay.waf().unwrap(), drive.waf().unwrap());
        assert!(off(waf, expected) <= 0.03, "{waf} {expected}");
    }
}

#[test]
fn anonymised_recording_has_no_names() {
    if !possible() {
        return;
    }
    let drive = drive(Bytes(1 << 30));
    let fs = Mounted::new(&drive, "ext4", "");
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("t.parquet");
    let line = format!("exec dd if=/dev/zero of={}/private bs=1M count=1 conv=fsync", fs.path());
    recorded(&["--anonymise", "-d", fs.path(), "-o", file.to_str().unwrap(), "--", "sh", "-c", &line]);
    let trace = Trace::read(&file);
    let header = serde_json::to_string(&trace.header).unwrap();
    for name in [fs.path(), drive.device().to_str().unwrap(), &block(&drive).name(), "private"] {
        assert!(!header.contains(name), "{name} in {header}");
    }
    assert_eq!(trace.header.file_systems[0].kind, "ext4");
    let names: Vec<_> = trace.events.iter().map(|event| event.process).filter(|it| !it.is_empty()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| name.as_bytes().starts_with(b"n-")), "{names:?}");
    let (_, written) = trace.total(&trace.header.devices[0].name, EventKind::Write);
    assert!(written >= Bytes::MIB, "{written}");
}

#[test]
fn discards_are_named_by_who_asked_for_them() {
    if !possible() {
        return;
    }
    for scheduler in ["none", "mq-deadline"] {
        let drive = drive(Bytes(256 << 20));
        let queue = Path::new(SYSFS).join("block").join(block(&drive).name()).join("queue");
        std::fs::write(queue.join("scheduler"), scheduler).unwrap();
        let mounted = Mounted::new(&drive, "ext4", "");
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("t.parquet");
        recorded(&["-d", mounted.path(), "-o", file.to_str().unwrap(), "--", "fstrim", mounted.path()]);
        let events = Trace::read(&file).events;
        let discards = events.iter().filter(|event| event.kind == EventKind::Discard);
        let names: Vec<_> = discards.map(|event| event.process.to_string()).collect();
        assert!(names.len() > 2 && names.iter().all(|name| name == "fstrim"), "{scheduler}: {names:?}");
    }
}
