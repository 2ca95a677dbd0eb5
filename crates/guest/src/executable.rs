//! Programs that tests write and then run. Tests of several crates take this file in by its path.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Writes `content` to the executable file `path`.
///
/// Another process writes it. If this one did, a child that another test starts meanwhile could hold the file open for
/// writing until it runs its own program, and this program could not be run until then (`ETXTBSY`).
pub(super) fn make_executable(path: &Path, content: &[u8]) {
    let source = path.with_extension("content");
    fs::write(&source, content).unwrap();
    let status = Command::new("install").args(["-m", "755"]).arg(&source).arg(path).status().unwrap();
    assert!(status.success(), "install ended with {status}");
    fs::remove_file(&source).unwrap();
}
