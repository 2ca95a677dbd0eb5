//! The header of a trace.

use serde::{Deserialize, Serialize};

use crate::document::Environment;
use crate::units::{Bytes, Nanos};

/// The schema name of our own trace files.
pub const TRACE_SCHEMA: &str = "trimtab/trace/1";

/// The header of a trace, whatever format it came in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// [`TRACE_SCHEMA`].
    pub schema: String,
    /// The version of trimtab that wrote it; empty where another program did.
    pub version: String,
    /// The command line that wrote it, word by word; empty where it isn't known.
    pub command: Vec<String>,
    /// When it began: RFC 3339, UTC; none where the format doesn't say.
    pub started: Option<String>,
    /// The machine it was recorded on; none where the format doesn't say.
    pub environment: Option<Environment>,
    /// Where it came from: `record`, or the name of the format it was read from.
    pub origin: String,
    /// The devices that events name, by [`DeviceIndex`](super::DeviceIndex).
    pub devices: Vec<TraceDevice>,
    /// The file systems that events name, by [`FsIndex`](super::FsIndex).
    pub file_systems: Vec<TraceFileSystem>,
    /// Whether discards would be in it, had there been any.
    pub has_discards: bool,
    /// Whether what file systems free would be in it.
    pub has_frees: bool,
    /// Events that the kernel had to drop because they were not read in time.
    pub lost: u64,
    /// Gaps in the recording, each in a sentence for the user.
    pub gaps: Vec<String>,
    /// How long was recorded; none where the format doesn't say.
    pub duration: Option<Nanos>,
}

impl TraceHeader {
    /// The [`origin`](Self::origin) of traces whose frees were synthesised.
    pub const SYNTHETIC: &'static str = "synth";

    /// The header of a trace whose origin alone is known.
    pub fn new(origin: &str) -> Self {
        Self {
            schema: TRACE_SCHEMA.to_owned(),
            version: String::new(),
            command: Vec::new(),
            started: None,
            environment: None,
            origin: origin.to_owned(),
            devices: Vec::new(),
            file_systems: Vec::new(),
            has_discards: false,
            has_frees: false,
            lost: 0,
            gaps: Vec::new(),
            duration: None,
        }
    }

    /// Whether what file systems free was not recorded, but synthesised.
    pub fn has_synthetic_frees(&self) -> bool {
        self.origin == Self::SYNTHETIC
    }
}

/// A whole device that events of a trace happened on. What the format doesn't say is zero or empty.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TraceDevice {
    /// Its name, such as `nvme0n1`; where a format has numbers only, the number.
    pub name: String,
    /// Its major and minor number.
    pub number: (u32, u32),
    /// Its model.
    pub model: String,
    /// Its size.
    pub size: Bytes,
    /// Its logical block.
    pub logical_block: Bytes,
    /// Whether it is a rotating disk.
    pub rotational: bool,
    /// The smallest discard worth sending; zero where it takes none.
    pub discard_granularity: Bytes,
    /// The longest discard the kernel sends as one command.
    pub discard_max: Bytes,
    /// The longest discard that it takes.
    pub discard_max_hardware: Bytes,
}

/// A file system that was mounted from a device of the trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFileSystem {
    /// Its kind, such as `ext4`.
    pub kind: String,
    /// Where it was mounted.
    pub mount_point: String,
    /// The options it was mounted with.
    pub options: String,
    /// The device it was mounted from, such as `/dev/nvme0n1p2`.
    pub source: String,
}
