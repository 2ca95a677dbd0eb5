//! Recordings of real loop devices, set beside what the kernel counts and what was really done.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{Loop, possible};
use trimtab_core::trace::{Kind, Summary, TraceEvent, TraceHeader};
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::SYSFS;
use trimtab_linux::block::{BlockCounters, BlockDevice};
use trimtab_linux::tracing::{RecordOptions, Recording};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

fn disk(scratch: &Loop) -> BlockDevice {
    BlockDevice::open(Path::new(SYSFS), &scratch.device).unwrap()
}

/// Runs a program that must succeed.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What was recorded while `work` ran.
fn recorded(options: &RecordOptions, work: impl FnOnce()) -> (TraceHeader, Vec<TraceEvent>) {
    let mut recording = Recording::start(options).unwrap();
    let mut events = Vec::new();
    std::thread::scope(|scope| {
        let (done, finished) = std::sync::mpsc::channel::<()>();
        let reader = scope.spawn(move || {
            while finished.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                recording.wait(Duration::from_millis(50)).unwrap();
                recording.read(&mut events).unwrap();
            }
            recording.stop(&mut events).unwrap();
            (recording.header().clone(), events)
        });
        work();
        drop(done);
        let (header, events) = reader.join().unwrap();
        assert!(events.is_sorted_by_key(|event| event.at));
        (header, events)
    })
}

fn only(disk: &BlockDevice, kinds: &[Kind]) -> RecordOptions {
    RecordOptions { devices: vec![disk.clone()], kinds: kinds.to_vec(), ..RecordOptions::default() }
}

fn requests() -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.is_request()).collect()
}

fn fio(arguments: &[&str]) {
    let common = ["--name=job", "--direct=1", "--ioengine=libaio", "--output-format=terse"];
    run("fio", &[&common[..], arguments].concat());
}

/// The disk's counters once it has had nothing to do for a while.
fn idle(disk: &BlockDevice) -> BlockCounters {
    let mut last = disk.counters().unwrap();
    loop {
        std::thread::sleep(Duration::from_millis(150));
        let now = disk.counters().unwrap();
        if now == last && now.in_flight == 0 {
            return now;
        }
        last = now;
    }
}

#[test]
fn rows_are_what_the_kernel_counts() {
    if !possible() {
        return;
    }
    let scratch = Loop::new(Bytes(64 << 20));
    let disk = disk(&scratch);
    let path = scratch.device.to_str().unwrap();
    let file = format!("--filename={path}");
    let before = idle(&disk);
    let mut after = before;
    let (header, events) = recorded(&only(&disk, &requests()), || {
        fio(&[&file, "--rw=randrw", "--bsrange=4k-256k", "--iodepth=16", "--io_size=64m", "--size=64m"]);
        fio(&[&file, "--rw=randwrite", "--bs=4k", "--size=1m", "--fsync=1"]);
        fio(&[&file, "--rw=randtrim", "--bs=64k", "--size=8m", "--iodepth=4"]);
        run("blkdiscard", &["-z", "-o", "4M", "-l", "4M", path]);
        run("blkdiscard", &["-o", "8M", "-l", "3M", path]);
        after = idle(&disk);
    });
    let mut rows = Summary::default();
    events.iter().for_each(|event| rows.record(event));
    let [reads, writes, zeroes, discards, flushes] =
        [Kind::Read, Kind::Write, Kind::WriteZeroes, Kind::Discard, Kind::Flush].map(|kind| rows.of(kind));
    assert_eq!(header.lost, 0);
    assert_eq!(header.gaps, [""; 0]);
    assert_eq!(reads.count, after.reads - before.reads);
    assert_eq!(reads.bytes, after.read_bytes - before.read_bytes);
    assert_eq!(discards.count, after.discards - before.discards);
    assert_eq!(discards.bytes, after.discard_bytes - before.discard_bytes);
    assert_eq!((discards.count, discards.bytes), (128 + 1, Bytes((8 + 3) << 20)));
    assert_eq!(flushes.count, after.flushes.unwrap() - before.flushes.unwrap());
    // A flush of one process at a time is counted as a write of nothing, too.
    assert_eq!(writes.count + zeroes.count + flushes.count, after.writes - before.writes);
    assert_eq!(writes.bytes + zeroes.bytes, after.write_bytes - before.write_bytes);
    assert_eq!(zeroes.bytes, Bytes(4 << 20));
    assert!(events.iter().all(|event| event.latency.is_some() && event.error == 0));
}
