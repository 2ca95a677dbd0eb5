//! Helpers that several test programs share.

use std::path::Path;
use std::process::Command;

/// Returns whether drives and file systems can be made and mounted here. If not, prints the reason, or fails
/// if CI is set.
pub fn possible() -> bool {
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
    let missing = if !root {
        "root"
    } else if !Path::new("/dev/fuse").exists() {
        "/dev/fuse"
    } else {
        return true;
    };
    assert!(std::env::var_os("CI").is_none(), "a test that needs {missing} cannot be skipped in CI");
    eprintln!("skipped: it needs {missing}");
    false
}
