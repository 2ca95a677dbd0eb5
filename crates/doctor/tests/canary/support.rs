//! Helpers of the canary's tests: file systems that go when a test ends.

use std::path::Path;
use std::process::Command;

use trimtab_core::Bytes;
use trimtab_core::document::doctor::{Canary, Seen};
use trimtab_core::interrupt::Interrupt;
use trimtab_doctor::canary::{CanaryError, Progress, canary};
use trimtab_linux::stack::{Machine, Stack};

use crate::mounts::Mounted;

/// Whether file systems can be made and mounted here. Says why where not, and fails instead where CI is set.
pub fn possible() -> bool {
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    assert!(root || std::env::var_os("CI").is_none(), "a test that needs root cannot be skipped in CI");
    if !root {
        eprintln!("skipped: it needs root");
    }
    root
}

/// Makes the file system `fs` on `devices` and mounts it with `options`.
pub fn made(devices: &[&Path], fs: &str, options: &str) -> Mounted {
    made_with(devices, fs, &[], options)
}

/// Makes the file system `fs` on `devices` with these arguments, and mounts it with `options`.
pub fn made_with(devices: &[&Path], fs: &str, arguments: &[&str], options: &str) -> Mounted {
    let force = if fs == "ext4" { "-F" } else { "-f" };
    let mut maker = Command::new(format!("mkfs.{fs}"));
    let output = maker.args(["-q", force]).args(arguments).args(devices).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Mounted::new(devices[0], fs, options)
}

/// A tmpfs of `size` for a loop device's file: nothing lies below it.
pub fn memory(size: Bytes) -> Mounted {
    Mounted::new(Path::new("none"), "tmpfs", &format!("size={}", size.get()))
}

/// Sends a canary down the stack below `target`.
pub fn sent(target: &Path, interrupt: &Interrupt) -> Result<Canary, CanaryError> {
    canary(&Stack::of(&Machine::live(), target).unwrap(), &mut Progress { interrupt, begins: &mut |_| {} })
}

/// A canary that proves something.
pub fn proved(target: &Path) -> Canary {
    sent(target, &Interrupt::never()).unwrap()
}

/// Returns the commands that `layer` saw.
pub fn seen<'a>(canary: &'a Canary, layer: &str) -> &'a Seen {
    canary.seen.iter().find(|seen| seen.layer == layer).unwrap()
}
