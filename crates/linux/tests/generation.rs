//! Seals of real file systems: they follow where nothing was written in between, and nowhere else.

mod common;

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::mounted::{run, unmount};
use common::{Loop, possible};
use trimtab_core::Bytes;
use trimtab_linux::generation::{Reason, Seal, SealError, seal_mounted, seal_unmounted};
use trimtab_linux::mount::{self, Mount};
use trimtab_linux::tracefs::FreeCoverage;
use trimtab_linux::{PROCFS, SYSFS};

const SIZE: Bytes = Bytes(512 << 20);

/// A file system on a loop device that is mounted now and then.
struct Scratch {
    disk: Loop,
    directory: tempfile::TempDir,
    kind: &'static str,
}

impl Scratch {
    /// None where it can't be made here.
    fn new(kind: &'static str) -> Option<Self> {
        if !possible() {
            return None;
        }
        let made = Self { disk: Loop::new(SIZE), directory: tempfile::tempdir().unwrap(), kind };
        made.make();
        Some(made)
    }

    fn make(&self) {
        let device = self.disk.device.to_str().unwrap();
        match self.kind {
            "ext4" => run("mkfs.ext4", &["-q", "-F", "-E", "lazy_itable_init=0", device]),
            _ => run("mkfs.xfs", &["-q", "-f", device]),
        };
    }

    fn mount(&self) {
        mount::mount(&self.disk.device, self.directory.path(), self.kind, "").unwrap();
    }

    fn unmount(&self) {
        unmount(self.directory.path());
    }

    fn write(&self) {
        std::fs::write(self.directory.path().join("file"), "text").unwrap();
        run("sync", &["-f", self.directory.path().to_str().unwrap()]);
    }

    fn mounted(&self) -> Seal {
        let find = |mount: &Mount| mount.target == self.directory.path();
        let mount = mount::mounts(Path::new(PROCFS)).unwrap().into_iter().find(find).unwrap();
        seal_mounted(Path::new(SYSFS), &mount).unwrap()
    }

    fn try_unmounted(&self) -> Result<Seal, SealError> {
        seal_unmounted(Path::new(SYSFS), Path::new(PROCFS), &self.disk.device)
    }

    fn unmounted(&self) -> Seal {
        self.try_unmounted().unwrap()
    }

    /// Puts a copy in the place of what is on the device.
    fn restore(&self, copy: &Path) {
        put(copy, &self.disk);
    }

    fn copy(&self, to: &Path) {
        run("sync", &[self.disk.file().to_str().unwrap()]);
        run("cp", &["--sparse=always", self.disk.file().to_str().unwrap(), to.to_str().unwrap()]);
    }
}

/// Makes a loop device hold what `copy` does.
fn put(copy: &Path, on: &Loop) {
    let file = on.file().display().to_string();
    run("fallocate", &["-p", "-o", "0", "-l", &SIZE.0.to_string(), &file]);
    let (from, to) = (format!("if={}", copy.display()), format!("of={file}"));
    run("dd", &[&from, &to, "bs=1M", "conv=notrunc,sparse,fsync", "status=none"]);
    run("blockdev", &["--flushbufs", on.device.to_str().unwrap()]);
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Where a test has failed.
        _ = mount::unmount(self.directory.path());
    }
}

fn state_follows_if_nothing_was_written(kind: &'static str) {
    let Some(scratch) = Scratch::new(kind) else { return };
    scratch.mount();
    scratch.write();
    scratch.unmount();
    for _ in 0..2 {
        let sealed = scratch.unmounted();
        assert_eq!(scratch.unmounted().follows(&sealed, FreeCoverage::FromNow), Ok(()));
        scratch.mount();
        let now = scratch.mounted();
        assert_eq!(now.follows(&sealed, FreeCoverage::FromNow), Ok(()), "{now:?} after {sealed:?}");
        assert_eq!(now.follows(&sealed, FreeCoverage::SinceMount), Ok(()));
        assert_eq!(scratch.mounted().follows(&now, FreeCoverage::FromNow), Ok(()));
        scratch.unmount();
    }
}

#[test]
fn ext4_state_follows_if_nothing_was_written() {
    state_follows_if_nothing_was_written("ext4");
}

#[test]
fn xfs_state_follows_if_nothing_was_written() {
    state_follows_if_nothing_was_written("xfs");
}

fn state_does_not_follow_after_a_write(kind: &'static str) {
    let Some(scratch) = Scratch::new(kind) else { return };
    // The log of an XFS begins with its first mount.
    scratch.mount();
    scratch.unmount();
    let made = scratch.unmounted();
    scratch.mount();
    let fresh = scratch.mounted();
    assert_eq!(fresh.follows(&made, FreeCoverage::FromNow), Ok(()));
    scratch.write();
    let written = scratch.mounted();
    assert_eq!(written.follows(&fresh, FreeCoverage::SinceMount), Err(Reason::Written));
    let early = written.follows(&made, FreeCoverage::FromNow);
    assert!(matches!(early, Err(Reason::Early | Reason::Written)), "{early:?}");
    if kind == "ext4" {
        assert_eq!(written.follows(&made, FreeCoverage::SinceMount), Ok(()), "{written:?} after {made:?}");
    }
    scratch.unmount();
    let unmounted = scratch.unmounted();
    for sealed in [&made, &fresh, &written] {
        assert!(
            unmounted.follows(sealed, FreeCoverage::SinceMount).is_err(),
            "{unmounted:?} after {sealed:?}"
        );
    }
    scratch.mount();
    let again = scratch.mounted();
    for sealed in [&made, &fresh, &written] {
        assert!(again.follows(sealed, FreeCoverage::SinceMount).is_err(), "{again:?} after {sealed:?}");
    }
    assert_eq!(again.follows(&unmounted, FreeCoverage::FromNow), Ok(()));
    scratch.unmount();
    scratch.make();
    scratch.mount();
    scratch.unmount();
    assert_eq!(scratch.unmounted().follows(&unmounted, FreeCoverage::SinceMount), Err(Reason::FileSystem));
}

#[test]
fn ext4_state_does_not_follow_after_a_write() {
    state_does_not_follow_after_a_write("ext4");
}

#[test]
fn xfs_state_does_not_follow_after_a_write() {
    state_does_not_follow_after_a_write("xfs");
}

fn a_crash_does_not_follow(kind: &'static str) {
    let Some(scratch) = Scratch::new(kind) else { return };
    let copies = tempfile::tempdir().unwrap();
    let (clean, crashed) = (copies.path().join("clean"), copies.path().join("crashed"));
    scratch.mount();
    scratch.unmount();
    let sealed = scratch.unmounted();
    scratch.copy(&clean);
    scratch.mount();
    let watched = scratch.mounted();
    scratch.write();
    scratch.copy(&crashed);
    scratch.unmount();
    scratch.restore(&crashed);
    assert!(matches!(scratch.try_unmounted(), Err(SealError::Unclean { .. })));
    scratch.mount();
    let now = scratch.mounted();
    for sealed in [&sealed, &watched] {
        assert!(now.follows(sealed, FreeCoverage::SinceMount).is_err(), "{now:?} after {sealed:?}");
    }
    scratch.unmount();
    // The file system as it was is the one that was sealed; on another device it is another.
    scratch.restore(&clean);
    assert_eq!(scratch.unmounted().follows(&sealed, FreeCoverage::FromNow), Ok(()));
    let elsewhere = Loop::new(SIZE);
    put(&clean, &elsewhere);
    let elsewhere = seal_unmounted(Path::new(SYSFS), Path::new(PROCFS), &elsewhere.device).unwrap();
    assert_eq!(elsewhere.follows(&sealed, FreeCoverage::FromNow), Err(Reason::Device));
}

#[test]
fn ext4_state_does_not_follow_after_a_crash() {
    a_crash_does_not_follow("ext4");
}

#[test]
fn xfs_state_does_not_follow_after_a_crash() {
    a_crash_does_not_follow("xfs");
}

#[test]
fn ext4_state_does_not_follow_after_a_program_changed_it() {
    let Some(scratch) = Scratch::new("ext4") else { return };
    scratch.mount();
    scratch.write();
    scratch.unmount();
    let sealed = scratch.unmounted();
    run("debugfs", &["-w", "-R", "kill_file /file", scratch.disk.device.to_str().unwrap()]);
    assert_eq!(scratch.unmounted().follows(&sealed, FreeCoverage::FromNow), Err(Reason::Written));
    scratch.mount();
    assert_eq!(scratch.mounted().follows(&sealed, FreeCoverage::SinceMount), Err(Reason::Written));
    scratch.unmount();
    let killed = scratch.unmounted();
    // It finds something to mend.
    Command::new("e2fsck").args(["-f", "-p"]).arg(&scratch.disk.device).output().unwrap();
    scratch.mount();
    assert_eq!(scratch.mounted().follows(&killed, FreeCoverage::SinceMount), Err(Reason::Written));
}

#[test]
fn ext4_state_follows_after_a_check() {
    let Some(scratch) = Scratch::new("ext4") else { return };
    scratch.mount();
    scratch.write();
    scratch.unmount();
    let sealed = scratch.unmounted();
    run("e2fsck", &["-p", scratch.disk.device.to_str().unwrap()]);
    scratch.mount();
    assert_eq!(scratch.mounted().follows(&sealed, FreeCoverage::FromNow), Ok(()));
}

#[test]
fn device_without_ext4_and_xfs_is_refused() {
    if !possible() {
        return;
    }
    let empty = Loop::new(Bytes(16 << 20));
    let error = seal_unmounted(Path::new(SYSFS), Path::new(PROCFS), &empty.device).unwrap_err();
    assert!(matches!(error, SealError::Unknown { .. }), "{error}");
}

#[test]
fn file_system_in_use_has_no_seal() {
    for fstype in ["ext4", "xfs"] {
        let Some(scratch) = Scratch::new(fstype) else { return };
        scratch.mount();
        scratch.write();
        scratch.unmount();
        let sealed = scratch.unmounted();
        scratch.mount();
        let held = File::open(scratch.directory.path()).unwrap();
        mount::unmount_lazily(scratch.directory.path()).unwrap();
        assert!(matches!(scratch.try_unmounted(), Err(SealError::Unclean { .. })), "{fstype}");
        drop(held);
        let deadline = Instant::now() + Duration::from_secs(5);
        while scratch.try_unmounted().is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert_ne!(scratch.unmounted(), sealed, "{fstype}");
    }
}
