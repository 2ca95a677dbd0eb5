//! What the tests share: stacks that go when a test ends, and the doctor's words.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::DoctorDocument;
use trimtab_core::document::doctor::Target;
use trimtab_linux::{loop_device, mount};

pub const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");

/// What is unmounted when it goes.
pub struct Mounted(pub PathBuf);

impl Mounted {
    pub fn new(source: &Path, target: PathBuf, fstype: &str, options: &str) -> Self {
        fs::create_dir_all(&target).unwrap();
        mount::mount(source, &target, fstype, options).unwrap();
        Self(target)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A child that another test just forked has this test's files open until it executes.
        let patience = Instant::now() + Duration::from_secs(2);
        while mount::unmount(&self.0).is_err() && Instant::now() < patience {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A loop device that is detached when it goes.
pub struct Loop(pub PathBuf);

impl Loop {
    /// One over a new sparse file in `directory`.
    pub fn new(directory: &Path) -> Self {
        let file = directory.join("image");
        File::create(&file).unwrap().set_len(400 << 20).unwrap();
        Self(loop_device::attach(&file, Bytes(512)).unwrap())
    }

    /// The kernel's name of it.
    pub fn name(&self) -> &str {
        self.0.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = loop_device::detach(&self.0);
    }
}

/// A file system on a loop device whose file is on another, in memory. The fields go in this order.
pub struct OnLoop {
    pub upper: Mounted,
    pub device: Loop,
    pub lower: Mounted,
    _dir: TempDir,
}

impl OnLoop {
    pub fn new(memory: &str, fstype: &str, options: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let lower = Mounted::new(Path::new("memory"), dir.path().join("lower"), memory, "");
        let device = Loop::new(&lower.0);
        let made = Command::new(format!("mkfs.{fstype}")).arg("-q").arg(&device.0).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let upper = Mounted::new(&device.0, dir.path().join("upper"), fstype, options);
        Self { upper, device, lower, _dir: dir }
    }
}

/// Runs the doctor.
pub fn doctor(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(TRIMTAB).arg("doctor").args(arguments).args(paths).output().unwrap()
}

/// What the doctor says of one target.
pub fn target(arguments: &[&str], path: &Path) -> Target {
    let output = doctor(&[&["--json"], arguments].concat(), &[path]);
    let text = String::from_utf8(output.stdout).unwrap();
    let document: DoctorDocument = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(document.schema, "trimtab/doctor/1");
    assert_eq!(document.targets.len(), 1);
    document.targets.into_iter().next().unwrap()
}

/// The kinds and names of a target's layers.
pub fn layers(target: &Target) -> Vec<(&str, &str)> {
    target.layers.iter().map(|layer| (layer.kind.as_str(), layer.name.as_str())).collect()
}
