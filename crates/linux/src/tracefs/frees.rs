//! What mounted file systems give up, told to a service once a trim would find it free, in the addresses
//! that a trim takes.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trimtab_core::trace::Kind;
use trimtab_core::{Bytes, Extent};

use super::buffers::Buffers;
use super::devices::KernelNumber;
use super::error::TracefsError;
use super::event::FsId;
use super::file_systems::identity;
use super::free_tracker::{Followed, FreeTracker};
use super::instance::Instance;
use super::layout::Layout;
use super::source::Sources;
use super::{SHORTEST_WAIT, SLACK, clock};
use crate::block::{BlockDevice, DeviceNumber};
use crate::mount::{self, Mount};

/// How much later an event may be that is told with the one before it.
const TOGETHER: Duration = Duration::from_secs(1);

/// How long more is waited for after an event has come: reading many at once takes less than each as it
/// comes.
const GATHERING: Duration = Duration::from_millis(200);

/// How much of a buffer is full when it can be read while more is waited for, in percent.
const FULL_ENOUGH: &str = "50";

/// Fewer events than this don't fill the smallest buffer, so that none can have been lost.
const FILLS_NOTHING: usize = 500;

/// What to be told, and how.
#[derive(Debug, Clone)]
pub struct FreesOptions {
    /// Whether to tell what file systems take, too.
    pub allocations: bool,
    /// The kernel's buffer for each processor; this is the kernel's memory.
    pub buffer: Bytes,
    /// Where tracefs is mounted; it is mounted there if it isn't.
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

/// Blocks that a file system gave up or took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// When that was, or when its transaction was on disk, since [`Frees::began`]; wall time.
    pub at: Duration,
    /// The file system, by the number that [`Mount::number`] has.
    pub file_system: DeviceNumber,
    /// [`Kind::Free`] or [`Kind::Allocate`].
    pub kind: Kind,
    /// Which bytes, in the file system's trim address space: those of its device for ext4 and XFS,
    /// logical ones for btrfs. Of those that follow one another and lie side by side, the first tells.
    /// Where very many wait for one commit, some are joined with what lies between them.
    pub extent: Extent,
}

impl Freed {
    /// Tells of `next` too, which came right after it, if that lies next to it; says whether it does.
    pub(super) fn absorb(&mut self, next: &Self) -> bool {
        let is_like = self.file_system == next.file_system && self.kind == next.kind;
        let is_near = next.at.saturating_sub(self.at) <= TOGETHER;
        let (one, other) = (self.extent, next.extent);
        let touches = one.end == other.start || other.end == one.start;
        if is_like && is_near && touches {
            self.extent = Extent::new(one.start.min(other.start), one.end.max(other.end));
        }
        is_like && is_near && touches
    }
}

/// From when on it is told what a file system gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeCoverage {
    /// Since it was mounted: nothing was missed.
    SinceMount,
    /// From now on: it may have given up more before.
    FromNow,
}

/// Word from the kernel of what ext4, XFS and btrfs give up. Dropping it leaves nothing behind.
///
/// Its host waits until one of [`Self::files`] is readable, for as long as the last [`Self::read`]
/// said, and reads again. While no file system gives up anything, nothing wakes the host but the commits
/// of ext4.
#[derive(Debug)]
pub struct Frees {
    options: FreesOptions,
    sources: Sources,
    tracker: FreeTracker,
    left_out: Vec<KernelNumber>,
    began: Instant,
    last_read: Instant,
    /// Whether more is waited for.
    is_gathering: bool,
    lost: u64,
    // These go before the instance.
    buffers: Buffers,
    instance: Instance,
}

impl Frees {
    /// Begins to listen. What file systems tell that are mounted later is kept until these are followed.
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
            is_gathering: false,
            lost: 0,
            buffers,
            instance,
        })
    }

    /// When it began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// How many events the kernel has dropped because they were not read in time. Where this grows, not
    /// all was told of any file system.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// What becomes readable when there is something to [read](Self::read).
    pub fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.buffers.files()
    }

    /// Tells of the file system of `mount` from now on, and of what it gave up since it was mounted if
    /// that was after the start and after events were [lost](Self::lost) last. Another that is followed by the
    /// same number is so no more.
    ///
    /// # Errors
    /// [`TracefsError::NoEvents`] where the kernel doesn't tell what it gives up, or its superblock isn't
    /// found; [`TracefsError::Set`].
    pub fn follow(&mut self, mount: &Mount) -> Result<FreeCoverage, TracefsError> {
        let kind = match mount.fstype.as_str() {
            "ext2" | "ext3" => "ext4",
            other => other,
        };
        let was_told = self.sources.tells_of(kind);
        if !was_told {
            // Its module may have been loaded to mount it.
            self.sources.enable_trimmable(&self.instance, self.options.allocations)?;
            self.sources.leave_out(&self.instance, &self.left_out)?;
        }
        let untold = |why: &str| TracefsError::NoEvents {
            missing: format!("what the {} at {} gives up: {why}", mount.fstype, mount.target.display()),
        };
        if !self.sources.tells_of(kind) {
            return Err(untold("it has no event for that"));
        }
        let id = identity(mount).ok_or_else(|| untold("the file system has no number"))?;
        let device = BlockDevice::numbered(&self.options.sysfs, mount.number);
        let layout = match id {
            FsId::Btrfs(_) => None,
            FsId::Device(_) => {
                let layout = Layout::of(mount, device.as_ref().map(BlockDevice::path));
                Some(layout.ok_or_else(|| untold("its device shows no superblock"))?)
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
        let heard_all = self.tracker.follow(id, Followed { number, layout, has_journal });
        Ok(if was_told && !was_left_out && heard_all {
            FreeCoverage::SinceMount
        } else {
            FreeCoverage::FromNow
        })
    }

    /// Tells no more of the file system with this number, which has been unmounted.
    pub fn forget(&mut self, number: DeviceNumber) {
        self.tracker.forget(number.into());
    }

    /// Isn't woken any more by the file system of `mount`, which nobody means to follow.
    ///
    /// # Errors
    /// [`TracefsError::Set`].
    pub fn leave_out(&mut self, mount: &Mount) -> Result<(), TracefsError> {
        let Some(id) = identity(mount) else { return Ok(()) };
        let number = KernelNumber::from(mount.number);
        self.tracker.forget(number);
        self.tracker.ignore(id);
        // The events of btrfs have no number for a filter to look at.
        if matches!(id, FsId::Device(_)) && !self.left_out.contains(&number) {
            self.left_out.push(number);
            self.sources.leave_out(&self.instance, &self.left_out)?;
        }
        Ok(())
    }

    /// Appends what has become known since the last time to `events`, in the order of its times. Says how
    /// long to wait for more; none where only [`Self::files`] can tell that there is more. Waits for
    /// 10 ms where it was called a moment ago, as kernels before 6.1 wake for every event.
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
        if came >= FILLS_NOTHING {
            let lost = self.instance.lost()?;
            if lost > self.lost {
                self.lost = lost;
                self.tracker.miss(mount::mounts(&self.options.procfs)?.iter().filter_map(identity));
            }
        }
        if more != self.is_gathering {
            _ = self.instance.set("buffer_percent", if more { FULL_ENOUGH } else { "0" });
            self.is_gathering = more;
        }
        Ok(more.then_some(GATHERING))
    }
}

/// Whether the ext4 on `device` has a journal; taken for granted where the kernel (before 5.0) doesn't
/// say.
fn has_journal(sysfs: &Path, device: &BlockDevice) -> bool {
    let task = fs::read_to_string(sysfs.join("fs/ext4").join(device.name()).join("journal_task"));
    task.map_or(true, |task| task.trim() != "<none>")
}
