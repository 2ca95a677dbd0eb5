//! Finds out which tasks share a table of file descriptors.
#![allow(unsafe_code)]

use std::ffi::c_long;

/// The operation of `kcmp` that compares the tables of file descriptors; see `linux/kcmp.h`.
const KCMP_FILES: c_long = 2;

/// Whether the tasks `one` and `other` have one table of file descriptors; false where that can't be told.
pub(crate) fn share_descriptors(one: u32, other: u32) -> bool {
    let [one, other] = [one, other].map(|task| task as c_long);
    // SAFETY: kcmp takes five numbers and no memory of ours. KCMP_FILES does not use the last two.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn tables_of_two_processes_are_two() {
        let own = std::process::id();
        assert!(share_descriptors(own, own));
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(!share_descriptors(own, child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
