//! An emulated SSD: the flash model behind a real block device.
//!
//! A drive is a FUSE file system of one file with a loop device on it, served by a process of its
//! own. The kernel's reads, writes, flushes and discards reach that process, which keeps the data
//! (in memory or in a sparse file) and hands every command to the flash model. A drive is found by
//! its name under `/run/trimtab/drives`; [`Drive`] is the door to it.
//!
//! The loop driver sends both a discard and a "write zeroes that may unmap" as the same punch of a
//! hole. So that each punch is a discard and nothing else, a drive refuses "write zeroes" when it
//! is created: the loop driver then drops the command from the device's limits, and the kernel
//! writes zeros instead, as to any drive without it.
//!
//! The loop driver hands over one discard or flush at a time, and nothing beside it. In model time
//! that makes no difference; in real time a queued discard holds other commands back all the same.
//!
//! On the real clock the host sees the model's time: the way of a command through the kernel and
//! back ([`PathTimes`]) is measured when the drive is created, and every reply is sent that much
//! earlier. The way is shorter for a command that is answered at once than for one that is held,
//! since nothing has gone to sleep meanwhile: what takes less than about twice its way can come back
//! a little early, and what takes less than its way, late. Where that matters, a slower clock gives
//! true proportions.

mod client;
mod data;
mod directory;
mod error;
mod path;
mod protocol;
mod server;
mod timeout;

pub use client::{CreateOptions, Drive, DriveState, Listed, list, remove};
pub use error::{DriveError, Silence};
pub use protocol::{Clock, DriveFigures, DriveStats, Latencies, PathTimes, QueueLimits, Room};
pub use server::{release, serve};
