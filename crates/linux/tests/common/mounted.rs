//! File systems on loop devices.

use std::path::{Path, PathBuf};
use std::process::Command;

use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::mount;

use super::{Loop, mounts};

/// Runs a program that must succeed.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Unmounts what nothing holds for longer than a moment.
pub fn unmount(target: &Path) {
    mounts::unmount(target).unwrap();
}

/// A file system of a kind on a loop device, mounted; it is unmounted when this goes.
pub struct Mounted {
    pub scratch: Loop,
    pub directory: tempfile::TempDir,
}

impl Mounted {
    /// None where the tool that makes it isn't here, which CI does not forgive.
    pub fn new(kind: &str, size: Bytes, options: &str) -> Option<Self> {
        Self::made(kind, size, &[], options)
    }

    /// The same, made with these arguments.
    pub fn made(kind: &str, size: Bytes, arguments: &[&str], options: &str) -> Option<Self> {
        let scratch = Loop::new(size);
        let quiet = if kind == "ext4" { "-F" } else { "-f" };
        if Command::new(format!("mkfs.{kind}")).arg("-V").output().is_err() {
            assert!(
                std::env::var_os("CI").is_none(),
                "a test that needs mkfs.{kind} cannot be skipped in CI"
            );
            eprintln!("skipped: it needs mkfs.{kind}");
            return None;
        }
        let device = scratch.device.to_str().unwrap();
        run(&format!("mkfs.{kind}"), &[&["-q", quiet], arguments, &[device]].concat());
        let directory = tempfile::tempdir().unwrap();
        mount::mount(&scratch.device, directory.path(), kind, options).unwrap();
        Some(Self { scratch, directory })
    }

    /// Makes a file that is on the device when this returns.
    pub fn write(&self, name: &str, size: Bytes) -> PathBuf {
        let path = self.directory.path().join(name);
        let text: Vec<u8> = (0..size.0).map(|at| ((at * 31) >> 3) as u8 ^ at as u8).collect();
        std::fs::write(&path, text).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        path
    }

    pub fn unmount(&self) {
        unmount(self.directory.path());
    }

    pub fn sync(&self) {
        run("sync", &["-f", self.directory.path().to_str().unwrap()]);
    }

    /// Does what the file system has put off: XFS frees the space of deleted files in the background, past a sync.
    pub fn settle(&self) {
        for freezes in ["--freeze", "--unfreeze"] {
            run("fsfreeze", &[freezes, self.directory.path().to_str().unwrap()]);
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Where a file's bytes are in the file system's addresses, by `filefrag`.
pub fn extents_of(file: &Path) -> ExtentSet {
    let text = run("filefrag", &["-v", "-b1024", file.to_str().unwrap()]);
    let mut extents = ExtentSet::new();
    for line in text.lines() {
        let parts: Vec<_> = line.split([':', '.']).map(str::trim).filter(|part| !part.is_empty()).collect();
        if let [number, _, _, start, end, ..] = parts.as_slice()
            && number.parse::<u32>().is_ok()
        {
            let block = |text: &str| Bytes(text.parse::<u64>().unwrap() * 1024);
            extents.insert(Extent::new(block(start), block(end) + Bytes(1024)));
        }
    }
    extents
}
