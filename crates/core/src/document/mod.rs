//! The JSON documents that experiments write and reports are made from.
//!
//! A document holds the raw samples, the environment, the versions and the command line, so that
//! every table and chart can be made again from it. Wall times end in `wall_s`, model times in
//! `model_s`; both are seconds. Latencies that end in `_us` are microseconds of wall time.

pub mod arena;
pub mod background;
pub mod bench;
mod compare;
pub mod decisions;
mod degradation;
pub mod doctor;
mod engine;
mod latency;
pub mod reproduce;
pub mod sim;
pub mod status;
pub mod sweep;
pub mod trim;

pub use bench::{BENCH_SCHEMA, BenchDocument};
pub use compare::{
    COMPARE_SCHEMA, Clock, CompareDocument, DriveDescription, Filling, Interval, ProcessorTime, Reads, Run,
    START, Step, StepKind, Timeline, Trim, WorkloadDescription,
};
pub use doctor::{DOCTOR_SCHEMA, DoctorDocument};
pub use engine::{Engine, ProcessorCosts, UnknownCosts};
pub use reproduce::{REPRODUCE_SCHEMA, ReproduceDocument};
use serde::{Deserialize, Serialize};
pub use sim::{SIM_SCHEMA, SimDocument};
pub use status::{STATUS_SCHEMA, StatusDocument};
pub use trim::{TRIM_SCHEMA, TrimDocument};

use crate::units::Bytes;

/// The machine an experiment ran on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The kernel's release, as `uname -r` gives it.
    pub kernel: String,
    /// The machine's architecture, as `uname -m` gives it.
    pub architecture: String,
    /// The processor's model name.
    pub processor: String,
    /// Processors online.
    pub processors: u32,
    /// Memory.
    pub memory: Bytes,
    /// The versions of the programs used, as they print them, by name.
    pub tools: Vec<(String, String)>,
}

/// A block device's own totals over a phase, from `/sys/block/*/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KernelCounters {
    /// Discard requests completed.
    pub discards: u64,
    /// Bytes discarded.
    pub discard_bytes: Bytes,
    /// Write requests completed.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: Bytes,
}

impl KernelCounters {
    /// Returns the counts after `earlier` was counted on the same device.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            discards: self.discards - earlier.discards,
            discard_bytes: self.discard_bytes - earlier.discard_bytes,
            writes: self.writes - earlier.writes,
            write_bytes: self.write_bytes - earlier.write_bytes,
        }
    }

    /// Adds what happened over another span.
    pub fn merge(&mut self, other: &Self) {
        self.discards += other.discards;
        self.discard_bytes += other.discard_bytes;
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
    }
}
