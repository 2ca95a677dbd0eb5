//! Helpers that several test programs share.

#[allow(dead_code, reason = "not every test program mounts anything")]
pub mod mounted;
#[allow(dead_code, reason = "not every test program mounts anything")]
mod mounts;

use std::path::{Path, PathBuf};
use std::process::Command;

use trimtab_core::Bytes;
use trimtab_linux::block::BlockDevice;
use trimtab_linux::{SYSFS, loop_device};

/// Whether loop devices can be made here. Says why where not, and fails instead where CI is set.
pub fn possible() -> bool {
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let missing = if !root {
        "root"
    } else if !Path::new("/dev/loop-control").exists() {
        "/dev/loop-control"
    } else {
        return true;
    };
    assert!(std::env::var_os("CI").is_none(), "a test that needs {missing} cannot be skipped in CI");
    eprintln!("skipped: it needs {missing}");
    false
}

/// A loop device over a file of its own; it goes when this does.
pub struct Loop {
    pub device: PathBuf,
    directory: tempfile::TempDir,
}

impl Loop {
    /// One of `size`, full of zeros, with logical blocks of 512 bytes.
    pub fn new(size: Bytes) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::File::create(&file).unwrap().set_len(size.0).unwrap();
        let device = loop_device::attach(&file, Bytes(512)).unwrap();
        let attached = Self { device, directory };
        // What somebody set for an earlier device of this number is still so.
        let disk = BlockDevice::open(Path::new(SYSFS), &attached.device).unwrap();
        disk.set_discard_max(Bytes(2 << 30)).unwrap();
        attached
    }

    /// The file behind it.
    #[allow(dead_code, reason = "not every test program looks at it")]
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("file")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        loop_device::detach(&self.device).unwrap();
    }
}
