//! Describes this machine, for the documents that experiments write.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io, thread};

use trimtab_core::Bytes;
use trimtab_core::document::Environment;

use crate::cgroup;

/// A file of procfs that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}", path.display())]
pub struct EnvironmentError {
    path: PathBuf,
    source: io::Error,
}

/// The machine: kernel, architecture, processors and memory, and no tools; `procfs` is where procfs
/// is mounted.
///
/// # Errors
/// If `cpuinfo` or `meminfo` can't be read.
pub fn environment(procfs: &Path) -> Result<Environment, EnvironmentError> {
    let uname = rustix::system::uname();
    let cpuinfo = read(procfs, "cpuinfo")?;
    Ok(Environment {
        kernel: uname.release().to_string_lossy().into_owned(),
        architecture: uname.machine().to_string_lossy().into_owned(),
        processor: value(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
        processors: cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u32,
        memory: memory(procfs, "MemTotal")?,
        tools: Vec::new(),
    })
}

/// Returns whether this machine's kernel has at least the version `wanted`: its major and its minor number.
pub fn kernel_is_at_least(wanted: (u32, u32)) -> bool {
    is_at_least(&rustix::system::uname().release().to_string_lossy(), wanted)
}

/// Returns whether a kernel release, such as `6.12.3-arch1`, is at least `wanted`.
fn is_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(['.', '-', '+']).map_while(|part| part.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|found| found >= wanted)
}

/// Returns whether the clock stands still while a program runs, as in User Mode Linux in virtual time: a program that
/// waits for it in a loop waits for long. `sysfs` is where sysfs is mounted.
pub fn clock_stands_still(sysfs: &Path) -> bool {
    let source = sysfs.join("devices/system/clocksource/clocksource0/current_clocksource");
    fs::read_to_string(source).is_ok_and(|name| name.starts_with("time-travel-clock"))
}

/// How many processors this program may use; one if the kernel doesn't say.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The memory that new work can have without swapping, within the limits of this process' control groups; `procfs` and
/// `cgroups` are where procfs and control groups are mounted.
///
/// # Errors
/// If `meminfo` can't be read.
pub fn available_memory(procfs: &Path, cgroups: &Path) -> Result<Bytes, EnvironmentError> {
    let available = memory(procfs, "MemAvailable")?;
    Ok(cgroup::memory_left(procfs, cgroups).map_or(available, |left| left.min(available)))
}

/// How long the machine has been running; `procfs` is where procfs is mounted.
///
/// # Errors
/// If `uptime` can't be read.
pub fn uptime(procfs: &Path) -> Result<Duration, EnvironmentError> {
    let uptime = read(procfs, "uptime")?;
    let seconds = uptime.split('.').next().and_then(|seconds| seconds.parse().ok());
    Ok(Duration::from_secs(seconds.unwrap_or(0)))
}

/// A figure of `meminfo`, which counts in units of 1024 bytes; zero where it isn't there.
fn memory(procfs: &Path, name: &str) -> Result<Bytes, EnvironmentError> {
    let meminfo = read(procfs, "meminfo")?;
    let kib = value(&meminfo, name).and_then(|value| value.strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(Bytes(kib.unwrap_or(0) * 1024))
}

fn read(procfs: &Path, name: &str) -> Result<String, EnvironmentError> {
    let path = procfs.join(name);
    fs::read_to_string(&path).map_err(|source| EnvironmentError { path, source })
}

/// The value of the first line `name : value`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_of_user_mode_linux_stands_still() {
        let root = tempfile::tempdir().unwrap();
        assert!(!clock_stands_still(root.path()));
        let dir = root.path().join("devices/system/clocksource/clocksource0");
        fs::create_dir_all(&dir).unwrap();
        for (name, stands_still) in [("tsc\n", false), ("time-travel-clock\n", true)] {
            fs::write(dir.join("current_clocksource"), name).unwrap();
            assert_eq!(clock_stands_still(root.path()), stands_still);
        }
    }

    #[test]
    fn kernel_releases_are_compared() {
        assert!(is_at_least("6.11.0-arch1-1", (6, 11)) && is_at_least("7.0-rc1", (6, 11)));
        assert!(!is_at_least("6.1.0-40-amd64", (6, 11)) && !is_at_least("", (6, 11)));
        for (release, expected) in [
            ("6.18.44-fc", true),
            ("6.18-rc1", true),
            ("7.0.0", true),
            ("6.12.117+deb12-amd64", false),
            ("5.19.0", false),
            ("", false),
            ("unknown", false),
        ] {
            assert_eq!(is_at_least(release, (6, 18)), expected, "{release}");
        }
    }

    #[test]
    fn a_captured_machine_is_read() {
        let root = tempfile::tempdir().unwrap();
        let cpuinfo = "processor\t: 0\nmodel name\t: A : B\n\nprocessor\t: 1\nmodel name\t: A : B\n";
        fs::write(root.path().join("cpuinfo"), cpuinfo).unwrap();
        let meminfo = "MemTotal:       24684096 kB\nMemAvailable:   1024 kB\n";
        fs::write(root.path().join("meminfo"), meminfo).unwrap();
        let machine = environment(root.path()).unwrap();
        assert_eq!((machine.processor.as_str(), machine.processors), ("A : B", 2));
        assert_eq!(machine.memory, Bytes(24_684_096 * 1024));
        let available = || available_memory(root.path(), &root.path().join("cgroups")).unwrap();
        assert_eq!(available(), Bytes::MIB);
        fs::create_dir_all(root.path().join("self")).unwrap();
        fs::create_dir_all(root.path().join("cgroups/job")).unwrap();
        fs::write(root.path().join("self/cgroup"), "0::/job\n").unwrap();
        fs::write(root.path().join("cgroups/job/memory.max"), "4096\n").unwrap();
        assert_eq!(available(), Bytes(4096));
        fs::write(root.path().join("uptime"), "12345.67 23456.78\n").unwrap();
        assert_eq!(uptime(root.path()).unwrap(), Duration::from_secs(12_345));
        assert!(!machine.kernel.is_empty() && !machine.architecture.is_empty());
    }
}
