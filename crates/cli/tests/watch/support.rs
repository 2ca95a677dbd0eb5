//! Shared by the tests of watch.

use std::env;
use std::path::Path;
use std::process::{Command, Output};

use trimtab_core::Bytes;
use trimtab_observe::watch::Report;

use crate::mounts::{Loop, Mounted};

pub const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");

/// Makes the file system `fstype` on a loop device of its own, and mounts it with `options`.
pub fn made(fstype: &str, make: &[&str], options: &str) -> (Loop, Mounted) {
    let on = Loop::new(&env::temp_dir(), Bytes(512 << 20));
    let made = Command::new(format!("mkfs.{fstype}")).args(make).arg(&on.device).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mounted = Mounted::new(&on.device, fstype, options);
    (on, mounted)
}

/// A small loop device.
pub fn small() -> Loop {
    Loop::new(&env::temp_dir(), Bytes(16 << 20))
}

/// Returns a `trimtab watch` command that can take more arguments.
pub fn watch(arguments: &[&str], targets: &[&Path]) -> Command {
    let mut command = Command::new(TRIMTAB);
    command.arg("watch").args(arguments).args(targets);
    command
}

/// Parses the printed reports, one per line.
pub fn reports(stdout: &[u8]) -> Vec<Report> {
    let text = std::str::from_utf8(stdout).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Returns stderr, and asserts that it is one line.
pub fn said(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}
