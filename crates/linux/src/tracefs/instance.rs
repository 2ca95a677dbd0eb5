//! A tracefs instance of our own, so that nothing collides with other tracers.

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
use crate::mount;

/// Where tracefs is on kernels and systems that still mount it inside debugfs.
const IN_DEBUGFS: &str = "kernel/debug/tracing";

/// What each page of the buffer holds where the kernel (6.8 and later) lets it be chosen: large pages
/// take fewer calls to read.
const PAGE: Bytes = Bytes(64 << 10);

/// Room for a processor's statistics: nine lines of a name and a figure.
const STATS: usize = 1024;

/// Tells the recordings of one process apart.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// An instance. It goes when this does.
#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
    /// The numbers of the processors that there may be.
    cpus: Vec<usize>,
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
    /// Makes one, after removing those of recordings that are dead. `buffer` is for each processor.
    pub fn create(tracefs: &Path, sysfs: &Path, procfs: &Path, buffer: Bytes) -> Result<Self, TracefsError> {
        let instances = locate(tracefs, sysfs)?.join("instances");
        remove_dead(&instances, procfs);
        let pid = std::process::id();
        let born = birth(procfs, pid).unwrap_or(0);
        let path = instances.join(format!("trimtab-{pid}-{born}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        DirBuilder::new().create(&path).map_err(|source| refused(&path, sysfs, source))?;
        let mut instance = Self { path, cpus: Vec::new() };
        instance.cpus = instance.processors()?;
        instance.set("tracing_on", "0")?;
        instance.set("trace_clock", "mono")?;
        instance.set("options/overwrite", "0")?;
        // Without the names of all processes that ran, no probe sits on every context switch.
        instance.set("trace_options", "norecord-cmd")?;
        // Kernels before 6.8 have pages of 4 KiB, and one without memory keeps to them.
        _ = instance.set("buffer_subbuf_size_kb", &(PAGE.0 >> 10).to_string());
        instance.set("buffer_size_kb", &(buffer.0 >> 10).to_string()).map_err(|error| match error {
            TracefsError::Set { source, .. } => TracefsError::NoBuffer { buffer, source },
            other => other,
        })?;
        Ok(instance)
    }

    /// Writes `value` to one of its files.
    pub fn set(&self, file: &str, value: &str) -> Result<(), TracefsError> {
        let path = self.path.join(file);
        OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|source| TracefsError::Set { path, value: value.to_owned(), source })
    }

    /// The layout of the event `event`, such as `block/block_rq_issue`; none where the kernel has no
    /// such event.
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

    /// The layout of a page of its buffers.
    pub fn page_layout(&self) -> Result<PageLayout, TracefsError> {
        let path = self.path.join("events/header_page");
        // The kernel answers the first read only, so it must have room for all.
        let mut text = [0; 4096];
        let length = File::open(&path)
            .and_then(|mut file| file.read(&mut text))
            .map_err(|source| TracefsError::Read { path: path.clone(), source })?;
        PageLayout::parse(&String::from_utf8_lossy(&text[..length]))
            .ok_or_else(|| TracefsError::Malformed { path, expected: "a page of the buffer".to_owned() })
    }

    /// The size of a page of its buffers.
    pub fn page_size(&self) -> usize {
        let kib = fs::read_to_string(self.path.join("buffer_subbuf_size_kb")).ok();
        let kib: Option<usize> = kib.and_then(|text| text.trim().parse().ok());
        kib.map_or(rustix::param::page_size(), |kib| kib << 10)
    }

    /// Lets the kernel tell of `event`, where `filter` holds; of every one where it is empty.
    pub fn enable(&self, event: &str, filter: &str) -> Result<(), TracefsError> {
        self.filter(event, filter)?;
        self.set(&format!("events/{event}/enable"), "1")
    }

    /// Lets the kernel tell of `event` only where `filter` holds; always where it is empty.
    pub fn filter(&self, event: &str, filter: &str) -> Result<(), TracefsError> {
        self.set(&format!("events/{event}/filter"), if filter.is_empty() { "0" } else { filter })
    }

    /// The buffer of every processor.
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

    /// How many events the kernel has dropped so far because they were not read in time.
    pub fn lost(&self) -> Result<u64, TracefsError> {
        let mut lost = 0;
        for cpu in &self.cpus {
            let path = self.path.join(format!("per_cpu/cpu{cpu}/stats"));
            // The kernel writes all of it anew for each read.
            let mut text = [0; STATS];
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
    /// Reads a page; none where there is nothing to read now.
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

/// Where tracefs is: at `tracefs`, where it is mounted if it isn't, or inside debugfs.
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

/// Why tracefs said no: lockdown, or that the user may not trace.
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

/// Removes the instances of recordings whose process is gone.
fn remove_dead(instances: &Path, procfs: &Path) {
    let Ok(entries) = fs::read_dir(instances) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((pid, born)) = name.to_str().and_then(owner) else { continue };
        if birth(procfs, pid) != Some(born) {
            // One that is still open elsewhere stays.
            _ = fs::remove_dir(entry.path());
        }
    }
}

/// The process and its birth in an instance's name, `trimtab-<pid>-<birth>-<number>`.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix("trimtab-")?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// When a process began, in clock ticks since boot; none where there is no such process.
fn birth(procfs: &Path, pid: u32) -> Option<u64> {
    let stat = fs::read(procfs.join(pid.to_string()).join("stat")).ok()?;
    // Its second field, the name, may hold anything, closing brackets too.
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = String::from_utf8_lossy(&stat[name_end + 1..]).into_owned();
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// The events that a processor's `stats` say were lost.
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
            // Some is read while there is more, so that what was lost is in the middle.
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
    fn instances_of_the_dead_are_known() {
        let procfs = tempfile::tempdir().unwrap();
        let instances = tempfile::tempdir().unwrap();
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9 9";
        fs::create_dir(procfs.path().join("7")).unwrap();
        fs::write(procfs.path().join("7/stat"), stat).unwrap();
        assert_eq!(birth(procfs.path(), 7), Some(4711));
        assert_eq!(birth(procfs.path(), 8), None);
        let names = ["trimtab-7-4711-0", "trimtab-7-4710-0", "trimtab-8-4711-3", "other", "trimtab-x"];
        names.iter().for_each(|name| fs::create_dir(instances.path().join(name)).unwrap());
        remove_dead(instances.path(), procfs.path());
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
    fn what_is_wrong_with_tracefs_is_said() {
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
