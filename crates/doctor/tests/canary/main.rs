//! `trimtab doctor --canary`, on what this kernel has: the proof says what the files behind the devices say,
//! and leaves nothing.

#[path = "../../../linux/tests/common/mounts.rs"]
mod mounts;
mod support;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use trimtab_core::Bytes;
use trimtab_core::interrupt::Interrupt;
use trimtab_core::verdict::Verdict;
use trimtab_doctor::canary::CanaryError;

use mounts::{Loop, Mounted};
use support::{made, made_with, memory, possible, proved, seen, sent};

const SIZE: Bytes = Bytes(16 << 20);

#[test]
fn loop_file_releases_what_each_file_system_frees() {
    if !possible() {
        return;
    }
    for fs in ["ext4", "xfs", "btrfs"] {
        for options in ["", "discard"] {
            let memory = memory(Bytes::GIB);
            let device = Loop::new(&memory.target, Bytes(512 << 20));
            let mounted = made(&[&device.device], fs, options);
            let canary = proved(&mounted.target);
            assert_eq!(canary.verdict, Verdict::Reaches, "{fs} {options}: {canary:?}");
            let seen = seen(&canary, device.name());
            assert_eq!((seen.bytes, canary.sent_bytes), (SIZE, SIZE), "{fs} {options}");
            assert!((1..10).contains(&seen.commands), "{fs} {options}: {seen:?}");
            // Besides, the file system writes and frees of its own: ext4 its tables, after it was mounted.
            assert!(seen.returned.unwrap() >= Bytes(SIZE.get() / 2), "{fs} {options}: {seen:?}");
        }
    }
}

#[test]
fn file_system_below_a_loop_file_is_trimmed_too() {
    if !possible() {
        return;
    }
    let memory = memory(Bytes::GIB);
    let lower = Loop::new(&memory.target, Bytes(900 << 20));
    let holder = made(&[&lower.device], "ext4", "");
    let upper = Loop::new(&holder.target, Bytes(400 << 20));
    let mounted = made(&[&upper.device], "xfs", "");
    let canary = proved(&mounted.target);
    assert_eq!(canary.verdict, Verdict::Reaches, "{canary:?}");
    assert_eq!(seen(&canary, upper.name()).bytes, SIZE);
    assert_eq!(seen(&canary, lower.name()).bytes, SIZE);
    // The lower ext4 may write its tables meanwhile.
    assert!(seen(&canary, lower.name()).returned.unwrap() >= Bytes(SIZE.get() / 2), "{canary:?}");
}

#[test]
fn each_copy_of_a_btrfs_is_looked_for() {
    if !possible() {
        return;
    }
    let memories = [memory(Bytes(600 << 20)), memory(Bytes(600 << 20))];
    let devices = memories.each_ref().map(|memory| Loop::new(&memory.target, Bytes(512 << 20)));
    let paths = devices.each_ref().map(|device| device.device.as_path());
    for (profile, bytes) in [("raid1", 2 * SIZE.get()), ("single", SIZE.get())] {
        let mounted = made_with(&paths, "btrfs", &["-d", profile], "nodiscard");
        let canary = proved(&mounted.target);
        assert_eq!(canary.verdict, Verdict::Reaches, "{profile}: {canary:?}");
        let all: u64 = canary.seen.iter().map(|seen| seen.bytes.get()).sum();
        assert_eq!(all, bytes, "{profile}: {canary:?}");
    }
}

#[test]
fn discards_of_others_do_not_count_for_the_canary() {
    if !possible() {
        return;
    }
    let memory = memory(Bytes::GIB);
    let device = Loop::new(&memory.target, Bytes(800 << 20));
    let mounted = made(&[&device.device], "ext4", "discard");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let path = mounted.target.join("other");
                let mut file = File::create(&path).unwrap();
                file.write_all(&vec![7; 8 << 20]).unwrap();
                file.sync_all().unwrap();
                fs::remove_file(&path).unwrap();
                rustix::fs::syncfs(&file).unwrap();
            }
        });
        let canary = sent(&mounted.target, &Interrupt::never());
        done.store(true, Ordering::Relaxed);
        let canary = canary.unwrap();
        // The other discards much more, and may be given a little of what was freed before it is discarded.
        let seen = seen(&canary, device.name());
        assert!(seen.bytes <= SIZE && seen.bytes > Bytes(15 << 20), "{canary:?}");
        assert_eq!(canary.verdict, Verdict::Reaches, "{canary:?}");
    });
}

#[test]
fn a_loop_that_takes_no_discards_is_named() {
    if !possible() {
        return;
    }
    // A file in a ramfs can have no hole.
    let memory = Mounted::new(Path::new("none"), "ramfs", "");
    let device = Loop::new(&memory.target, Bytes(128 << 20));
    let mounted = made(&[&device.device], "ext4", "");
    let canary = proved(&mounted.target);
    assert_eq!(canary.verdict, Verdict::Blocked);
    assert!(canary.reason.ends_with(&format!("{} takes no discards", device.name())), "{}", canary.reason);
    assert_eq!(seen(&canary, device.name()).bytes, Bytes::ZERO);
}

#[test]
fn an_overlay_is_followed_to_its_file_system() {
    if !possible() {
        return;
    }
    let memory = memory(Bytes::GIB);
    let device = Loop::new(&memory.target, Bytes(512 << 20));
    let lower = made(&[&device.device], "ext4", "");
    let [low, up, work] = ["low", "up", "work"].map(|name| lower.target.join(name));
    for directory in [&low, &up, &work] {
        fs::create_dir(directory).unwrap();
    }
    let options = format!("lowerdir={},upperdir={},workdir={}", low.display(), up.display(), work.display());
    let overlay = Mounted::new(Path::new("overlay"), "overlay", &options);
    let canary = proved(&overlay.target);
    assert_eq!((canary.verdict, canary.sent_bytes), (Verdict::Reaches, SIZE), "{canary:?}");
}

#[test]
fn impossible_proof_is_refused_before_anything_is_written() {
    if !possible() {
        return;
    }
    let never = Interrupt::never();
    let memory = memory(Bytes(600 << 20));
    let refused = sent(&memory.target, &never).unwrap_err().to_string();
    assert!(refused.contains("has no file system on a block device"), "{refused}");

    let device = Loop::new(&memory.target, Bytes(512 << 20));
    let mounted = made(&[&device.device], "ext4", "");
    // A disk in a file on it: the file system below is another's.
    let disk = Loop::new(&mounted.target, Bytes(64 << 20));
    let refused = sent(&disk.device, &never).unwrap_err();
    assert!(matches!(refused, CanaryError::NoFileSystem { .. }), "{refused}");
    drop(disk);
    File::create(mounted.target.join("much")).unwrap().write_all(&vec![1; 300 << 20]).unwrap();
    rustix::fs::sync();
    let free = rustix::fs::statvfs(&mounted.target).unwrap();
    let rest = free.f_bavail * free.f_frsize - (1 << 20);
    let more = File::create(mounted.target.join("more")).unwrap();
    rustix::fs::fallocate(&more, rustix::fs::FallocateFlags::empty(), 0, rest).unwrap();
    drop(more);
    let refused = sent(&mounted.target, &never).unwrap_err();
    assert!(matches!(refused, CanaryError::Full { .. }), "{refused}");
    assert!(!refused.to_string().contains('\n'));
    drop(mounted);

    let mounted = Mounted::new(&device.device, "ext4", "ro");
    let refused = sent(&mounted.target, &never).unwrap_err();
    assert!(matches!(refused, CanaryError::ReadOnly { .. }), "{refused}");
}

#[test]
fn interrupted_canary_leaves_nothing() {
    if !possible() {
        return;
    }
    let memory = memory(Bytes(600 << 20));
    let device = Loop::new(&memory.target, Bytes(512 << 20));
    let mounted = made(&[&device.device], "ext4", "");
    let names = || fs::read_dir(&mounted.target).unwrap().map(|entry| entry.unwrap().file_name());
    let before: Vec<_> = names().collect();
    let interrupt = Interrupt::never();
    interrupt.ask();
    let ended = sent(&mounted.target, &interrupt).unwrap_err();
    assert!(matches!(ended, CanaryError::Interrupted(_)), "{ended}");
    assert_eq!(names().collect::<Vec<_>>(), before);
    mounts::unmount(&mounted.target).unwrap();
}
