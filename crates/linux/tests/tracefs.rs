//! Recordings of real loop devices, set beside what the kernel counts and what was really done.

mod common;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use common::mounted::{Mounted, extents_of, run};
use common::{Loop, possible};
use rustix::fs::{CWD, FileType, Mode};
use trimtab_core::trace::{DeviceIndex, EventKind, Summary, TraceEvent, TraceHeader};
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::SYSFS;
use trimtab_linux::block::{BlockCounters, BlockDevice};
use trimtab_linux::btrfs::{self, Chunk};
use trimtab_linux::mount;
use trimtab_linux::tracefs::{RecordOptions, Recording};

const INSTANCES: &str = "/sys/kernel/tracing/instances";

fn disk(scratch: &Loop) -> BlockDevice {
    BlockDevice::open(Path::new(SYSFS), &scratch.device).unwrap()
}

/// Returns the events recorded while `work` ran.
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

#[test]
fn a_device_is_known_by_any_node() {
    if !possible() {
        return;
    }
    let scratch = Loop::new(Bytes(1 << 20));
    let directory = tempfile::tempdir().unwrap();
    let node = directory.path().join("vda");
    let number = std::fs::metadata(&scratch.device).unwrap().rdev();
    rustix::fs::mknodat(CWD, &node, FileType::BlockDevice, Mode::RUSR, number).unwrap();
    assert_eq!(BlockDevice::open(Path::new(SYSFS), &node).unwrap(), disk(&scratch));
}

fn only(disk: &BlockDevice, kinds: &[EventKind]) -> RecordOptions {
    RecordOptions { devices: vec![disk.clone()], kinds: kinds.to_vec(), ..RecordOptions::default() }
}

fn requests() -> Vec<EventKind> {
    EventKind::ALL.into_iter().filter(|kind| kind.is_request()).collect()
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
fn rows_match_the_counters_of_the_kernel() {
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
        [EventKind::Read, EventKind::Write, EventKind::WriteZeroes, EventKind::Discard, EventKind::Flush]
            .map(|kind| rows.of(kind));
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

/// The bytes that rows of a kind name.
fn named(events: &[TraceEvent], kind: EventKind) -> ExtentSet {
    let mut set = ExtentSet::new();
    events.iter().filter(|event| event.kind == kind).for_each(|event| set.insert(event.extent));
    set
}

fn bytes(set: &ExtentSet) -> Bytes {
    set.iter().map(Extent::len).sum()
}

/// The freed extents are the deleted file, give or take the file system's own blocks, which `metadata`
/// bounds.
fn frees_are_the_file(kind: &str, metadata: Bytes) {
    if !possible() {
        return;
    }
    let Some(mounted) = Mounted::new(kind, Bytes(512 << 20), "") else { return };
    let disk = disk(&mounted.scratch);
    let mut file = ExtentSet::new();
    let (header, events) = recorded(&only(&disk, &[EventKind::Free, EventKind::Allocate]), || {
        let path = mounted.write("file", Bytes(5 << 20));
        mounted.write("other", Bytes(3 << 20));
        file = extents_of(&path);
        std::fs::remove_file(path).unwrap();
        mounted.settle();
    });
    assert_eq!(header.gaps, [""; 0]);
    assert_eq!(header.file_systems.len(), 1);
    assert_eq!(header.file_systems[0].kind, kind);
    let (freed, taken) = (named(&events, EventKind::Free), named(&events, EventKind::Allocate));
    assert_eq!(bytes(&file), Bytes(5 << 20));
    assert_eq!(freed.intersect(&file), file, "freed {freed:?}, file {file:?}");
    assert_eq!(taken.intersect(&file), file, "taken {taken:?}, file {file:?}");
    assert!(bytes(&freed) <= bytes(&file) + metadata, "freed {freed:?}, file {file:?}");
    assert!(events.iter().all(|event| event.fs.is_some()));
}

#[test]
fn ext4_frees_what_the_file_held() {
    frees_are_the_file("ext4", Bytes::ZERO);
}

#[test]
fn xfs_frees_what_the_file_held() {
    frees_are_the_file("xfs", Bytes(64 << 10));
}

#[test]
fn btrfs_discards_the_extents_it_reported_free() {
    if !possible() {
        return;
    }
    let Some(mounted) = Mounted::new("btrfs", Bytes(512 << 20), "discard=sync") else { return };
    let disk = disk(&mounted.scratch);
    let (header, events) =
        recorded(&only(&disk, &[EventKind::Free, EventKind::Allocate, EventKind::Discard]), || {
            let path = mounted.write("file", Bytes(5 << 20));
            mounted.write("other", Bytes(3 << 20));
            std::fs::remove_file(path).unwrap();
            mounted.sync();
            mounted.sync();
        });
    assert_eq!(header.gaps, [""; 0]);
    let (freed, discarded) = (named(&events, EventKind::Free), named(&events, EventKind::Discard));
    assert!(bytes(&discarded) >= Bytes(5 << 20));
    assert_eq!(freed.intersect(&discarded), discarded, "freed {freed:?}, discarded {discarded:?}");
    // Blocks of trees that never reached the disk are free again without a discard.
    assert!(bytes(&freed) <= bytes(&discarded) + Bytes(1 << 20), "freed {freed:?}, discarded {discarded:?}");
}

#[test]
fn btrfs_addresses_may_move_to_another_place() {
    if !possible() {
        return;
    }
    let Some(mounted) = Mounted::new("btrfs", Bytes(1 << 30), "discard=sync,commit=1") else { return };
    let directory = mounted.directory.path();
    let chunks = || btrfs::chunks(std::fs::File::open(directory).unwrap()).unwrap();
    let path = |name: &str| directory.join(name);
    // A file for each chunk of data.
    let fill = |name: &str| run("fallocate", &["-l", "112M", path(name).to_str().unwrap()]);
    let remove = |names: &[&str]| {
        let before = chunks().len();
        names.iter().for_each(|name| std::fs::remove_file(path(name)).unwrap());
        for _ in 0..300 {
            mounted.sync();
            if chunks().len() + names.len() == before {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{names:?} leave {:?}", chunks());
    };
    let disk = disk(&mounted.scratch);
    let mut moved = None;
    let (header, events) = recorded(&only(&disk, &[EventKind::Free, EventKind::Discard]), || {
        mounted.write("first", Bytes(4 << 20));
        ["a", "b", "c", "d", "e", "f", "g"].into_iter().for_each(|name| _ = fill(name));
        mounted.sync();
        let before = chunks();
        // A new chunk has the addresses of the last, and its place in the largest hole.
        remove(&["a", "b", "g"]);
        fill("new");
        mounted.sync();
        let is_moved = |new: &Chunk| {
            before.iter().any(|old| old.extent.start == new.extent.start && old.copies != new.copies)
        };
        moved = chunks().into_iter().find(is_moved);
        let free = || rustix::fs::statvfs(directory).map(|found| found.f_bfree * found.f_frsize).unwrap();
        let before = free();
        std::fs::remove_file(path("new")).unwrap();
        for _ in 0..300 {
            mounted.sync();
            if free() >= before + (100 << 20) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("the space of the new file is not free");
    });
    assert_eq!(header.gaps, [""; 0]);
    let place = moved.unwrap().copies.unwrap()[0].1;
    let of_data = |event: &&TraceEvent| event.kind == EventKind::Free && event.extent.len() > Bytes::MIB;
    // The file is a little longer than its chunk; either of its two extents may be freed first.
    let last: Vec<_> = events.iter().rev().filter(of_data).take(2).map(|event| event.extent.start).collect();
    assert!(last.contains(&place), "{place}: {last:?}");
}

#[test]
fn free_space_is_listed_when_a_file_system_is_mounted() {
    if !possible() {
        return;
    }
    for kind in ["ext4", "xfs"] {
        let Some(mounted) = Mounted::new(kind, Bytes(512 << 20), "") else { return };
        let disk = disk(&mounted.scratch);
        mounted.unmount();
        let (header, events) = recorded(&only(&disk, &[EventKind::Unused, EventKind::Discard]), || {
            mount::mount(&mounted.scratch.device, mounted.directory.path(), kind, "").unwrap();
            std::thread::sleep(Duration::from_millis(200));
            run("fstrim", &[mounted.directory.path().to_str().unwrap()]);
        });
        assert_eq!(header.gaps, [""; 0]);
        let (unused, discarded) = (named(&events, EventKind::Unused), named(&events, EventKind::Discard));
        assert!(bytes(&unused) > Bytes(300 << 20));
        // Some free blocks are kept back from trimming.
        assert_eq!(unused.intersect(&discarded), discarded, "{kind}: unused {unused:?}, {discarded:?}");
        assert!(bytes(&unused) <= bytes(&discarded) + Bytes(1 << 20));
    }
}

#[test]
fn a_recording_keeps_nothing_mounted() {
    if !possible() {
        return;
    }
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(mounted) = Mounted::new(kind, Bytes(512 << 20), "") else { return };
        let directory = mounted.directory.path();
        let mount = || mount::mount(&mounted.scratch.device, directory, kind, "").unwrap();
        recorded(&only(&disk(&mounted.scratch), &[EventKind::Free, EventKind::Unused]), || {
            for round in 0..40 {
                mounted.unmount();
                mount();
                std::thread::sleep(Duration::from_micros(round * 500));
            }
        });
    }
}

#[test]
fn replaced_device_is_noticed_at_once() {
    if !possible() {
        return;
    }
    let (scratch, other) = (Loop::new(Bytes(1 << 20)), tempfile::NamedTempFile::new().unwrap());
    other.as_file().set_len(2 << 20).unwrap();
    let path = scratch.device.to_str().unwrap();
    let write = || fio(&[&format!("--filename={path}"), "--rw=write", "--bs=64k", "--size=1m"]);
    let (header, events) = recorded(&only(&disk(&scratch), &[EventKind::Write]), || {
        write();
        run("losetup", &["-d", path]);
        run("losetup", &[path, other.path().to_str().unwrap()]);
        std::thread::sleep(Duration::from_millis(100));
        write();
    });
    let sizes: Vec<_> = header.devices.iter().map(|device| device.size).collect();
    assert_eq!(sizes, [Bytes(1 << 20), Bytes(2 << 20)]);
    let of = |index| events.iter().filter(|event| event.device == DeviceIndex(index)).count();
    assert_eq!((of(0), of(1)), (16, 16));
}

#[test]
fn small_buffer_loses_events_and_counts_them() {
    if !possible() {
        return;
    }
    let scratch = Loop::new(Bytes(64 << 20));
    let disk = disk(&scratch);
    let options = RecordOptions { buffer: Bytes(128 << 10), ..only(&disk, &[EventKind::Read]) };
    let mut recording = Recording::start(&options).unwrap();
    let before = idle(&disk);
    fio(&[&format!("--filename={}", scratch.device.display()), "--rw=read", "--bs=4k", "--size=64m"]);
    let after = idle(&disk);
    let mut events = Vec::new();
    recording.stop(&mut events).unwrap();
    let (lost, requests) = (recording.header().lost, after.reads - before.reads);
    // Each request is two events. The buffers of all processors hold a few thousand.
    assert!(lost > requests && lost < 2 * requests, "lost {lost} of {requests} requests");
    assert!(!events.is_empty() && (events.len() as u64) < requests);
}

#[test]
fn instances_of_ended_processes_are_removed_too() {
    if !possible() {
        return;
    }
    let dead = Path::new(INSTANCES).join("trimtab-4194304-1-0");
    std::fs::create_dir(&dead).unwrap();
    let ours = || {
        let prefix = format!("trimtab-{}-", std::process::id());
        let names = std::fs::read_dir(INSTANCES).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with(&prefix)).count()
    };
    let recording = Recording::start(&RecordOptions::default()).unwrap();
    assert!(!dead.exists());
    assert!(ours() >= 1);
    drop(recording);
}

/// The first zram device that nothing uses, with a size; it is reset when this goes. Its driver takes
/// bios.
struct Zram(BlockDevice);

impl Zram {
    /// None where there is no such device, which CI does not forgive.
    fn new(size: Bytes) -> Option<Self> {
        let disks = BlockDevice::disks(Path::new(SYSFS)).unwrap();
        let unused = |disk: &BlockDevice| disk.name().starts_with("zram") && disk.size().unwrap().0 == 0;
        let Some(disk) = disks.into_iter().find(unused) else {
            assert!(std::env::var_os("CI").is_none(), "a test that needs zram cannot be skipped in CI");
            eprintln!("skipped: there is no zram device that nothing uses");
            return None;
        };
        let zram = Self(disk);
        zram.set("disksize", &size.0.to_string());
        Some(zram)
    }

    fn set(&self, attribute: &str, value: &str) {
        std::fs::write(Path::new(SYSFS).join("block").join(self.0.name()).join(attribute), value).unwrap();
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        self.set("reset", "1");
    }
}

#[test]
fn rows_of_a_bio_based_disk_match_the_counters_of_the_kernel() {
    if !possible() {
        return;
    }
    let Some(zram) = Zram::new(Bytes(64 << 20)) else { return };
    let path = format!("/dev/{}", zram.0.name());
    let file = format!("--filename={path}");
    let before = idle(&zram.0);
    let mut after = before;
    let (header, events) = recorded(&only(&zram.0, &requests()), || {
        fio(&[&file, "--rw=randrw", "--bsrange=4k-256k", "--iodepth=16", "--io_size=16m", "--size=64m"]);
        fio(&[&file, "--rw=randtrim", "--bs=64k", "--size=8m", "--iodepth=4"]);
        run("blkdiscard", &["-o", "8M", "-l", "3M", &path]);
        after = idle(&zram.0);
    });
    assert_eq!((header.lost, header.gaps.as_slice()), (0, &[][..]));
    let mut rows = Summary::default();
    events.iter().for_each(|event| rows.record(event));
    let [reads, writes, discards] =
        [EventKind::Read, EventKind::Write, EventKind::Discard].map(|kind| rows.of(kind));
    let counted = after.since(&before);
    assert_eq!(
        (reads.count, reads.bytes),
        (after.reads - before.reads, after.read_bytes - before.read_bytes)
    );
    assert_eq!((writes.count, writes.bytes), (counted.writes, counted.write_bytes));
    // Of discards, zram's driver keeps no count.
    assert_eq!((discards.count, discards.bytes), (128 + 1, Bytes((8 + 3) << 20)));
    assert!(events.iter().all(|event| event.latency.is_some() && event.error == 0));
}
