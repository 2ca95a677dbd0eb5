//! The counters of a file system's devices, and when their discards have ended.

use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::Bytes;
use trimtab_linux::block::{BlockCounters, BlockError, StatFile};

/// How often the counters are read until all discards are done.
const POLL_INTERVAL: Duration = Duration::from_micros(500);
/// Without a completed discard for this long, the remaining I/O in flight belongs to others. A slow drive
/// needs half of it for one discard.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);
/// The same of a device mapper's device: a thin pool completes discards when it commits, once a second, and then waits for
/// those that it hands down.
const HELD_TIMEOUT: Duration = Duration::from_millis(2500);
/// Once a discard has completed, this many times the longest wait for one are enough, but no less than this.
const SETTLE_FACTOR: u32 = 4;
const SHORTEST_SETTLE: Duration = Duration::from_millis(50);

/// The counters of a file system's devices, each the sum over several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// The counters of the devices that the file system is directly on: its own discards. Discards that these do not count
    /// are counted by the devices below them, where those can.
    pub own: BlockCounters,
    /// The counters of the whole disks that these are on: the load that everyone makes.
    pub disks: BlockCounters,
}

/// The open counters of several devices.
pub(super) struct OpenCounters<'a>(pub Vec<DeviceCounters<'a>>);

pub(super) struct DeviceCounters<'a> {
    pub stat: StatFile<'a>,
    /// Whether the file system is directly on it.
    pub is_own: bool,
    /// Whether it counts the discards of the file system.
    pub is_counting: bool,
    /// Whether it is a whole disk.
    pub is_disk: bool,
}

impl OpenCounters<'_> {
    pub fn read(&self) -> Result<Counters, BlockError> {
        let mut all = Counters::default();
        for DeviceCounters { stat, is_own, is_counting, is_disk } in &self.0 {
            let counters = stat.read()?;
            if *is_own {
                let (discards, discard_bytes) = (all.own.discards, all.own.discard_bytes);
                all.own += counters;
                (all.own.discards, all.own.discard_bytes) = (discards, discard_bytes);
            }
            if *is_counting {
                all.own.discards += counters.discards;
                all.own.discard_bytes += counters.discard_bytes;
            }
            if *is_disk {
                all.disks += counters;
            }
        }
        Ok(all)
    }

    /// Waits until no discard is in flight; returns when the last one ended. The counters tell discards in
    /// flight from other commands only by their completion. A device that holds discards back is waited for until it has
    /// counted `all` bytes, unless it is silent for longer than it holds them.
    pub fn settle(&self, all: Option<Bytes>) -> Result<Instant, BlockError> {
        let mut counters = self.read()?;
        let mut changed = Instant::now();
        let mut timeout = if all.is_some() { HELD_TIMEOUT } else { SETTLE_TIMEOUT };
        let mut longest = Duration::ZERO;
        while counters.disks.in_flight > 0 && changed.elapsed() < timeout {
            thread::sleep(POLL_INTERVAL);
            let now = self.read()?;
            if now.own.discards != counters.own.discards || now.disks.in_flight == 0 {
                longest = longest.max(changed.elapsed());
                timeout = match all {
                    Some(all) if now.own.discard_bytes < all => HELD_TIMEOUT,
                    _ => (longest * SETTLE_FACTOR).clamp(SHORTEST_SETTLE, SETTLE_TIMEOUT),
                };
                changed = Instant::now();
            }
            counters = now;
        }
        Ok(changed)
    }
}
