//! Debian's kernel 6.12, which `vm/run` boots.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The exit code of `vm/run` if the machine lacks something it needs.
const CANNOT: i32 = 125;

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs `vm/run`, as [`ran`] does.
pub fn run(arguments: &[&str]) -> Option<Output> {
    ran("vm/run", arguments)
}

/// Runs a program of `vm/` in the repository's root. If this machine can't, prints the reason and returns
/// none, or fails if CI is set.
pub fn ran(program: &str, arguments: &[&str]) -> Option<Output> {
    let output = Command::new(program).args(arguments).current_dir(repository()).output().unwrap();
    if output.status.code() != Some(CANNOT) {
        return Some(output);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(std::env::var_os("CI").is_none(), "a test of another kernel cannot be skipped in CI: {why}");
    eprintln!("skipped: {why}");
    None
}
