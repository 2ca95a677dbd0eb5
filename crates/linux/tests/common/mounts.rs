//! Loop devices and mounts that go when a test ends. Tests of several crates take this file in by its path.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::{NamedTempFile, TempDir, TempPath};
use trimtab_core::Bytes;
use trimtab_linux::loop_device;
use trimtab_linux::mount::{self, MountError};

/// A sparse file behind a loop device.
pub struct Loop {
    pub device: PathBuf,
    _file: TempPath,
}

impl Loop {
    /// One over a new file of `size` in `directory`.
    pub fn new(directory: &Path, size: Bytes) -> Self {
        let file = NamedTempFile::new_in(directory).unwrap();
        file.as_file().set_len(size.get()).unwrap();
        let device = loop_device::attach(file.path(), Bytes(512)).unwrap();
        Self { device, _file: file.into_temp_path() }
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

/// A mount on a directory of its own.
pub struct Mounted {
    pub target: PathBuf,
    _dir: TempDir,
}

impl Mounted {
    /// Mounts the file system `fstype` on `source` with `options`.
    pub fn new(source: &Path, fstype: &str, options: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let target = dir.path().canonicalize().unwrap();
        mount::mount(source, &target, fstype, options).unwrap();
        Self { target, _dir: dir }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.target);
    }
}

/// Unmounts `target`, and retries for up to 2 s while it is busy. A child that another test just forked has this test's files open
/// until it executes, and whoever walks over a mount point keeps it busy for that moment.
pub fn unmount(target: &Path) -> Result<(), MountError> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match mount::unmount(target) {
            Err(MountError::Unmount { source, .. })
                if source.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}
