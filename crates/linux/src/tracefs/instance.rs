//! A tracefs instance of our own, so that other tracers are not disturbed.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::OFlags;
use trimtab_core::Bytes;

use super::error::TracefsError;
use super::format::{Format, PageLayout};
use super::guard::{Guard, PREFIX};
use crate::mount;
use crate::process::stat;

/// The directory of tracefs, below sysfs, on systems that still mount it inside debugfs.
const IN_DEBUGFS: &str = "kernel/debug/tracing";

/// The buffer's page size on kernels (6.8 and later) that let it be chosen: large pages take fewer calls to
/// read.
const PAGE_SIZE: Bytes = Bytes(64 << 10);

/// Room for a processor's statistics: nine lines of a name and a figure.
const STATS_SIZE: usize = 1024;

/// Distinguishes the instances of one process.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

/// A tracefs instance. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
    /// The numbers of all possible processors.
    cpus: Vec<usize>,
    _guard: Option<Guard>,
}

/// The buffer of one processor.
#[derive(Debug)]
pub(super) struct Pipe {
    file: File,
    path: PathBuf,
    /// Its processor's number.
    pub cpu: usize,
}

impl Instance {
    /// Creates an instance, after removing those of processes that have ended. `buffer` is the size for each
    /// processor.
    pub fn create(tracefs: &Path, sysfs: &Path, procfs: &Path, buffer: Bytes) -> Result<Self, TracefsError> {
        let instances = locate(tracefs, sysfs)?.join("instances");
        remove_stale(&instances, procfs);
        let pid = std::process::id();
        let start_time = start_time_of(procfs, pid).unwrap_or(0);
        let path = instances
            .join(format!("{PREFIX}{pid}-{start_time}-{}", NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)));
        let guard = Guard::start(&path);
        DirBuilder::new().create(&path).map_err(|source| refused(&path, sysfs, source))?;
        let mut instance = Self { path, cpus: Vec::new(), _guard: guard };
        instance.cpus = instance.processors()?;
        instance.set("tracing_on", "0")?;
        instance.set("trace_clock", "mono")?;
        instance.set("options/overwrite", "0")?;
        // Don't record process names: that takes a probe on every context switch.
        instance.set("trace_options", "norecord-cmd")?;
        // Kernels before 6.8 have pages of 4 KiB, and so do later ones that are short of memory.
        _ = instance.set("buffer_subbuf_size_kb", &(PAGE_SIZE.0 >> 10).to_string());
        instance.set("buffer_size_kb", &(buffer.0 >> 10).to_string()).map_err(|error| match error {
            TracefsError::Set { source, .. } => TracefsError::NoBuffer { buffer, source },
            other => other,
        })?;
        Ok(instance)
    }

    /// Writes `value` to the instance's file `file`.
    pub fn set(&self, file: &str, value: &str) -> Result<(), TracefsError> {
        let path = self.path.join(file);
        OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|source| TracefsError::Set { path, value: value.to_owned(), source })
    }

    /// Adds `value` to the instance's list `file`.
    pub fn append(&self, file: &str, value: &str) -> Result<(), TracefsError> {
        let path = self.path.join(file);
        OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|source| TracefsError::Set { path, value: value.to_owned(), source })
    }

    /// Opens the instance's file `file` for reading without waiting.
    pub fn open(&self, file: &str) -> Result<File, TracefsError> {
        let path = self.path.join(file);
        let flags = OFlags::NONBLOCK.bits() as i32;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        opened.map_err(|source| TracefsError::Read { path, source })
    }

    /// Returns the layout of the event `event`, such as `block/block_rq_issue`; `None` if the kernel lacks it.
    pub fn format(&self, event: &str) -> Result<Option<Format>, TracefsError> {
        let path = self.path.join("events").join(event).join("format");
        match fs::read_to_string(&path) {
            Ok(text) => match Format::parse(&text) {
                Some(format) => Ok(Some(format)),
                None => Err(TracefsError::Malformed { path, expected: "an event".to_owned() }),
            },
            Err(source) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(TracefsError::Read { path, source }),
        }
    }

    /// Returns the layout of a buffer page.
    pub fn page_layout(&self) -> Result<PageLayout, TracefsError> {
        let path = self.path.join("events/header_page");
        // The kernel answers only the first read, so it must have room for everything.
        let mut text = [0; 4096];
        let length = File::open(&path)
            .and_then(|mut file| file.read(&mut text))
            .map_err(|source| TracefsError::Read { path: path.clone(), source })?;
        PageLayout::parse(&String::from_utf8_lossy(&text[..length]))
            .ok_or_else(|| TracefsError::Malformed { path, expected: "a page of the buffer".to_owned() })
    }

    /// Returns the size of a buffer page.
    pub fn page_size(&self) -> usize {
        let kib = fs::read_to_string(self.path.join("buffer_subbuf_size_kb")).ok();
        let kib: Option<usize> = kib.and_then(|text| text.trim().parse().ok());
        kib.map_or(rustix::param::page_size(), |kib| kib << 10)
    }

    /// Enables `event` where `filter` holds; always if it is empty.
    pub fn enable(&self, event: &str, filter: &str) -> Result<(), TracefsError> {
        self.filter(event, filter)?;
        self.set(&format!("events/{event}/enable"), "1")
    }

    /// Sets the filter of `event`; an empty one passes everything.
    pub fn filter(&self, event: &str, filter: &str) -> Result<(), TracefsError> {
        self.set(&format!("events/{event}/filter"), if filter.is_empty() { "0" } else { filter })
    }

    /// Opens the buffer of every processor.
    pub fn pipes(&self) -> Result<Vec<Pipe>, TracefsError> {
        let mut pipes = Vec::new();
        for &cpu in &self.cpus {
            let path = self.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let file = OpenOptions::new()
                .read(true)
                .custom_flags(OFlags::NONBLOCK.bits() as i32)
                .open(&path)
                .map_err(|source| TracefsError::Read { path: path.clone(), source })?;
            pipes.push(Pipe { file, path, cpu });
        }
        Ok(pipes)
    }

    /// Returns how many events the kernel has dropped so far because they were not read in time.
    pub fn lost(&self) -> Result<u64, TracefsError> {
        let mut lost = 0;
        for cpu in &self.cpus {
            let path = self.path.join(format!("per_cpu/cpu{cpu}/stats"));
            // The kernel renders the whole text anew for each read.
            let mut text = [0; STATS_SIZE];
            let length = File::open(&path)
                .and_then(|mut file| file.read(&mut text))
                .map_err(|source| TracefsError::Read { path: path.clone(), source })?;
            lost += lost_in(&String::from_utf8_lossy(&text[..length])).ok_or_else(|| {
                TracefsError::Malformed { path, expected: "a buffer's statistics".to_owned() }
            })?;
        }
        Ok(lost)
    }

    fn processors(&self) -> Result<Vec<usize>, TracefsError> {
        let path = self.path.join("per_cpu");
        let entries = fs::read_dir(&path).map_err(|source| TracefsError::Read { path, source })?;
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut cpus: Vec<_> =
            names.filter_map(|name| name.to_str()?.strip_prefix("cpu")?.parse().ok()).collect();
        cpus.sort_unstable();
        Ok(cpus)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        _ = self.set("tracing_on", "0");
        _ = fs::remove_dir(&self.path);
    }
}

impl Pipe {
    /// Reads a page and returns its length; zero if there is nothing to read now.
    pub fn read(&self, page: &mut [u8]) -> Result<usize, TracefsError> {
        match rustix::io::read(&self.file, page) {
            Ok(length) => Ok(length),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(0),
            Err(errno) => Err(TracefsError::Read { path: self.path.clone(), source: errno.into() }),
        }
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns where tracefs is: at `tracefs`, mounted there if necessary, or inside debugfs.
fn locate(tracefs: &Path, sysfs: &Path) -> Result<PathBuf, TracefsError> {
    let inside = sysfs.join(IN_DEBUGFS);
    for place in [tracefs, &inside] {
        match fs::metadata(place.join("instances")) {
            Ok(_) => return Ok(place.to_owned()),
            Err(source) if source.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(refused(place, sysfs, source)),
        }
    }
    let absent = |source| TracefsError::NoTracefs { tracefs: tracefs.to_owned(), source };
    if !tracefs.is_dir() {
        return Err(absent(None));
    }
    match mount::mount(Path::new("tracefs"), tracefs, "tracefs", "nosuid,nodev,noexec") {
        Ok(()) => Ok(tracefs.to_owned()),
        Err(mount::MountError::Mount { source, .. }) if source.kind() == ErrorKind::PermissionDenied => {
            Err(refused(tracefs, sysfs, source))
        }
        Err(mount::MountError::Mount { source, .. }) => Err(absent(Some(source))),
        Err(other) => Err(other.into()),
    }
}

/// Returns why tracefs refused access: lockdown, or missing rights.
fn refused(path: &Path, sysfs: &Path, source: io::Error) -> TracefsError {
    let path = path.to_owned();
    let lockdown = fs::read_to_string(sysfs.join("kernel/security/lockdown")).unwrap_or_default();
    match source.kind() {
        ErrorKind::PermissionDenied if lockdown.contains("[confidentiality]") => {
            TracefsError::LockedDown { path, source }
        }
        ErrorKind::PermissionDenied => TracefsError::Denied { path, source },
        _ => TracefsError::Set { path, value: "a new instance".to_owned(), source },
    }
}

/// Removes the instances of processes that have ended.
fn remove_stale(instances: &Path, procfs: &Path) {
    let Ok(entries) = fs::read_dir(instances) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((pid, start_time)) = name.to_str().and_then(owner) else { continue };
        if start_time_of(procfs, pid) != Some(start_time) {
            // An instance that another process has open stays.
            _ = fs::remove_dir(entry.path());
        }
    }
}

/// The process and its start time in an instance's name, `trimtab-<pid>-<start time>-<number>`.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Returns when a process started, in clock ticks since boot; `None` if there is no such process.
fn start_time_of(procfs: &Path, pid: u32) -> Option<u64> {
    stat(&procfs.join(pid.to_string())).ok()?.get(19)?.parse().ok()
}

/// Returns the number of lost events in a processor's `stats`.
fn lost_in(stats: &str) -> Option<u64> {
    let count = |name: &str| {
        let value = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        value.trim().parse::<u64>().ok()
    };
    Some(count("overrun")? + count("commit overrun").unwrap_or(0) + count("dropped events").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracefs::page;
    use crate::{PROCFS, SYSFS};

    #[test]
    fn every_event_is_read_or_counted_as_lost() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "a test that needs root cannot be skipped in CI");
            eprintln!("skipped: it needs root");
            return;
        }
        const EVENTS: u64 = 100_000;
        let tracefs = Path::new("/sys/kernel/tracing");
        let instance =
            Instance::create(tracefs, Path::new(SYSFS), Path::new(PROCFS), Bytes(256 << 10)).unwrap();
        instance.set("tracing_on", "1").unwrap();
        let mut marker = OpenOptions::new().write(true).open(instance.path.join("trace_marker")).unwrap();
        let pipes = instance.pipes().unwrap();
        let layout = instance.page_layout().unwrap();
        let mut page = vec![0; instance.page_size()];
        let (mut read, mut last) = (0, vec![0; pipes.len()]);
        for number in 0..EVENTS {
            // Part of it is read in between, so that the lost events are in the middle.
            _ = marker.write(&vec![b'x'; 1 + number as usize % 200]); // refused where it is full
            if number % 30_000 == 0 || number + 1 == EVENTS {
                for (pipe, last) in pipes.iter().zip(&mut last) {
                    while let length @ 1.. = pipe.read(&mut page).unwrap() {
                        page::decode(&layout, &page[..length], |at, _| {
                            read += 1;
                            assert!(at >= *last);
                            *last = at;
                        })
                        .unwrap();
                    }
                }
            }
        }
        let lost = instance.lost().unwrap();
        assert_eq!(read + lost, EVENTS, "read {read}, lost {lost}");
        assert!(lost > 0 && read > 0);
    }

    #[test]
    fn instances_of_ended_processes_are_removed() {
        let procfs = tempfile::tempdir().unwrap();
        let instances = tempfile::tempdir().unwrap();
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9 9";
        fs::create_dir(procfs.path().join("7")).unwrap();
        fs::write(procfs.path().join("7/stat"), stat).unwrap();
        assert_eq!(start_time_of(procfs.path(), 7), Some(4711));
        assert_eq!(start_time_of(procfs.path(), 8), None);
        let names = ["trimtab-7-4711-0", "trimtab-7-4710-0", "trimtab-8-4711-3", "other", "trimtab-x"];
        names.iter().for_each(|name| fs::create_dir(instances.path().join(name)).unwrap());
        remove_stale(instances.path(), procfs.path());
        let left = |name: &&&str| instances.path().join(name).exists();
        assert_eq!(
            names.iter().filter(left).collect::<Vec<_>>(),
            [&"trimtab-7-4711-0", &"other", &"trimtab-x"]
        );
    }

    #[test]
    fn statistics_are_added_up() {
        let stats = "entries: 5\noverrun: 7\ncommit overrun: 2\nbytes: 9\ndropped events: 30\n";
        assert_eq!(lost_in(stats), Some(39));
        assert_eq!(lost_in("overrun: 7\n"), Some(7));
        assert_eq!(lost_in("nothing"), None);
    }

    #[test]
    fn errors_name_the_problem_with_tracefs() {
        let root = tempfile::tempdir().unwrap();
        let absent = root.path().join("tracing");
        let locate = || super::locate(&absent, root.path()).unwrap_err().to_string();
        assert!(locate().contains("mount -t tracefs"), "{}", locate());
        let refused = || super::refused(&absent, root.path(), io::Error::from_raw_os_error(1)).to_string();
        assert!(refused().contains("run as root"), "{}", refused());
        fs::create_dir_all(root.path().join("kernel/security")).unwrap();
        fs::write(root.path().join("kernel/security/lockdown"), "none integrity [confidentiality]\n")
            .unwrap();
        assert!(refused().contains("locked down"), "{}", refused());
        fs::create_dir_all(root.path().join(IN_DEBUGFS).join("instances")).unwrap();
        assert_eq!(super::locate(&absent, root.path()).unwrap(), root.path().join(IN_DEBUGFS));
    }
}
