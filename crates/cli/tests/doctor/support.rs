//! Shared by the tests: stacks that are removed when a test ends, and running the doctor.

use std::path::Path;
use std::process::{Command, Output};

use trimtab_core::Bytes;
use trimtab_core::document::DoctorDocument;
use trimtab_core::document::doctor::Target;

use crate::mounts::{Loop, Mounted};

pub const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");

/// The size of a loop device: the smallest that every file system accepts.
pub const DISK: Bytes = Bytes(400 << 20);

/// A file system on a loop device whose file is on another, in memory. The fields are dropped in order.
pub struct OnLoop {
    pub upper: Mounted,
    pub device: Loop,
    pub lower: Mounted,
}

impl OnLoop {
    pub fn new(memory: &str, fstype: &str, options: &str) -> Self {
        let lower = Mounted::new(Path::new("memory"), memory, "");
        let device = Loop::new(&lower.target, DISK);
        let made = Command::new(format!("mkfs.{fstype}")).arg("-q").arg(&device.device).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let upper = Mounted::new(&device.device, fstype, options);
        Self { upper, device, lower }
    }
}

/// Runs the doctor.
pub fn doctor(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(TRIMTAB).arg("doctor").args(arguments).args(paths).output().unwrap()
}

/// Returns the doctor's document on one target.
pub fn target(arguments: &[&str], path: &Path) -> Target {
    let output = doctor(&[&["--json"], arguments].concat(), &[path]);
    let text = String::from_utf8(output.stdout).unwrap();
    let document: DoctorDocument = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(document.schema, "trimtab/doctor/1");
    assert_eq!(document.targets.len(), 1);
    document.targets.into_iter().next().unwrap()
}

/// Returns the kinds and names of a target's layers.
pub fn layers(target: &Target) -> Vec<(&str, &str)> {
    target.layers.iter().map(|layer| (layer.kind.as_str(), layer.name.as_str())).collect()
}
