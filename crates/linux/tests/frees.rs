//! Frees of real file systems are reported when a trim finds the space free, and not before.

mod common;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::mounted::{Mounted, extents_of};
use common::possible;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, fallocate};
use trimtab_core::trace::EventKind;
use trimtab_core::{Bytes, ExtentSet};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::mount::{self, Mount};
use trimtab_linux::tracefs::{FreeCoverage, Freed, Frees, FreesOptions};
use trimtab_linux::{PROCFS, SYSFS, trim};

const SIZE: Bytes = Bytes(512 << 20);
const FILE: Bytes = Bytes(5 << 20);

/// Lets one test at a time run, so that none wakes another; none where it can't.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    possible().then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn mount_of(mounted: &Mounted) -> Mount {
    let mut mounts = mount::mounts(Path::new(PROCFS)).unwrap();
    mounts.retain(|mount| mount.target == mounted.directory.path());
    mounts.pop().unwrap()
}

/// Waits as a service does, and says whether there was anything.
fn wait(frees: &Frees, timeout: Duration) -> bool {
    let mut files: Vec<_> = frees.files().map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(timeout).unwrap();
    poll(&mut files, Some(&timeout)).unwrap() > 0
}

/// Returns the frees of the file system until there is nothing more, or all of `awaited` came.
fn told(frees: &mut Frees, mount: &Mount, awaited: &ExtentSet) -> (ExtentSet, Vec<Freed>) {
    let (mut set, mut all) = (ExtentSet::new(), Vec::new());
    let end = Instant::now() + Duration::from_secs(if awaited.is_empty() { 1 } else { 20 });
    let mut timeout = Duration::from_millis(100);
    while Instant::now() < end && (awaited.is_empty() || set.intersect(awaited) != *awaited) {
        wait(frees, timeout);
        let mut events = Vec::new();
        timeout = frees.read(&mut events).unwrap().unwrap_or(Duration::from_millis(100));
        assert!(events.is_sorted_by_key(|event| event.at));
        events.retain(|event| event.file_system == mount.number);
        events
            .iter()
            .filter(|event| event.kind == EventKind::Free)
            .for_each(|event| set.insert(event.extent));
        all.extend(events);
    }
    assert_eq!(set.intersect(awaited), *awaited, "all that is awaited");
    (set, all)
}

/// A reported free can be trimmed at once, by the addresses that it has.
fn trim_covers_the_frees(kind: &str, arguments: &[&str], options: &str) {
    let Some(_alone) = alone() else { return };
    let mut frees = Frees::start(&FreesOptions { allocations: true, ..FreesOptions::default() }).unwrap();
    let Some(mounted) = Mounted::made(kind, SIZE, arguments, options) else { return };
    let mount = mount_of(&mounted);
    assert_eq!(frees.follow(&mount).unwrap(), FreeCoverage::SinceMount);
    mounted.write("before", FILE);
    let path = mounted.write("file", FILE);
    mounted.write("after", FILE);
    trim::trim(mounted.directory.path(), trim::EVERYTHING, Bytes::ZERO).unwrap();
    let file = extents_of(&path);
    assert_eq!(file.len(), FILE);
    std::fs::remove_file(path).unwrap();
    if kind == "btrfs" {
        mounted.sync();
    }
    let (freed, events) = told(&mut frees, &mount, &file);
    let allocated: ExtentSet =
        events.iter().filter(|event| event.kind == EventKind::Allocate).map(|event| event.extent).collect();
    assert_eq!(allocated.intersect(&file), file);
    let disk = BlockDevice::open(Path::new(SYSFS), &mounted.scratch.device).unwrap();
    let before = disk.counters().unwrap();
    for extent in freed.iter().filter(|extent| file.inside(*extent).next().is_some()) {
        trim::trim(mounted.directory.path(), extent, Bytes::ZERO).unwrap();
    }
    let discarded = || disk.counters().unwrap().since(&before).discard_bytes;
    // XFS does not wait for the discards (Linux 6.7 and later).
    (0..100).take_while(|_| discarded() < FILE).for_each(|_| std::thread::sleep(Duration::from_millis(20)));
    assert!(discarded() >= FILE, "{} of {file:?} were discarded, told {freed:?}", discarded());
    assert!(told(&mut frees, &mount, &ExtentSet::new()).0.intersect(&freed).is_empty(), "by the trim itself");
    assert_eq!(frees.lost(), 0);
}

#[test]
fn trim_covers_the_frees_of_ext4() {
    trim_covers_the_frees("ext4", &[], "commit=1");
}

#[test]
fn trim_covers_the_frees_of_ext4_with_small_blocks() {
    trim_covers_the_frees("ext4", &["-b", "1024"], "commit=1");
}

#[test]
fn trim_covers_the_frees_of_ext4_without_a_journal() {
    trim_covers_the_frees("ext4", &["-O", "^has_journal"], "");
}

#[test]
fn trim_covers_the_frees_of_xfs() {
    trim_covers_the_frees("xfs", &[], "");
}

#[test]
fn trim_covers_the_frees_of_btrfs() {
    trim_covers_the_frees("btrfs", &["-m", "dup"], "nodiscard");
}

#[test]
fn ext4_frees_come_after_their_commit() {
    let Some(_alone) = alone() else { return };
    let mut frees = Frees::start(&FreesOptions::default()).unwrap();
    let Some(mounted) = Mounted::new("ext4", SIZE, "commit=300") else { return };
    let mount = mount_of(&mounted);
    frees.follow(&mount).unwrap();
    let path = mounted.write("file", FILE);
    let file = extents_of(&path);
    std::fs::remove_file(path).unwrap();
    assert!(told(&mut frees, &mount, &ExtentSet::new()).0.is_empty());
    mounted.sync();
    let (freed, events) = told(&mut frees, &mount, &file);
    assert_eq!(freed, file);
    assert!(events.iter().all(|event| event.kind == EventKind::Free));
}

#[test]
fn frees_before_following_are_reported() {
    let Some(_alone) = alone() else { return };
    let Some(early) = Mounted::new("xfs", SIZE, "") else { return };
    let mut frees = Frees::start(&FreesOptions::default()).unwrap();
    let Some(mounted) = Mounted::new("xfs", SIZE, "") else { return };
    let path = mounted.write("file", FILE);
    let file = extents_of(&path);
    std::fs::remove_file(path).unwrap();
    frees.read(&mut Vec::new()).unwrap();
    let mount = mount_of(&mounted);
    assert_eq!(frees.follow(&mount).unwrap(), FreeCoverage::SinceMount);
    assert_eq!(told(&mut frees, &mount, &file).0.intersect(&file), file);
    assert_eq!(frees.follow(&mount_of(&early)).unwrap(), FreeCoverage::FromNow);
}

#[test]
fn lost_events_are_known_when_the_rest_is_read() {
    let Some(_alone) = alone() else { return };
    let options = FreesOptions { buffer: Bytes(64 << 10), allocations: true, ..FreesOptions::default() };
    let mut frees = Frees::start(&options).unwrap();
    let Some(mounted) = Mounted::new("xfs", SIZE, "") else { return };
    let Some(another) = Mounted::new("ext4", SIZE, "") else { return };
    frees.follow(&mount_of(&mounted)).unwrap();
    let file = std::fs::File::create(mounted.directory.path().join("file")).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, FallocateFlags::empty(), 0, 128 << 20).unwrap();
    (0..16_000).for_each(|block| fallocate(&file, punch, block * 8192, 4096).unwrap());
    std::thread::sleep(Duration::from_millis(50));
    let mut events = Vec::new();
    frees.read(&mut events).unwrap();
    assert!(!events.is_empty() && frees.lost() > 0, "{} of {}", frees.lost(), events.len());
    assert_eq!(frees.follow(&mount_of(&another)).unwrap(), FreeCoverage::FromNow);
    let Some(later) = Mounted::new("ext4", SIZE, "") else { return };
    assert_eq!(frees.follow(&mount_of(&later)).unwrap(), FreeCoverage::SinceMount);
}

#[test]
fn idle_service_is_not_woken() {
    let Some(_alone) = alone() else { return };
    let mut frees = Frees::start(&FreesOptions::default()).unwrap();
    let (Some(mounted), Some(other)) = (Mounted::new("xfs", SIZE, ""), Mounted::new("xfs", SIZE, "")) else {
        return;
    };
    for mount in mount::mounts(Path::new(PROCFS)).unwrap() {
        frees.leave_out(&mount).unwrap();
    }
    let mount = mount_of(&mounted);
    frees.follow(&mount).unwrap();
    while frees.read(&mut Vec::new()).unwrap().is_some() {}
    std::fs::remove_file(other.write("file", FILE)).unwrap();
    let mut woken = 0;
    while wait(&frees, Duration::from_millis(500)) {
        woken += 1;
        frees.read(&mut Vec::new()).unwrap();
    }
    // The machine may mount something, too.
    assert!(woken < 20, "{woken}");
    let path = mounted.write("file", FILE);
    let file = extents_of(&path);
    std::fs::remove_file(path).unwrap();
    assert!(wait(&frees, Duration::from_secs(20)), "one event is enough");
    assert_eq!(told(&mut frees, &mount, &file).0.intersect(&file), file);
}
