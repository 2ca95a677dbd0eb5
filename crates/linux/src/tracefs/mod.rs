//! Records block requests, and the frees and allocations of file systems, from tracefs.
//!
//! A [`Recording`] has a tracefs instance of its own, so that it and other tracers don't disturb each
//! other. If tracefs isn't mounted and its directory exists, it is mounted there.
//!
//! Requests are recorded where they reach a disk's driver: from `block_rq_issue` to `block_rq_complete`; on
//! disks whose drivers take bios (zram, the device mapper, md), from `block_bio_queue` to
//! `block_bio_complete`. A discard of several ranges, as the kernel makes for NVMe, becomes one event per
//! range, each with the request's time and latency; the ranges come from the queued bios.
//!
//! The counts agree with `/sys/block/*/stat` with two exceptions. There, a discard of several ranges counts
//! once and the other ranges as merged; and a flush without data counts twice, as a flush and as an empty
//! write, whereas here it is one flush.

mod attempts;
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
mod freed;
mod frees;
mod guard;
mod instance;
mod interpreter;
mod layout;
mod listener;
mod page;
mod requests;
mod source;
mod uevents;

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use trimtab_core::trace::{EventKind, TraceEvent, TraceHeader};
use trimtab_core::{Bytes, Nanos};

pub use attempts::Attempts;
pub use error::TracefsError;
pub use failed::FailedDiscards;
pub use freed::Freed;
pub use frees::{FreeCoverage, Frees, FreesOptions};
pub use guard::{guard_instances, remove_after_owner};
pub use listener::{Listener, Settled, disks_behind};

use crate::block::BlockDevice;
use crate::environment::environment;
use buffers::Buffers;
use instance::Instance;
use interpreter::Interpreter;
use uevents::Uevents;

/// How long after its time stamp an event may still appear in the kernel's buffers: it is written with
/// preemption off, but a virtual processor may be paused at any time.
const SLACK: Nanos = Nanos(10_000_000);

/// The shortest wait, for kernels that would wake the reader for every event.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// How often lost events are counted, and new disks looked for, at least.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The options of a recording.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// Whole disks; if empty, all present and future ones in sysfs except ram disks and optical drives.
    pub devices: Vec<BlockDevice>,
    /// The kinds of events to record; others cost nothing.
    pub kinds: Vec<EventKind>,
    /// The size of each processor's buffer in the kernel. Events that don't fit are lost, and counted.
    pub buffer: Bytes,
    /// Where tracefs is mounted; it is mounted there if necessary.
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
            kinds: EventKind::ALL.to_vec(),
            buffer: Bytes(8 << 20),
            tracefs: PathBuf::from("/sys/kernel/tracing"),
            sysfs: PathBuf::from(crate::SYSFS),
            procfs: PathBuf::from(crate::PROCFS),
        }
    }
}

/// A running recording. Dropping it ends it and removes its tracefs instance.
#[derive(Debug)]
pub struct Recording {
    header: TraceHeader,
    interpreter: Interpreter,
    mounts: File,
    /// Whether the list of mounts has changed since it was read.
    mounts_changed: bool,
    /// None if the kernel doesn't report device changes; the disks are then checked every second.
    uevents: Option<Uevents>,
    last_check: Instant,
    last_read: Instant,
    // Dropped before the instance.
    buffers: Buffers,
    instance: Instance,
}

impl Recording {
    /// Starts to record.
    ///
    /// # Errors
    /// Any [`TracefsError`]; nothing is left behind.
    pub fn start(options: &RecordOptions) -> Result<Self, TracefsError> {
        let RecordOptions { tracefs, sysfs, procfs, .. } = options;
        let instance = Instance::create(tracefs, sysfs, procfs, options.buffer)?;
        let mut header = TraceHeader {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            environment: environment(procfs).ok(),
            has_discards: options.kinds.contains(&EventKind::Discard),
            has_frees: options.kinds.contains(&EventKind::Free),
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
            last_check: now,
            last_read: now,
            buffers,
            instance,
        })
    }

    /// Returns the header of the recording so far: devices, file systems, the number of lost events and the
    /// gaps, which are the things that can't be recorded. It grows with every [`Self::read`].
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Waits until half a buffer is full, or the mounts or devices have changed, at most for `timeout`.
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

    /// Appends the events that are complete so far to `events`, in the order of their times, without waiting.
    /// A request comes after all older ones have completed or timed out.
    ///
    /// # Errors
    /// [`TracefsError::Read`] or [`TracefsError::Damaged`].
    pub fn read(&mut self, events: &mut Vec<TraceEvent>) -> Result<(), TracefsError> {
        let Self { header, interpreter, buffers, instance, .. } = self;
        let read = buffers.read(|at, event| interpreter.take(at, event, header));
        interpreter.place(instance, header);
        let now = read?;
        if self.mounts_changed || poll_mounts(&self.mounts, [], Duration::ZERO)? {
            self.mounts_changed = false;
            self.interpreter.mounts_changed(&self.instance, &mut self.header)?;
        }
        self.last_read = Instant::now();
        let devices_changed = self.uevents.as_ref().is_some_and(Uevents::take);
        if devices_changed || self.last_check.elapsed() >= CHECK_INTERVAL {
            self.last_check = self.last_read;
            self.count_losses()?;
            self.interpreter.look_for_disks(&self.instance)?;
        }
        self.interpreter.settle(now.saturating_sub(SLACK), events, &mut self.header);
        Ok(())
    }

    /// Stops, and appends all remaining events, also those of requests that have not completed. After an
    /// error, `events` holds what was read before it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn stop(&mut self, events: &mut Vec<TraceEvent>) -> Result<(), TracefsError> {
        let stopped = self.instance.set("tracing_on", "0");
        let Self { header, interpreter, buffers, instance, .. } = self;
        let drained =
            stopped.and_then(|()| buffers.read_all(|at, event| interpreter.take(at, event, header)));
        interpreter.place(instance, header);
        let looked = self.count_losses();
        self.interpreter.settle(Nanos(u64::MAX), events, &mut self.header);
        self.interpreter.take_all(events);
        drained.and(looked)
    }

    /// Updates the number of lost events. If it grew, the end of a request may be missing.
    fn count_losses(&mut self) -> Result<(), TracefsError> {
        let lost = self.instance.lost()?;
        if lost > self.header.lost {
            self.interpreter.give_up();
        }
        self.header.lost = lost;
        Ok(())
    }
}

/// Waits until the mounts have changed, one of `others` is readable or the time is over. Returns true if the
/// mounts have changed; the kernel reports each change once.
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

/// Returns the time on the trace clock.
fn clock() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_empties_the_buffers() {
        if !rustix::process::geteuid().is_root() {
            assert!(std::env::var_os("CI").is_none(), "a test that needs root cannot be skipped in CI");
            eprintln!("skipped: it needs root");
            return;
        }
        let options = RecordOptions {
            kinds: vec![EventKind::SecureErase],
            buffer: Bytes(127 << 10),
            ..RecordOptions::default()
        };
        let mut recording = Recording::start(&options).unwrap();
        let mark = |recording: &Recording, times: u32| {
            // The kernel refuses markers that don't fit.
            (0..times).for_each(|_| _ = recording.instance.set("trace_marker", &"x".repeat(200)));
        };
        mark(&recording, 10);
        recording.read(&mut Vec::new()).unwrap();
        // The kernel continues in the page that was read, and has one page more than requested, rounded up.
        mark(&recording, 3000);
        recording.stop(&mut Vec::new()).unwrap();
        let mut left = 0;
        recording.buffers.read_all(|_, _| left += 1).unwrap();
        assert_eq!(left, 0);
    }
}
