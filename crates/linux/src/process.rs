//! The state of other processes.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::param::clock_ticks_per_second;

/// Returns the state of a process as a letter, such as `S` for one that sleeps, `D` for one that waits for a drive and cannot
/// be killed, and `T` for one that a signal stopped; `None` if there is no such process.
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

/// Returns the processor time that a process has used, with all its threads and the children that it has waited for, as
/// `/proc/PID/stat` counts it: in ticks, mostly of 10 ms. None if there is no such process.
pub fn processor_time(procfs: &Path, process: impl Display) -> Option<Duration> {
    // proc_pid_stat(5): utime, stime, cutime and cstime are the fields 14 to 17, and the state is the third.
    let words = stat(&procfs.join(process.to_string())).ok()?;
    let ticks: u64 = words.get(11..15)?.iter().map(|word| word.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_secs(1).mul_f64(ticks as f64 / clock_ticks_per_second() as f64))
}

/// Returns for how long the machine's processors have run tasks since boot, those of the kernel too: `/proc/schedstat`, to the
/// last change of tasks. None where the kernel does not count it.
pub fn busy_time(procfs: &Path) -> Option<Duration> {
    // Documentation/scheduler/sched-stats.rst: the seventh figure of a processor, in nanoseconds.
    let text = fs::read_to_string(procfs.join("schedstat")).ok()?;
    let processors = text.lines().filter(|line| line.starts_with("cpu"));
    let nanos: Vec<u64> =
        processors.map(|line| line.split_whitespace().nth(7)?.parse().ok()).collect::<Option<_>>()?;
    (!nanos.is_empty()).then(|| Duration::from_nanos(nanos.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_read_from_the_kernels_files() {
        let procfs = tempfile::tempdir().unwrap();
        fs::create_dir(procfs.path().join("7")).unwrap();
        let stat = "7 (trim) tab) S 1 7 7 0 -1 4194560 100 0 0 0 250 30 15 5 20 0 3 0 100 0 0";
        fs::write(procfs.path().join("7/stat"), stat).unwrap();
        let ticks = Duration::from_secs(300) / clock_ticks_per_second() as u32;
        assert_eq!(processor_time(procfs.path(), 7), Some(ticks));
        assert_eq!(processor_time(procfs.path(), 8), None);
        assert_eq!(busy_time(procfs.path()), None);
        let schedstat = "version 15\ntimestamp 4294967296\ncpu0 0 0 0 0 0 0 2000000000 7 9\ndomain0 3 1 2 3\n\
                         cpu1 0 0 0 0 0 0 500000000 7 9\n";
        fs::write(procfs.path().join("schedstat"), schedstat).unwrap();
        assert_eq!(busy_time(procfs.path()), Some(Duration::from_millis(2500)));
    }

    #[test]
    fn processor_time_grows_with_work() {
        let own = || processor_time(Path::new(crate::PROCFS), "self").unwrap();
        let before = own();
        while own() < before + Duration::from_millis(50) {}
        assert!(busy_time(Path::new(crate::PROCFS)).is_none_or(|busy| busy >= own() - before));
    }

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
