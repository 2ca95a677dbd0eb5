//! What `trimtab compare` writes.

use serde::{Deserialize, Serialize};

use super::{Environment, KernelCounters};
use crate::policy::PolicyKind;
use crate::stats::SizeHistogram;
use crate::units::Bytes;

/// The schema name of [`CompareDocument`].
pub const COMPARE_SCHEMA: &str = "trimtab/compare/1";

/// What `trimtab compare` measured: schema `trimtab/compare/1`.
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
    /// The emulated drive; none on a user's own directory, where only wall time is known.
    pub drive: Option<DriveDescription>,
    /// What was run.
    pub workload: WorkloadDescription,
    /// How many runs of each file system and policy were asked for.
    pub runs_asked: u32,
    /// One entry a finished run, in the order they ran.
    pub runs: Vec<Run>,
    /// Why `runs` is not complete; none when it is.
    pub stopped: Option<String>,
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

/// The workload of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadDescription {
    /// `tree`, `fragment` or `exec`.
    pub name: String,
    /// What it does here, in a sentence.
    pub summary: String,
    /// The seed that makes it the same at every run.
    pub seed: u64,
    /// The phases whose time, added up, shows what discards cost while deleting; none where the
    /// workload deletes nothing that it knows of.
    pub delete_phases: Vec<String>,
    /// The phase whose throughput shows what missing discards cost afterwards, if it has one.
    pub write_phase: Option<String>,
}

/// One run of one policy on one file system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The file system: `ext4`, `xfs` or `btrfs`.
    pub fs: String,
    /// The policy.
    pub policy: PolicyKind,
    /// The workload's name.
    pub workload: String,
    /// Which repetition it is, from 1.
    pub run: u32,
    /// Its phases, in order.
    pub phases: Vec<Phase>,
    /// Whether the live files read back as they were written, after dropping caches and, on an
    /// emulated drive, after a remount.
    pub verified: bool,
}

/// One phase of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Its name, unique in the run.
    pub name: String,
    /// Model seconds it took; none without an emulated drive.
    pub model_s: Option<f64>,
    /// Wall seconds it took.
    pub wall_s: f64,
    /// Bytes the host wrote to the device in it.
    pub host_bytes: Bytes,
    /// `host_bytes` per second of model time, or of wall time where that is all there is; none
    /// where nothing was written or no time passed.
    pub throughput_mib_s: Option<f64>,
    /// Discard commands that reached the device.
    pub discards: u64,
    /// Bytes they named.
    pub discard_bytes: Bytes,
    /// Their sizes; empty where only the kernel's counters are known.
    pub discard_histogram: SizeHistogram,
    /// What the kernel's own counters say of the device; none where it has none to read.
    pub kernel: Option<KernelCounters>,
    /// Erase-block erases; none without an emulated drive.
    pub erases: Option<u64>,
    /// Write amplification in this phase; none without an emulated drive or host writes.
    pub waf: Option<f64>,
    /// Model seconds that discards kept the drive busy; none without an emulated drive.
    pub discard_busy_model_s: Option<f64>,
}

impl Phase {
    /// Whether anything counted what reached the device: the emulated drive or the kernel. Where
    /// nothing did, the counts are zero and mean nothing.
    pub fn is_counted(&self) -> bool {
        self.model_s.is_some() || self.kernel.is_some()
    }
}

/// The phase in which a policy's own trims are recorded, wherever in the run they happen.
pub const TRIM_PHASE: &str = "trim";

impl Run {
    /// Whether the drive and the kernel counted the same discards over the whole run; unknown
    /// without an emulated drive or without the kernel's counters.
    pub fn counters_agree(&self) -> Option<bool> {
        let mut difference = [0_i128; 2];
        for phase in &self.phases {
            let kernel = phase.kernel?;
            phase.model_s?;
            difference[0] += i128::from(phase.discards) - i128::from(kernel.discards);
            difference[1] += i128::from(phase.discard_bytes.0) - i128::from(kernel.discard_bytes.0);
        }
        Some(difference == [0, 0])
    }
}
