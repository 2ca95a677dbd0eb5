//! What the kernel discards, writes, reads and frees, as it happens: block requests and the frees and
//! allocations of file systems, from tracefs.
//!
//! A [`Recording`] has a tracefs instance of its own, so that it and other tracers don't disturb each
//! other. If tracefs isn't mounted and its directory exists, it is mounted there.
//!
//! Requests are those that go to a disk's driver: `block_rq_issue` to `block_rq_complete`; on disks
//! whose drivers take bios (zram, the device mapper, md), `block_bio_queue` to `block_bio_complete`.
//! A discard of several ranges, as the kernel makes them for NVMe, is one row for each, with the
//! request's time and latency; which they are, the bios tell that were queued.
//!
//! They agree with `/sys/block/*/stat`, but for two things: that counts a discard of several ranges
//! once, and the other ranges as merged; and a flush that carries no data twice, as a flush and as a
//! write of nothing, where it is here a flush.

mod buffers;
mod chunks;
mod commits;
mod devices;
mod error;
mod event;
mod failed;
mod file_systems;
mod format;
mod free_tracker;
mod frees;
mod hash;
mod instance;
mod interpreter;
mod layout;
mod listener;
mod operation;
mod page;
mod ranges;
mod requests;
mod source;
mod uevents;

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use trimtab_core::trace::{Kind, TraceEvent, TraceHeader};
use trimtab_core::{Bytes, Nanos};

pub use error::TracefsError;
pub use failed::FailedDiscards;
pub use frees::{FreeCoverage, Freed, Frees, FreesOptions};
pub use listener::{Listener, Settled, disks_behind};

use crate::block::BlockDevice;
use crate::environment::environment;
use buffers::Buffers;
use instance::Instance;
use interpreter::Interpreter;
use uevents::Uevents;

/// How long after its time an event may still appear in the kernel's buffers: it is written with
/// preemption off, but a virtual processor may be paused at any time.
const SLACK: Nanos = Nanos(10_000_000);

/// How long a wait lasts at least, so that kernels which wake a reader for every event don't.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// How often at least the kernel is asked what it lost, and which disks there are.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// What to record.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// Whole disks; where there are none, all that sysfs knows, ram disks and optical drives aside, and
    /// those that appear later.
    pub devices: Vec<BlockDevice>,
    /// The kinds of events; others cost nothing.
    pub kinds: Vec<Kind>,
    /// The kernel's buffer for each processor. What doesn't fit until it is read is lost, and counted.
    pub buffer: Bytes,
    /// Where tracefs is mounted; it is mounted there if it isn't.
    pub tracefs: PathBuf,
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
    /// Where procfs is mounted.
    pub procfs: PathBuf,
}

impl Default for RecordOptions {
    /// Every kind of event on all disks, with buffers of 8 MiB.
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            kinds: Kind::ALL.to_vec(),
            buffer: Bytes(8 << 20),
            tracefs: PathBuf::from("/sys/kernel/tracing"),
            sysfs: PathBuf::from(crate::SYSFS),
            procfs: PathBuf::from(crate::PROCFS),
        }
    }
}

/// A recording that is going on. Dropping it ends it and leaves nothing behind.
#[derive(Debug)]
pub struct Recording {
    header: TraceHeader,
    interpreter: Interpreter,
    mounts: File,
    /// Whether what is mounted has changed since it was looked at.
    mounts_changed: bool,
    /// None where the kernel doesn't tell; the disks are then looked at every second only.
    uevents: Option<Uevents>,
    looked_around: Instant,
    last_read: Instant,
    // These go before the instance.
    buffers: Buffers,
    instance: Instance,
}

impl Recording {
    /// Begins to record.
    ///
    /// # Errors
    /// Any [`TracefsError`]; nothing is left behind.
    pub fn start(options: &RecordOptions) -> Result<Self, TracefsError> {
        let RecordOptions { tracefs, sysfs, procfs, .. } = options;
        let instance = Instance::create(tracefs, sysfs, procfs, options.buffer)?;
        let mut header = TraceHeader {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            environment: environment(procfs).ok(),
            has_discards: options.kinds.contains(&Kind::Discard),
            has_frees: options.kinds.contains(&Kind::Free),
            ..TraceHeader::new("record")
        };
        let mounts = procfs.join("self/mountinfo");
        let mounts = File::open(&mounts).map_err(|source| TracefsError::Read { path: mounts, source })?;
        let mut interpreter = Interpreter::start(&instance, options, &mut header)?;
        let uevents = Uevents::listen().ok();
        let buffers = Buffers::open(&instance, options.buffer)?;
        instance.set("tracing_on", "1")?;
        interpreter.mounts_changed(&instance, &mut header)?;
        let now = Instant::now();
        Ok(Self {
            header,
            interpreter,
            mounts,
            mounts_changed: false,
            uevents,
            looked_around: now,
            last_read: now,
            buffers,
            instance,
        })
    }

    /// What holds for the whole recording so far: devices, file systems, what was lost and what can't be
    /// recorded. It grows with every [`Self::read`].
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Waits until half a buffer is full, what is mounted has changed or a device has, for `timeout` at
    /// most.
    ///
    /// # Errors
    /// [`TracefsError::Wait`].
    pub fn wait(&mut self, timeout: Duration) -> Result<(), TracefsError> {
        std::thread::sleep(SHORTEST_WAIT.saturating_sub(self.last_read.elapsed()).min(timeout));
        let others = self.buffers.files().chain(self.uevents.iter().map(AsFd::as_fd));
        let others = others.map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
        self.mounts_changed |= poll_mounts(&self.mounts, others, timeout)?;
        Ok(())
    }

    /// Appends what is complete so far to `events`, in the order of their times, without waiting. A
    /// request is complete when all that were issued before it are, or have been waited for long
    /// enough.
    ///
    /// # Errors
    /// [`TracefsError::Read`] or [`TracefsError::Damaged`].
    pub fn read(&mut self, events: &mut Vec<TraceEvent>) -> Result<(), TracefsError> {
        let Self { header, interpreter, buffers, instance, .. } = self;
        let now = buffers.read(|at, event| interpreter.take(at, event, instance, header))?;
        if self.mounts_changed || poll_mounts(&self.mounts, [], Duration::ZERO)? {
            self.mounts_changed = false;
            self.interpreter.mounts_changed(&self.instance, &mut self.header)?;
        }
        self.last_read = Instant::now();
        let devices_changed = self.uevents.as_ref().is_some_and(Uevents::take);
        if devices_changed || self.looked_around.elapsed() >= LOOK_AROUND {
            self.looked_around = self.last_read;
            self.look_for_losses()?;
            self.interpreter.look_for_disks(&self.instance)?;
        }
        self.interpreter.settle(now.saturating_sub(SLACK), events, &mut self.header);
        Ok(())
    }

    /// Stops, and appends all that is left, requests without completion included; where that fails, what
    /// came before.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn stop(&mut self, events: &mut Vec<TraceEvent>) -> Result<(), TracefsError> {
        let stopped = self.instance.set("tracing_on", "0");
        let Self { header, interpreter, buffers, instance, .. } = self;
        let drained = stopped
            .and_then(|()| buffers.read_all(|at, event| interpreter.take(at, event, instance, header)));
        let looked = self.look_for_losses();
        self.interpreter.settle(Nanos(u64::MAX), events, &mut self.header);
        self.interpreter.take_all(events);
        drained.and(looked)
    }

    /// Asks the kernel what it lost; where that is more than before, an end may be missing.
    fn look_for_losses(&mut self) -> Result<(), TracefsError> {
        let lost = self.instance.lost()?;
        if lost > self.header.lost {
            self.interpreter.give_up();
        }
        self.header.lost = lost;
        Ok(())
    }
}

/// Waits until what is mounted has changed, one of `others` has something to say or the time is over;
/// says whether it was the first. The kernel tells each change once.
fn poll_mounts<'a>(
    mounts: &'a File,
    others: impl IntoIterator<Item = PollFd<'a>>,
    timeout: Duration,
) -> Result<bool, TracefsError> {
    let mut awaited = vec![PollFd::from_borrowed_fd(mounts.as_fd(), PollFlags::PRI)];
    awaited.extend(others);
    let timeout = Timespec::try_from(timeout).ok();
    match poll(&mut awaited, timeout.as_ref()) {
        Ok(_) => Ok(awaited[0].revents().contains(PollFlags::PRI)),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(TracefsError::Wait(errno.into())),
    }
}

/// The time on the clock of the trace.
fn clock() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_in_the_buffers() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "a test that needs root cannot be skipped in CI");
            eprintln!("skipped: it needs root");
            return;
        }
        let options = RecordOptions {
            kinds: vec![Kind::SecureErase],
            buffer: Bytes(127 << 10),
            ..RecordOptions::default()
        };
        let mut recording = Recording::start(&options).unwrap();
        let mark = |recording: &Recording, times: u32| {
            // What doesn't fit is refused.
            (0..times).for_each(|_| _ = recording.instance.set("trace_marker", &"x".repeat(200)));
        };
        mark(&recording, 10);
        recording.read(&mut Vec::new()).unwrap();
        // The kernel goes on in the page that was read from, and has a page more than is asked for, rounded up.
        mark(&recording, 3000);
        recording.stop(&mut Vec::new()).unwrap();
        let mut left = 0;
        recording.buffers.read_all(|_, _| left += 1).unwrap();
        assert_eq!(left, 0);
    }
}
