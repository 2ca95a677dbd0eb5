//! File systems on emulated drives, and trims of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::TrimDocument;
use trimtab_core::document::trim::{Sent, Target};
use trimtab_core::profile::{DiscardedReads, Profile};
use trimtab_core::stats::DriveCounters;
use trimtab_drive::{Clock, CreateOptions, Drive, Room};
use trimtab_linux::{mount, trim};

pub use crate::common::possible;

pub const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");

/// A drive of 1 GiB that returns garbage for discarded blocks, so that a wrong discard is noticed.
pub fn profile() -> Profile {
    let mut profile = Profile::named("micron-m500it").unwrap();
    profile.geometry.over_provisioning.value = 0.25;
    profile.discard.reads.value = DiscardedReads::Garbage;
    profile
}

/// A file system on an emulated drive, with a directory for what trims remember. The fields go in this order.
pub struct Testbed {
    mounted: bool,
    pub drive: Drive,
    pub fstype: &'static str,
    pub dir: TempDir,
}

impl Testbed {
    /// A new and empty one. Nothing of the drive has been discarded.
    pub fn new(fstype: &'static str, clock: Clock) -> Self {
        Self::on(profile(), Bytes::GIB, fstype, clock)
    }

    /// One on a drive of this profile and size.
    pub fn on(profile: Profile, size: Bytes, fstype: &'static str, clock: Clock) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let drive = Drive::create(&CreateOptions {
            name: format!("trim-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)),
            profile,
            size,
            preconditioned: false,
            clock,
            data: None,
            server: PathBuf::from(TRIMTAB),
            owned: true,
            room: Room::default(),
        })
        .unwrap();
        let options: &[&str] = match fstype {
            "ext4" => &["-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
            _ => &["-q", "-K"],
        };
        run(Command::new(format!("mkfs.{fstype}")).args(options).arg(drive.device()));
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        let mut testbed = Self { mounted: false, drive, fstype, dir };
        testbed.mount("");
        testbed
    }

    /// Where it is mounted.
    pub fn place(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Mounts it, without discards of its own, and with `options`.
    pub fn mount(&mut self, options: &str) {
        let options = format!("nodiscard,{options}");
        mount::mount(self.drive.device(), &self.place(), self.fstype, &options).unwrap();
        self.mounted = true;
    }

    pub fn unmount(&mut self) {
        // A child that another test just forked has this test's files open until it executes.
        let deadline = Instant::now() + Duration::from_secs(5);
        while let Err(error) = mount::unmount(&self.place()) {
            assert!(Instant::now() < deadline, "{error}");
            thread::sleep(Duration::from_millis(5));
        }
        self.mounted = false;
    }

    /// Writes `files` files of `length` bytes and deletes every second of them.
    pub fn fragment(&self, files: usize, length: usize) {
        let path = |file: usize| self.place().join(file.to_string());
        (0..files).for_each(|file| fs::write(path(file), vec![1; length]).unwrap());
        trim::sync(&self.place()).unwrap();
        (0..files).step_by(2).for_each(|file| fs::remove_file(path(file)).unwrap());
        self.settle();
    }

    /// Waits until what was deleted is free, and nothing is written any more.
    pub fn settle(&self) {
        trim::sync(&self.place()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut writes = self.counters().writes;
        while Instant::now() < deadline {
            thread::sleep(Duration::from_millis(300));
            trim::sync(&self.place()).unwrap();
            let now = self.counters().writes;
            if now == writes {
                return;
            }
            writes = now;
        }
    }

    /// Returns the counters of the drive.
    pub fn counters(&self) -> DriveCounters {
        self.drive.stats().unwrap().counters
    }

    /// Returns the drive's counters for `work`, including the discards that XFS sends without waiting.
    pub fn during(&self, work: impl FnOnce()) -> DriveCounters {
        let before = self.counters();
        work();
        let (mut after, mut since) = (self.counters(), Instant::now());
        while since.elapsed() < Duration::from_millis(300) {
            thread::sleep(Duration::from_millis(20));
            let now = self.counters();
            if now != after {
                (after, since) = (now, Instant::now());
            }
        }
        after.since(&before)
    }

    /// A command `trimtab trim` of it with these arguments.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(TRIMTAB);
        command.arg("trim").args(arguments).arg(self.place());
        command.env("RUNTIME_DIRECTORY", self.dir.path());
        command
    }

    /// Runs `trimtab trim --json` with these arguments, which must succeed, and returns its report.
    pub fn trim(&self, arguments: &[&str]) -> Target {
        let output = self.command(&[&["--json"], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        document(&output).targets.remove(0)
    }

    /// Runs fstrim with these arguments, which must succeed.
    pub fn fstrim(&self, arguments: &[&str]) {
        run(Command::new("fstrim").args(arguments).arg(self.place()));
        // XFS doesn't wait for its discards.
        let mut discards = 0;
        while discards < self.counters().discards {
            discards = self.counters().discards;
            thread::sleep(Duration::from_millis(300));
        }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if self.mounted && !thread::panicking() {
            self.unmount();
        } else if self.mounted {
            let _ = mount::unmount_lazily(&self.place());
        }
    }
}

/// Runs a program, which has to succeed.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The document that a trim printed.
pub fn document(output: &Output) -> TrimDocument {
    let document: TrimDocument = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(document.schema, "trimtab/trim/1");
    document
}

/// Returns what the trim sent.
pub fn sent(target: &Target) -> &Sent {
    target.sent.as_ref().expect("it was trimmed")
}

/// How a trim of `path` ended, and its line of reason.
pub fn refused(arguments: &[&str], path: &Path) -> (Option<i32>, String) {
    let runtime = TempDir::new().unwrap();
    let mut command = Command::new(TRIMTAB);
    command.arg("trim").args(arguments).arg(path).env("RUNTIME_DIRECTORY", runtime.path());
    let output = command.output().unwrap();
    let reason = String::from_utf8(output.stderr).unwrap();
    assert!(reason.lines().count() <= 1, "{reason}");
    (output.status.code(), reason)
}
