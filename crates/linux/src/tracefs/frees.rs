//! The frees of mounted file systems, reported to a service once a trim would find the extents free, in the
//! addresses that a trim takes.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trimtab_core::Bytes;

use super::buffers::Buffers;
use super::devices::KernelNumber;
use super::error::TracefsError;
use super::event::FsId;
use super::file_systems::identity;
use super::free_tracker::{Followed, FreeTracker};
use super::freed::Freed;
use super::instance::Instance;
use super::layout::{Layout, LayoutError};
use super::source::Sources;
use super::{SHORTEST_WAIT, SLACK, clock};
use crate::block::{BlockDevice, DeviceNumber};
use crate::file_system_kind::FileSystemKind;
use crate::mount::{self, Mount};

/// The delay after a first event before reading again: reading many events at once costs less than reading
/// each as it comes.
const BATCHING: Duration = Duration::from_millis(200);

/// While events are batched, a buffer becomes readable at this fill level in percent.
const FULL_ENOUGH: &str = "50";

/// Fewer events than this can't fill the smallest buffer, so none can have been lost.
const FILLS_A_BUFFER: usize = 500;

/// How long a drive may take to show a superblock that was [read ahead](Frees::read_ahead).
const TIMEOUT: Duration = Duration::from_secs(1);

/// Options of [`Frees`].
#[derive(Debug, Clone)]
pub struct FreesOptions {
    /// Whether to report allocations, too.
    pub allocations: bool,
    /// The size of each processor's buffer in kernel memory.
    pub buffer: Bytes,
    /// Where tracefs is mounted; it is mounted there if necessary.
    pub tracefs: PathBuf,
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
    /// Where procfs is mounted.
    pub procfs: PathBuf,
}

impl Default for FreesOptions {
    /// Frees only, with buffers of 512 KiB.
    fn default() -> Self {
        Self {
            allocations: false,
            buffer: Bytes(512 << 10),
            tracefs: PathBuf::from("/sys/kernel/tracing"),
            sysfs: PathBuf::from(crate::SYSFS),
            procfs: PathBuf::from(crate::PROCFS),
        }
    }
}

/// The period for which a file system's frees are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeCoverage {
    /// All frees since it was mounted are reported.
    SinceMount,
    /// Frees are reported from now on; earlier ones are unknown.
    FromNow,
}

/// The stream of frees of ext4, XFS and btrfs. Dropping it removes its tracefs instance.
///
/// Its user waits until one of [`Self::files`] is readable, at most as long as the last [`Self::read`]
/// returned, and reads again. While no file system frees anything, only the commits of ext4 wake the user.
#[derive(Debug)]
pub struct Frees {
    options: FreesOptions,
    sources: Sources,
    tracker: FreeTracker,
    left_out: Vec<KernelNumber>,
    began: Instant,
    last_read: Instant,
    /// Whether events are being batched.
    is_batching: bool,
    lost: u64,
    // Dropped before the instance.
    buffers: Buffers,
    instance: Instance,
}

impl Frees {
    /// Starts to listen. Events of file systems that are mounted later are kept until these are followed.
    ///
    /// # Errors
    /// Any [`TracefsError`]; nothing is left behind.
    pub fn start(options: &FreesOptions) -> Result<Self, TracefsError> {
        let FreesOptions { tracefs, sysfs, procfs, .. } = options;
        let instance = Instance::create(tracefs, sysfs, procfs, options.buffer)?;
        let mut sources = Sources::default();
        sources.enable_trimmable(&instance, options.allocations)?;
        let buffers = Buffers::open(&instance, options.buffer)?;
        // Kernels before 5.0 have no such file.
        _ = instance.set("buffer_percent", "0");
        instance.set("tracing_on", "1")?;
        let (clock, began) = (clock(), Instant::now());
        let mounted = mount::mounts(procfs)?.iter().filter_map(identity).collect();
        Ok(Self {
            options: options.clone(),
            sources,
            tracker: FreeTracker::new(clock, mounted),
            left_out: Vec::new(),
            began,
            last_read: began,
            is_batching: false,
            lost: 0,
            buffers,
            instance,
        })
    }

    /// Returns when it started.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Returns how many events the kernel has dropped because they were not read in time. When this grows,
    /// frees of any file system may be missing.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the files that become readable when there is something to [read](Self::read).
    pub fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.buffers.files()
    }

    /// Reports the frees of the file system of `mount` from now on, and those since its mount if it was
    /// mounted after the start and after the last [loss](Self::lost) of events. It replaces a followed file
    /// system with the same number.
    ///
    /// # Errors
    /// [`TracefsError::NoEvents`] if the kernel doesn't report its frees, or its superblock isn't found;
    /// [`TracefsError::NoAnswer`]; [`TracefsError::Set`].
    pub fn follow(&mut self, mount: &Mount) -> Result<FreeCoverage, TracefsError> {
        let kind = FileSystemKind::named(&mount.fstype).map_or(mount.fstype.as_str(), |kind| kind.driver);
        let was_enabled = self.sources.reports_frees(kind);
        if !was_enabled {
            // Its module may have been loaded to mount it.
            self.sources.enable_trimmable(&self.instance, self.options.allocations)?;
            self.sources.leave_out(&self.instance, &self.left_out)?;
        }
        let unsupported = |why: &str| TracefsError::NoEvents {
            missing: format!("the frees of the {} at {}: {why}", mount.fstype, mount.target.display()),
        };
        if !self.sources.reports_frees(kind) {
            return Err(unsupported("the kernel has no event for them"));
        }
        let id = identity(mount).ok_or_else(|| unsupported("the file system has no number"))?;
        let device = BlockDevice::numbered(&self.options.sysfs, mount.number);
        let layout = match id {
            FsId::Btrfs(_) => None,
            FsId::Device(_) => {
                let layout = Layout::of(mount, device.as_ref().map(BlockDevice::path), Some(TIMEOUT));
                Some(layout.map_err(|error| match error {
                    LayoutError::NoAnswer => TracefsError::NoAnswer { mount: mount.target.clone() },
                    error => unsupported(&error.to_string()),
                })?)
            }
        };
        let number = KernelNumber::from(mount.number);
        let was_left_out = self.left_out.contains(&number);
        if was_left_out {
            self.left_out.retain(|left_out| *left_out != number);
            self.sources.leave_out(&self.instance, &self.left_out)?;
        }
        let has_journal =
            kind == "ext4" && device.is_none_or(|device| has_journal(&self.options.sysfs, &device));
        let is_complete = self.tracker.follow(id, Followed { number, layout, has_journal });
        Ok(if was_enabled && !was_left_out && is_complete {
            FreeCoverage::SinceMount
        } else {
            FreeCoverage::FromNow
        })
    }

    /// Reads the superblock of a file system that is to be [followed](Self::follow), which then need not wait for the drive.
    /// Returns when the drive has answered, however long it hangs. `sysfs` is where sysfs is mounted.
    pub fn read_ahead(sysfs: &Path, mount: &Mount) {
        if FileSystemKind::named(&mount.fstype).is_some_and(|kind| kind.name != "btrfs") {
            // Those that can't be read fail again when they are followed.
            _ = Layout::of(
                mount,
                BlockDevice::numbered(sysfs, mount.number).map(|device| device.path()),
                None,
            );
        }
    }

    /// Stops following the file system with this number, which has been unmounted.
    pub fn forget(&mut self, number: DeviceNumber) {
        self.tracker.forget(number.into());
    }

    /// Stops the file system of `mount`, which will not be followed, from waking the user.
    ///
    /// # Errors
    /// [`TracefsError::Set`].
    pub fn leave_out(&mut self, mount: &Mount) -> Result<(), TracefsError> {
        let Some(id) = identity(mount) else { return Ok(()) };
        let number = KernelNumber::from(mount.number);
        self.tracker.forget(number);
        self.tracker.ignore(id);
        // A filter can't select events of btrfs: they have no device number.
        if matches!(id, FsId::Device(_)) && !self.left_out.contains(&number) {
            self.left_out.push(number);
            self.sources.leave_out(&self.instance, &self.left_out)?;
        }
        Ok(())
    }

    /// Appends the new events to `events`, in the order of their times. Returns how long to wait before
    /// reading again; none to wait for [`Self::files`] only. Sleeps so that calls are at least 10 ms apart,
    /// because kernels before 6.1 wake for every event.
    ///
    /// # Errors
    /// [`TracefsError::Read`] or [`TracefsError::Damaged`].
    pub fn read(&mut self, events: &mut Vec<Freed>) -> Result<Option<Duration>, TracefsError> {
        std::thread::sleep(SHORTEST_WAIT.saturating_sub(self.last_read.elapsed()));
        let Self { buffers, sources, tracker, .. } = self;
        let mut came = 0;
        let until = buffers.read(|at, event| {
            came += 1;
            if let Some(event) = sources.reader(event).and_then(|reader| reader.read(event)) {
                tracker.take(at, event);
            }
        })?;
        self.last_read = Instant::now();
        tracker.settle(until.saturating_sub(SLACK), events);
        let more = tracker.is_waiting();
        if came >= FILLS_A_BUFFER {
            let lost = self.instance.lost()?;
            if lost > self.lost {
                self.lost = lost;
                self.tracker.miss(mount::mounts(&self.options.procfs)?.iter().filter_map(identity));
            }
        }
        if more != self.is_batching {
            _ = self.instance.set("buffer_percent", if more { FULL_ENOUGH } else { "0" });
            self.is_batching = more;
        }
        Ok(more.then_some(BATCHING))
    }
}

/// Returns true if the ext4 on `device` has a journal; kernels before 5.0 don't say, and it is assumed.
fn has_journal(sysfs: &Path, device: &BlockDevice) -> bool {
    let task = fs::read_to_string(sysfs.join("fs/ext4").join(device.name()).join("journal_task"));
    task.map_or(true, |task| task.trim() != "<none>")
}
