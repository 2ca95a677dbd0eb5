//! The state of other processes.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::Path;

/// Returns the state of a process as a letter, such as `S` for one that sleeps, `D` for one that waits for a drive and cannot
/// be killed, and `T` for one that a signal stopped; none if there is no such process.
pub fn state(procfs: &Path, process: impl Display) -> Option<char> {
    stat(&procfs.join(process.to_string())).ok()?.first()?.chars().next()
}

/// Returns the words of `stat` after the name, from the state on, of the process or task with this directory in procfs.
pub(crate) fn stat(directory: &Path) -> io::Result<Vec<String>> {
    // `42 (name) Z 1 ...`; the name may have brackets too.
    let stat = fs::read(directory.join("stat"))?;
    let end = stat.iter().rposition(|byte| *byte == b')').map_or(0, |end| end + 1);
    Ok(String::from_utf8_lossy(&stat[end..]).split_whitespace().map(str::to_owned).collect())
}

/// Returns whether a signal or a debugger stopped the process.
pub fn is_stopped(procfs: &Path, process: impl Display) -> bool {
    matches!(state(procfs, process), Some('T' | 't'))
}

/// Returns the name of a process, with special characters escaped; empty if there is no such process.
pub fn name(procfs: &Path, process: impl Display) -> String {
    let name = fs::read(procfs.join(process.to_string()).join("comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\n').escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_is_known_by_its_state() {
        let procfs = tempfile::tempdir().unwrap();
        fs::create_dir(procfs.path().join("7")).unwrap();
        for (stat, letter) in [
            (&b"7 (trimtab) T 1 7"[..], Some('T')),
            (b"7 (trim) T b) t 1 7", Some('t')),
            (b"7 (trim) T \xff) S 1 7", Some('S')),
            (b"7 (trim)", None),
            (b"", None),
        ] {
            fs::write(procfs.path().join("7/stat"), stat).unwrap();
            assert_eq!(state(procfs.path(), 7), letter, "{stat:?}");
            assert_eq!(is_stopped(procfs.path(), 7), matches!(letter, Some('T' | 't')));
        }
        assert_eq!(state(procfs.path(), 8), None);
        fs::write(procfs.path().join("7/comm"), "a\tb\n").unwrap();
        assert_eq!((name(procfs.path(), 7), name(procfs.path(), 8)), ("a\\tb".to_owned(), String::new()));
    }
}
