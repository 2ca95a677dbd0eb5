//! What the tests of the canary share: file systems that go when a test ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::doctor::{Canary, Seen};
use trimtab_lab::doctor::canary::{CanaryError, canary};
use trimtab_lab::interrupt::Interrupt;
use trimtab_linux::stack::{Machine, Stack};
use trimtab_linux::{loop_device, mount};

/// Whether file systems can be made and mounted here. Says why where not, and fails instead where CI is set.
pub fn possible() -> bool {
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    assert!(root || std::env::var_os("CI").is_none(), "a test that needs root cannot be skipped in CI");
    if !root {
        eprintln!("skipped: it needs root");
    }
    root
}

/// A file behind a loop device.
pub struct Loop {
    pub device: PathBuf,
}

impl Loop {
    /// A new file of `size`, without a block of its own, in `directory`.
    pub fn new(directory: &Path, size: Bytes) -> Self {
        let path = directory.join("file");
        File::create(&path).unwrap().set_len(size.get()).unwrap();
        Self { device: loop_device::attach(&path, Bytes(512)).unwrap() }
    }

    /// The kernel's name for it.
    pub fn name(&self) -> &str {
        self.device.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = loop_device::detach(&self.device);
    }
}

/// A mount on a directory of its own.
pub struct Mounted {
    pub target: PathBuf,
    _dir: TempDir,
}

impl Mounted {
    /// Makes the file system `fs` on `devices` and mounts it with `options`.
    pub fn made(devices: &[&Path], fs: &str, options: &str) -> Self {
        Self::made_with(devices, fs, &[], options)
    }

    /// Makes the file system `fs` on `devices` with these arguments, and mounts it with `options`.
    pub fn made_with(devices: &[&Path], fs: &str, arguments: &[&str], options: &str) -> Self {
        let force = if fs == "ext4" { "-F" } else { "-f" };
        let mut maker = Command::new(format!("mkfs.{fs}"));
        let output = maker.args(["-q", force]).args(arguments).args(devices).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self::new(devices[0], fs, options)
    }

    /// Mounts `source` with `options`.
    pub fn new(source: &Path, fs: &str, options: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let target = dir.path().canonicalize().unwrap();
        mount::mount(source, &target, fs, options).unwrap();
        Self { target, _dir: dir }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A child that another test just forked has this test's files open until it executes.
        let patience = Instant::now() + Duration::from_secs(2);
        while mount::unmount(&self.target).is_err() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A tmpfs of `size` for a loop device's file: nothing lies below it.
pub fn memory(size: Bytes) -> Mounted {
    Mounted::new(Path::new("none"), "tmpfs", &format!("size={}", size.get()))
}

/// Sends a canary down the stack below `target`.
pub fn sent(target: &Path, interrupt: &Interrupt) -> Result<Canary, CanaryError> {
    canary(&Stack::of(&Machine::live(), target).unwrap(), interrupt)
}

/// A canary that proves something.
pub fn proved(target: &Path) -> Canary {
    sent(target, &Interrupt::never()).unwrap()
}

/// What `layer` saw.
pub fn seen<'a>(canary: &'a Canary, layer: &str) -> &'a Seen {
    canary.seen.iter().find(|seen| seen.layer == layer).unwrap()
}
