//! Copies of the program, for users and places that cannot reach the original.

use std::path::Path;
use std::process::Command;

/// Copies the program to `to`. A process of its own does so: one that another test forks meanwhile would inherit the file open
/// for writing, and the kernel runs no such file.
pub fn copy_program(to: &Path) {
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_trimtab")).arg(to).status().unwrap();
    assert!(copied.success(), "cp {}: {copied}", to.display());
}
