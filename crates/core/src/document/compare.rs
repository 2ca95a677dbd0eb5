//! The document of `trimtab compare`.

use serde::{Deserialize, Serialize};

use super::{Engine, Environment, KernelCounters};
use crate::policy::PolicyChoice;
use crate::stats::{LatencySummary, SizeHistogram};
use crate::units::Bytes;

/// The schema name of [`CompareDocument`].
pub const COMPARE_SCHEMA: &str = "trimtab/compare/2";

/// The measurements of `trimtab compare`: schema `trimtab/compare/2`.
///
/// All times and latencies are drive time: seconds by the clock of the drive. That is the clock of the guest
/// kernel in virtual time, the wall clock times [`Clock::Real`]'s speed on an emulated drive, and
/// the wall clock in a directory of the user's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CompareDocument {
    /// [`COMPARE_SCHEMA`].
    pub schema: String,
    /// The version of trimtab that wrote it.
    pub version: String,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When it was started: RFC 3339, UTC.
    pub started: String,
    /// The machine it ran on.
    pub environment: Environment,
    /// The clock that all times are read from.
    pub clock: Clock,
    /// The emulated drive; none in a directory of the user's.
    pub drive: Option<DriveDescription>,
    /// How the file system was filled before the workload began; none where it was new, and all of it the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filling: Option<Filling>,
    /// The name of the profile that the service was given for the policy `smart`; none where it
    /// chose one itself.
    pub smart_profile: Option<String>,
    /// Whether the kernel may merge adjacent requests, as it does unless told otherwise.
    #[serde(default = "merges", skip_serializing_if = "Clone::clone")]
    pub merges: bool,
    /// The workload.
    pub workload: WorkloadDescription,
    /// How many writers did it at the same time, each a part of it in a directory of its own.
    #[serde(default = "one_writer", skip_serializing_if = "is_one")]
    pub writers: u32,
    /// Seconds from one read of the probe to the next; none without a probe.
    pub probe_interval_s: Option<f64>,
    /// How many runs of each file system, policy and idle length were asked for.
    pub runs_asked: u32,
    /// One entry per finished run, in the order they ran.
    pub runs: Vec<Run>,
    /// Why `runs` is not complete; none when it is.
    pub stopped: Option<String>,
}

fn merges() -> bool {
    true
}

fn one_writer() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

/// The clock of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The clock of a guest kernel that skips idle time.
    Virtual {
        /// The guest's kernel release, as `uname -r` gives it.
        kernel: String,
        /// The program that ran the guests; QEMU in documents of versions that had no other.
        #[serde(default)]
        engine: Engine,
    },
    /// The wall clock of the machine.
    Real {
        /// Drive seconds per wall second.
        speed: f64,
    },
}

/// The emulated drive an experiment ran on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriveDescription {
    /// The profile's name.
    pub profile: String,
    /// The drive that the profile describes.
    pub model: String,
    /// The drive's size.
    pub size: Bytes,
    /// S = 1 - U / T, where T leaves out reserve blocks and open frontiers.
    pub effective_spare: f64,
    /// The bytes of one erase block, the unit of all erase figures.
    pub erase_block: Bytes,
    /// The whole profile, as TOML.
    pub profile_toml: String,
}

/// A file system that is in use before the workload begins, as those of large drives are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filling {
    /// The share of the file system that files take, in percent. They are allocated and not written: the drive holds what was
    /// there before.
    pub percent: u32,
    /// The most space that the workload uses.
    pub room: Bytes,
}

/// The workload of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadDescription {
    /// Its name, such as `fragment`; `exec` for a command of the user's.
    pub name: String,
    /// A description of its work here, in a sentence.
    pub summary: String,
    /// The seed that makes it the same at every run.
    pub seed: u64,
    /// The activities whose time, added up, shows what discards cost while deleting; none where the
    /// workload deletes nothing that it knows of.
    pub delete_steps: Vec<String>,
    /// The activity whose throughput shows what missing discards cost afterwards, if it has one.
    pub write_step: Option<String>,
    /// Whether it names pauses, whose length `--idle` sets.
    pub has_pauses: bool,
    /// Whether several writers can divide it; false in documents of versions that had one writer only.
    #[serde(default)]
    pub divisible: bool,
}

/// One run of one policy on one file system, with one length of its pauses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The file system: `ext4`, `xfs` or `btrfs`.
    pub fs: String,
    /// The policy.
    pub policy: PolicyChoice,
    /// The workload's name.
    pub workload: String,
    /// Seconds of drive time that each of the workload's pauses lasts.
    pub idle_s: f64,
    /// The number of the repetition, from 1.
    pub run: u32,
    /// The activities and pauses, in the order they happened. A name may appear more than once.
    pub steps: Vec<Step>,
    /// The probe's reads over all steps; none without a probe, and in documents of versions that only kept
    /// those of each step.
    #[serde(default)]
    pub reads: Option<Reads>,
    /// The trims of the policy `batched`, in order.
    pub trims: Vec<Trim>,
    /// The whole run, from the first step to the end of the last, in equal intervals.
    pub timeline: Timeline,
    /// Bytes that the drive still held at the end and the file system no longer used; none without
    /// an emulated drive.
    pub stale: Option<Bytes>,
    /// Bytes that were freed and waiting for a discard in the service at the end; none for other policies.
    pub pending: Option<Bytes>,
    /// The last line that the user's command wrote to standard error, although it succeeded.
    #[serde(default)]
    pub stderr: Option<String>,
    /// Whether the live files read back as they were written, past the page cache and, on an
    /// emulated drive, after a remount.
    pub verified: bool,
}

/// Latencies of the probe's reads over all steps of a kind, from when they were due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads {
    /// Of those that were due in activities; none where none was.
    pub activities: Option<LatencySummary>,
    /// Of those that were due in the workload's pauses and at the end, without the pause [`START`]; none where
    /// none was.
    pub pauses: Option<LatencySummary>,
}

/// An activity that somebody waits for, or a pause between two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its name.
    pub name: String,
    /// Whether somebody waits for it.
    pub kind: StepKind,
    /// When it began, in seconds since the run's first step began.
    pub start_s: f64,
    /// Seconds from its begin until the command and its sync returned, or the pause was over.
    pub length_s: f64,
    /// Seconds of it that nobody waited for: all of a pause, and of a user's command the time in which it
    /// slept.
    #[serde(default)]
    pub idle_s: f64,
    /// Seconds that each writer took for its part, in order; empty where there is one writer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writers_s: Vec<f64>,
    /// Operations of the workload that found no space at first and succeeded later: ext4 and btrfs count
    /// free space as used while FITRIM discards it.
    #[serde(default)]
    pub no_space: u64,
    /// Bytes the host wrote to the device in it.
    pub host_bytes: Bytes,
    /// Latencies of the probe's reads that were due in it, from when they were due; none without a probe.
    pub probe: Option<LatencySummary>,
    /// Discard commands that reached the device.
    pub discards: u64,
    /// Bytes they named.
    pub discard_bytes: Bytes,
    /// Their sizes; empty where only the kernel's counters are known.
    pub discard_histogram: SizeHistogram,
    /// The kernel's own counters of the device; none where it has none to read.
    pub kernel: Option<KernelCounters>,
    /// Erase-block erases; none without an emulated drive.
    pub erases: Option<u64>,
    /// Flash pages that the host's writes programmed; none without an emulated drive.
    pub host_pages: Option<u64>,
    /// All flash pages that were programmed; none without an emulated drive.
    pub programmed_pages: Option<u64>,
    /// Seconds that discards kept the drive busy; none without an emulated drive.
    pub discard_busy_s: Option<f64>,
    /// The use of processors in it; none in documents of versions that did not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<ProcessorTime>,
}

/// Seconds of processor time in a step, by the machine's own clock, in ticks of mostly 10 ms.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ProcessorTime {
    /// Of the workload: trimtab itself, with the probe, and the programs that it ran and that have ended.
    pub workload_s: f64,
    /// Of the server of the emulated drive; none without one.
    pub drive_s: Option<f64>,
    /// Of the service, with its trims; none under other policies.
    pub service_s: Option<f64>,
    /// Of everything else on the machine: in a guest, these are threads of the kernel. None where the kernel does not
    /// count it.
    pub others_s: Option<f64>,
}

/// The name of the pause that every run begins with, for what policies do when they start.
pub const START: &str = "start";

/// Whether somebody waits for a [`Step`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepKind {
    /// Somebody waits until it is done.
    Activity,
    /// An idle period: nobody waits.
    Pause,
}

/// One FITRIM of the whole file system.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Trim {
    /// When it began, in seconds since the run's first step began.
    pub start_s: f64,
    /// Seconds until FITRIM returned.
    pub length_s: f64,
}

/// A run in equal intervals of drive time.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Timeline {
    /// The length of an interval, in seconds.
    pub interval_s: f64,
    /// The intervals, from the begin of the run's first step on.
    pub intervals: Vec<Interval>,
}

/// One interval of a [`Timeline`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Interval {
    /// Bytes the host wrote to the device.
    pub written: Bytes,
    /// Discard commands that the device completed.
    pub discards: u64,
    /// Bytes that they named.
    pub discard_bytes: Bytes,
    /// The longest read of the probe that was due in it, in seconds; none where none was due.
    pub probe_max_s: Option<f64>,
}

impl Step {
    /// Seconds of it that somebody waited; none of a pause.
    pub fn waited_s(&self) -> f64 {
        match self.kind {
            StepKind::Activity => self.length_s - self.idle_s,
            StepKind::Pause => 0.0,
        }
    }

    /// MiB written to the device per second; none where nothing was written or no time passed.
    pub fn throughput_mib_s(&self) -> Option<f64> {
        Some(self.host_bytes.mib() / self.length_s).filter(|rate| rate.is_normal())
    }

    /// Whether anything counted commands that reached the device: the emulated drive or the kernel.
    /// Where nothing did, the counts are zero and mean nothing.
    pub fn is_counted(&self) -> bool {
        self.erases.is_some() || self.kernel.is_some()
    }
}

impl ProcessorTime {
    /// Seconds of all parts; none where those of others are not known.
    pub fn all_s(&self) -> Option<f64> {
        Some(self.workload_s + self.drive_s.unwrap_or(0.0) + self.service_s.unwrap_or(0.0) + self.others_s?)
    }
}

impl Run {
    /// Seconds that somebody waited: all activities together.
    pub fn waited_s(&self) -> f64 {
        self.activities().map(Step::waited_s).sum()
    }

    /// Seconds that each of several writers waited: its parts of all activities together. Empty where there is one
    /// writer.
    pub fn writers_waited_s(&self) -> Vec<f64> {
        let mut waited = Vec::new();
        for step in self.activities() {
            waited.resize(waited.len().max(step.writers_s.len()), 0.0);
            for (waited, span) in waited.iter_mut().zip(&step.writers_s) {
                *waited += span;
            }
        }
        waited
    }

    /// The steps that somebody waited for.
    pub fn activities(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.kind == StepKind::Activity)
    }

    /// Whether the drive and the kernel counted the same discards over the whole run; unknown
    /// without an emulated drive or without the kernel's counters.
    pub fn counters_agree(&self) -> Option<bool> {
        let mut difference = [0_i128; 2];
        for step in &self.steps {
            let kernel = step.kernel?;
            step.erases?;
            difference[0] += i128::from(step.discards) - i128::from(kernel.discards);
            difference[1] += i128::from(step.discard_bytes.0) - i128::from(kernel.discard_bytes.0);
        }
        Some(difference == [0, 0])
    }
}
