//! Devices and file systems that fail, freeze or hang on demand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use trimtab_linux::mount;

use crate::support::{SIZE, Volume, run};

/// A disk whose discards fail on demand, while all other I/O succeeds: a loop device over a file in an
/// overlay, on which punching holes fails while the lower file is append-only.
pub struct Failing {
    // Dropped in this order.
    pub volume: Volume,
    _overlay: Overlay,
    below: Volume,
}

/// The mount point of an overlay.
struct Overlay(TempDir);

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = mount::unmount_lazily(self.0.path());
    }
}

impl Failing {
    /// Mounts a file system on such a disk, whose discards still succeed.
    pub fn mounted(fstype: &str) -> Self {
        // Not every file system has files that can only be appended to.
        let below = Volume::mounted("ext4");
        let at = |name: &str| below.target.join(name);
        ["lower", "upper", "work"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
        let overlay = Overlay(TempDir::new().unwrap());
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| at(name).display().to_string());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        mount::mount(Path::new("overlay"), overlay.0.path(), "overlay", &options).unwrap();
        let volume =
            Volume::on_file(fstype, &overlay.0.path().join("backing"), SIZE, TempDir::new().unwrap());
        volume.mount();
        Self { volume, _overlay: overlay, below }
    }

    /// Sets whether discards fail from now on.
    pub fn set(&self, fails: bool) {
        let change = if fails { "+a" } else { "-a" };
        run(Command::new("chattr").arg(change).arg(self.below.target.join("upper/backing")));
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// A file system that is frozen until this is dropped.
pub struct Frozen(PathBuf);

impl Frozen {
    pub fn new(volume: &Volume) -> Self {
        run(Command::new("fsfreeze").arg("--freeze").arg(&volume.target));
        Self(volume.target.clone())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.0));
    }
}

/// A drive that hangs until this is dropped: the process that serves it is stopped.
pub struct Hung(Pid);

impl Hung {
    pub fn new(volume: &Volume) -> Self {
        let server = volume.server();
        kill_process(server, Signal::STOP).unwrap();
        Self(server)
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}
