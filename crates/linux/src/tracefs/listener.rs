//! Records events until a command has ended and its writes, frees and discards have settled.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{RecordOptions, Recording, TracefsError};
use crate::block::{BlockDevice, DeviceNumber, NamedError, disks};
use crate::mount::{Mount, mounts};
use crate::{PROCFS, SYSFS, trim};
use trimtab_core::trace::{EventKind, TraceEvent, TraceHeader};

use trimtab_core::interrupt::Interrupt;

/// How often devices are checked while they settle.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The longest wait, beyond the quiet period, for devices that other processes keep busy.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How devices settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The mount points that were synced.
    pub synced: Vec<PathBuf>,
    /// How long that took.
    pub took: Duration,
    /// Whether they were still busy at the timeout, or when the user asked to stop.
    pub unsettled: bool,
}

/// A recording with its events that have not been taken yet. Dropping it ends the recording.
pub struct Listener {
    recording: Recording,
    events: Vec<TraceEvent>,
    /// How many frees and discards have come.
    changes: u64,
}

/// Returns the whole disks behind `targets`, which are devices, mount points or any files.
///
/// # Errors
/// The first target without a disk.
pub fn disks_behind(targets: &[PathBuf]) -> Result<Vec<BlockDevice>, NamedError> {
    let mut all = Vec::new();
    for target in targets {
        for disk in disks(Path::new(SYSFS), Path::new(PROCFS), target)? {
            if !all.contains(&disk) {
                all.push(disk);
            }
        }
    }
    Ok(all)
}

impl Listener {
    /// Starts to listen.
    ///
    /// # Errors
    /// Any [`TracefsError`]; nothing is left behind.
    pub fn start(options: &RecordOptions) -> Result<Self, TracefsError> {
        Ok(Self { recording: Recording::start(options)?, events: Vec::new(), changes: 0 })
    }

    /// Returns the header of the recording so far.
    pub fn header(&self) -> &TraceHeader {
        self.recording.header()
    }

    /// Takes the events that have come since the last call.
    pub fn take(&mut self) -> impl Iterator<Item = TraceEvent> {
        self.events.drain(..)
    }

    /// Waits for events, at most for `timeout`.
    ///
    /// # Errors
    /// Errors of the recording.
    pub fn follow(&mut self, timeout: Duration) -> Result<(), TracefsError> {
        self.recording.wait(timeout)?;
        let before = self.events.len();
        self.recording.read(&mut self.events)?;
        let counts = |event: &&TraceEvent| matches!(event.kind, EventKind::Free | EventKind::Discard);
        self.changes += self.events[before..].iter().filter(counts).count() as u64;
        Ok(())
    }

    /// Syncs the recorded file systems, and waits until no free and no discard has come for `quiet` and the
    /// devices have nothing in flight. File systems discard when they commit, and some free deleted files only
    /// then, so this repeats until a sync causes no more frees and discards, or the user asks to stop.
    /// `on_events` is called after each check, to take the events.
    ///
    /// # Errors
    /// Errors of the recording and of `on_events`.
    pub fn settle<E: From<TracefsError>>(
        &mut self,
        quiet: Duration,
        interrupt: &Interrupt,
        mut on_events: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Settled, E> {
        let started = Instant::now();
        loop {
            let before = self.changes;
            let synced = self.sync();
            let settled = self.rest(quiet, interrupt, &mut on_events)? && self.changes == before;
            if settled || interrupt.is_set() || started.elapsed() > quiet + TIMEOUT {
                return Ok(Settled { synced, took: started.elapsed(), unsettled: !settled });
            }
        }
    }

    /// Stops listening; the remaining events can then be taken.
    ///
    /// # Errors
    /// Errors of the recording.
    pub fn stop(&mut self) -> Result<(), TracefsError> {
        self.recording.stop(&mut self.events)
    }

    /// Syncs the file systems on the recorded devices, and returns their mount points.
    fn sync(&self) -> Vec<PathBuf> {
        let mounts = mounts(Path::new(PROCFS)).unwrap_or_default();
        let mut synced = mount_points(&mounts, |mount| self.is_of(mount));
        synced.retain(|mount_point| trim::sync(mount_point).is_ok());
        synced
    }

    /// Returns true if a mount is on a recorded device.
    fn is_of(&self, mount: &Mount) -> bool {
        let sysfs = Path::new(SYSFS);
        let device = BlockDevice::numbered(sysfs, mount.number);
        let disk =
            device.or_else(|| BlockDevice::open(sysfs, &mount.source).ok()).map(|device| device.whole());
        let Some(Ok(DeviceNumber { major, minor })) = disk.map(|disk| disk.number()) else { return false };
        self.header().devices.iter().any(|device| device.number == (major, minor))
    }

    /// Waits until there were no frees and discards for `quiet` and the devices were idle once in that time.
    /// Returns false at the timeout, or when the user asks to stop.
    fn rest<E: From<TracefsError>>(
        &mut self,
        quiet: Duration,
        interrupt: &Interrupt,
        on_events: &mut impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<bool, E> {
        let started = Instant::now();
        let (mut changes, mut since, mut idle) = (self.changes, started, false);
        while !idle || since.elapsed() < quiet {
            if interrupt.is_set() || started.elapsed() > quiet + TIMEOUT {
                return Ok(false);
            }
            self.follow(POLL_INTERVAL)?;
            on_events(self)?;
            if self.changes != changes {
                (changes, since, idle) = (self.changes, Instant::now(), false);
            }
            idle |= self.is_idle();
        }
        Ok(true)
    }

    /// Returns true if no device has requests in flight. A device that is gone has none.
    fn is_idle(&self) -> bool {
        let in_flight = |(major, minor)| {
            let device = BlockDevice::numbered(Path::new(SYSFS), DeviceNumber { major, minor })?;
            Some(device.counters().ok()?.in_flight)
        };
        self.header().devices.iter().all(|device| in_flight(device.number).unwrap_or(0) == 0)
    }
}

/// Returns the mount points for which `counts` is true, one per file system, without those that another
/// mount covers.
fn mount_points(mounts: &[Mount], counts: impl Fn(&Mount) -> bool) -> Vec<PathBuf> {
    let mut found: Vec<&Mount> = Vec::new();
    for (place, mount) in mounts.iter().enumerate() {
        let is_covered = mounts[place + 1..].iter().any(|later| later.target == mount.target);
        let is_known = found.iter().any(|known| known.number == mount.number);
        if !is_covered && !is_known && counts(mount) {
            found.push(mount);
        }
    }
    found.iter().map(|mount| mount.target.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covered_and_unrelated_mounts_are_not_synced() {
        let mount = |target: &str, minor, source: &str| Mount {
            id: 31,
            parent: 1,
            number: DeviceNumber { major: 7, minor },
            root: "/".into(),
            target: PathBuf::from(target),
            fstype: "ext4".to_owned(),
            source: PathBuf::from(source),
            options: String::new(),
            super_options: String::new(),
        };
        let mounts = [
            mount("/", 9, "/dev/vda"),
            mount("/covered", 0, "/dev/loop0"),
            mount("/covered", 8, "tmpfs"),
            mount("/a", 0, "/dev/loop0"),
            mount("/bind", 0, "/dev/loop0"),
            mount("/b", 1, "/dev/loop1"),
        ];
        let of_loops = |mount: &Mount| mount.source.starts_with("/dev/loop0") || mount.number.minor == 1;
        assert_eq!(mount_points(&mounts, of_loops), [PathBuf::from("/a"), PathBuf::from("/b")]);
    }
}
