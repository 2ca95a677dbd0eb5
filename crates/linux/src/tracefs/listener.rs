//! Listening to the kernel until a command has ended and all that it caused has happened.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{RecordOptions, Recording, TracefsError};
use crate::block::{BlockDevice, DeviceNumber, NamedError, disks};
use crate::mount::{Mount, mounts};
use crate::{PROCFS, SYSFS, trim};
use trimtab_core::trace::{Kind, TraceEvent, TraceHeader};

use trimtab_core::interrupt::Interrupt;

/// How often devices are looked at while they settle.
const GLANCE: Duration = Duration::from_millis(10);
/// The longest wait for devices that others keep busy, beyond what has to be quiet.
const PATIENCE: Duration = Duration::from_secs(30);

/// How devices came to rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The mount points that were synced.
    pub synced: Vec<PathBuf>,
    /// How long it took.
    pub took: Duration,
    /// Whether they still had discards, or other work all the time, when patience ran out or the user
    /// asked to stop.
    pub unsettled: bool,
}

/// A recording, and the events of it that nobody has taken yet. Dropping it ends it.
pub struct Listener {
    recording: Recording,
    events: Vec<TraceEvent>,
    /// How many frees and discards there were.
    told: u64,
}

/// The whole disks behind `targets`, which are devices, mount points or any files.
///
/// # Errors
/// The first target that has none.
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
    /// Begins to listen.
    ///
    /// # Errors
    /// Any [`TracefsError`]; nothing is left behind.
    pub fn start(options: &RecordOptions) -> Result<Self, TracefsError> {
        Ok(Self { recording: Recording::start(options)?, events: Vec::new(), told: 0 })
    }

    /// What holds for the recording so far.
    pub fn header(&self) -> &TraceHeader {
        self.recording.header()
    }

    /// Takes the events that have come.
    pub fn take(&mut self) -> impl Iterator<Item = TraceEvent> {
        self.events.drain(..)
    }

    /// Waits for events for `timeout` at most.
    ///
    /// # Errors
    /// What the recording fails with.
    pub fn follow(&mut self, timeout: Duration) -> Result<(), TracefsError> {
        self.recording.wait(timeout)?;
        let before = self.events.len();
        self.recording.read(&mut self.events)?;
        let tells = |event: &&TraceEvent| matches!(event.kind, Kind::Free | Kind::Discard);
        self.told += self.events[before..].iter().filter(tells).count() as u64;
        Ok(())
    }

    /// Brings what the file systems listened to hold in memory to their devices, and waits until no
    /// free and no discard has come for `quiet` and the devices have nothing in flight. A file system
    /// discards when it commits, and some free what was deleted only then, so it syncs them until a
    /// sync brings nothing more, or the user asks to stop. `taken` is called after every glance, to take
    /// the events.
    ///
    /// # Errors
    /// What the recording, or `taken`, fails with.
    pub fn settle<E: From<TracefsError>>(
        &mut self,
        quiet: Duration,
        interrupt: &Interrupt,
        mut taken: impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<Settled, E> {
        let started = Instant::now();
        loop {
            let before = self.told;
            let synced = self.sync();
            let settled = self.rest(quiet, interrupt, &mut taken)? && self.told == before;
            if settled || interrupt.is_set() || started.elapsed() > quiet + PATIENCE {
                return Ok(Settled { synced, took: started.elapsed(), unsettled: !settled });
            }
        }
    }

    /// Stops listening; what is left can then be taken.
    ///
    /// # Errors
    /// What the recording fails with.
    pub fn stop(&mut self) -> Result<(), TracefsError> {
        self.recording.stop(&mut self.events)
    }

    /// Syncs the file systems on the devices listened to, and returns where they are mounted.
    fn sync(&self) -> Vec<PathBuf> {
        let mounts = mounts(Path::new(PROCFS)).unwrap_or_default();
        let mut mount_points = seen(&mounts, |mount| self.is_of(mount));
        mount_points.retain(|mount_point| trim::sync(mount_point).is_ok());
        mount_points
    }

    /// Whether a mount is of a device listened to.
    fn is_of(&self, mount: &Mount) -> bool {
        let sysfs = Path::new(SYSFS);
        let device = BlockDevice::numbered(sysfs, mount.number);
        let disk =
            device.or_else(|| BlockDevice::open(sysfs, &mount.source).ok()).map(|device| device.whole());
        let Some(Ok(DeviceNumber { major, minor })) = disk.map(|disk| disk.number()) else { return false };
        self.header().devices.iter().any(|device| device.number == (major, minor))
    }

    /// Waits until nothing was told of for `quiet` and the devices were idle in that time; false where
    /// that doesn't come.
    fn rest<E: From<TracefsError>>(
        &mut self,
        quiet: Duration,
        interrupt: &Interrupt,
        taken: &mut impl FnMut(&mut Self) -> Result<(), E>,
    ) -> Result<bool, E> {
        let started = Instant::now();
        let (mut told, mut since, mut idle) = (self.told, started, false);
        while !idle || since.elapsed() < quiet {
            if interrupt.is_set() || started.elapsed() > quiet + PATIENCE {
                return Ok(false);
            }
            self.follow(GLANCE)?;
            taken(self)?;
            if self.told != told {
                (told, since, idle) = (self.told, Instant::now(), false);
            }
            idle |= self.is_idle();
        }
        Ok(true)
    }

    /// Whether no device has requests in flight. One that is gone has none.
    fn is_idle(&self) -> bool {
        let in_flight = |(major, minor)| {
            let device = BlockDevice::numbered(Path::new(SYSFS), DeviceNumber { major, minor })?;
            Some(device.counters().ok()?.in_flight)
        };
        self.header().devices.iter().all(|device| in_flight(device.number).unwrap_or(0) == 0)
    }
}

/// Where the mounts are that count, each file system once: not where another one was mounted over it.
fn seen(mounts: &[Mount], counts: impl Fn(&Mount) -> bool) -> Vec<PathBuf> {
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
    fn what_is_covered_or_of_others_is_not_synced() {
        let mount = |target: &str, minor, source: &str| Mount {
            id: 31,
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
        assert_eq!(seen(&mounts, of_loops), [PathBuf::from("/a"), PathBuf::from("/b")]);
    }
}
