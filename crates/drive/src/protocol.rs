//! The messages between the server of a drive and its clients, as JSON, one message a line; and
//! the figures that come that way.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use trimtab_core::profile::Profile;
use trimtab_core::stats::{DriveCounters, EraseSpread, LatencySummary};
use trimtab_core::{Bytes, Nanos};

/// How a drive's time runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// Model time: the host is taken to keep the profile's `queue_depth` commands in flight and to
    /// wait for nothing else, so figures don't depend on how busy this machine is. Replies are
    /// sent at once.
    Model,
    /// Wall time: a reply is held so that it reaches the host when the model says that the command
    /// is done. What takes less than about twice the way there and back ([`PathTimes`]) is less
    /// exact.
    Real {
        /// How many times faster than the wall clock the model runs: from 0.001 to 1 000 000.
        speed: f64,
    },
}

/// The state of a drive at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriveStats {
    /// The drive's name.
    pub name: String,
    /// The block device.
    pub device: PathBuf,
    /// The profile's name.
    pub profile: String,
    /// The drive that the profile describes.
    pub model: String,
    /// The drive's size.
    pub size: Bytes,
    /// How its time runs.
    pub clock: Clock,
    /// S = 1 - U / T, where T leaves out reserve blocks and open frontiers.
    pub effective_spare: f64,
    /// The bytes of one erase block, the unit of all erase figures.
    pub erase_block: Bytes,
    /// Totals since the drive was created, in model time.
    pub counters: DriveCounters,
    /// How erases spread over the erase blocks.
    pub erase_spread: EraseSpread,
    /// Latencies since the drive was created, in model time.
    pub latency: Latencies,
    /// Bytes that the drive takes for data: written and not discarded since.
    pub mapped: Bytes,
    /// Bytes that the memory or file behind the drive really holds.
    pub data_held: Bytes,
    /// The time of the way to the drive and back.
    pub path: PathTimes,
    /// The limits that the kernel knows of the drive.
    pub limits: QueueLimits,
    /// The process that serves it.
    pub server: u32,
}

/// The figures of a drive's flash model at one moment. Other than [`DriveStats`] they are there at once, and
/// asking for them changes nothing for the drive's users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriveFigures {
    /// The drive's size.
    pub size: Bytes,
    /// Totals since the drive was created, in model time.
    pub counters: DriveCounters,
    /// Bytes that the drive takes for data: written and not discarded since.
    pub mapped: Bytes,
    /// The processor time that the drive's server has used.
    pub processor: Nanos,
    /// Whether a write failed because there was no room for its data on this machine.
    pub lacked_room: bool,
}

/// The latency of each kind of command, in model time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// Reads.
    pub read: LatencySummary,
    /// Writes.
    pub write: LatencySummary,
    /// Discards.
    pub discard: LatencySummary,
    /// Flushes.
    pub flush: LatencySummary,
}

/// The limits of a drive's block device, as the kernel has them: what the profile asks for, as far
/// as the loop driver goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueLimits {
    /// `discard_granularity`: the profile's advertised granularity.
    pub discard_granularity: Bytes,
    /// `discard_max_bytes`: the profile's command limit, at most 4 GiB less one sector.
    pub discard_max: Bytes,
    /// `nr_requests`: the profile's queue depth, within the loop driver's 4 to 128.
    pub requests: u32,
}

/// The time of a command's way from a program through the kernel to the drive's server and back, in
/// wall time, measured when a drive on the real clock is created. Replies are sent that much
/// earlier. Zero in model time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PathTimes {
    /// Of a read of 4 KiB; it is taken for every read and write.
    pub transfer: Duration,
    /// Of a discard; it is taken for a flush, too.
    pub discard: Duration,
}

/// The time of every command to a drive on the real clock until it is started: the time that its creator
/// finds above that is the way there and back. As a real command it is held, not answered at once.
pub(crate) const UNTIL_STARTED: Duration = Duration::from_micros(200);

/// When a drive takes room for its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Room {
    /// As data is written. A drive that may outgrow what is available when it is created is refused.
    #[default]
    Checked,
    /// All memory when it is created, and none is given back after discards: neither first writes nor discards then cost
    /// the host more than other commands. A drive whose data goes to a file is as with [`Checked`](Self::Checked).
    Kept,
    /// As data is written, whatever its size. Writes fail when there is no room left.
    Sparse,
    /// This much memory when it is created, for a drive of any size: data takes its place there as it is written. None is given
    /// back after discards until no place is left, and then writes fail. So a write costs the host the same, whether it is to old
    /// or to new addresses.
    Pool(Bytes),
}

/// The drive that a server shall serve: the first line that it reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) profile: Profile,
    pub(crate) size: Bytes,
    pub(crate) preconditioned: bool,
    pub(crate) clock: Clock,
    /// The data file; memory where there is none.
    pub(crate) data: Option<PathBuf>,
    /// Whether the drive goes when its creator does.
    pub(crate) owned: bool,
    pub(crate) room: Room,
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Request {
    /// The block device is set up: count from here on.
    Start { device: PathBuf, limits: QueueLimits, path: PathTimes },
    /// Everything that is known of the drive. The answer comes once all discarded memory is given back.
    Stats,
    /// The figures of the flash model alone.
    Figures,
}

/// An answer of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    /// Done.
    Ready,
    /// Everything that is known of the drive.
    Stats(Box<DriveStats>),
    /// The figures of the flash model.
    Figures(Box<DriveFigures>),
    /// It can't be done, and why.
    Refused { reason: String },
}

/// Writes `message` as a line.
pub(crate) fn send(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads a line as a message; `UnexpectedEof` where the other side has gone.
pub(crate) fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<T> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(serde_json::from_str(&line)?),
    }
}
