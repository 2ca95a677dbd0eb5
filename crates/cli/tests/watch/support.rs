//! What the tests share: a loop device, and a file system on it, that go when a test ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_lab::watch::Report;
use trimtab_linux::{loop_device, mount};

pub const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");

/// A loop device over a sparse file.
pub struct Loop {
    pub device: PathBuf,
    dir: TempDir,
}

impl Loop {
    pub fn new(size: Bytes) -> Self {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("backing");
        File::create(&file).unwrap().set_len(size.0).unwrap();
        let device = loop_device::attach(&file, Bytes(512)).unwrap();
        Self { device, dir }
    }

    /// The kernel's name of it.
    pub fn name(&self) -> &str {
        self.device.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = loop_device::detach(&self.device);
    }
}

/// A file system on a loop device of its own, mounted so that it discards what it frees.
pub struct Mounted {
    pub target: PathBuf,
    pub on: Loop,
}

impl Mounted {
    pub fn new(fstype: &str, make: &[&str], options: &str) -> Self {
        let on = Loop::new(Bytes(512 << 20));
        let made = Command::new(format!("mkfs.{fstype}")).args(make).arg(&on.device).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let target = on.dir.path().join("mounted");
        fs::create_dir(&target).unwrap();
        mount::mount(&on.device, &target, fstype, options).unwrap();
        Self { target, on }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A child that another test just forked has this test's files open until it executes.
        let patience = Instant::now() + Duration::from_secs(2);
        while mount::unmount(&self.target).is_err() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A verb `watch` that can be given more arguments.
pub fn watch(arguments: &[&str], targets: &[&Path]) -> Command {
    let mut command = Command::new(TRIMTAB);
    command.arg("watch").args(arguments).args(targets);
    command
}

/// The reports that were printed, a line each.
pub fn reports(stdout: &[u8]) -> Vec<Report> {
    let text = std::str::from_utf8(stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// What the program said, which has to be one line.
pub fn said(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}
