//! The commands that free a range of a device, and how they are kept in flight.

use serde::{Deserialize, Serialize};

/// A command that frees a range of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// `BLKDISCARD`, or its `io_uring` form.
    Discard,
    /// `BLKZEROOUT`.
    Zeroout,
    /// `BLKSECDISCARD`.
    Secure,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Discard, Self::Zeroout, Self::Secure];

    /// The name that users give it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discard => "discard",
            Self::Zeroout => "zeroout",
            Self::Secure => "secure",
        }
    }
}

/// How commands are kept in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Engine {
    /// `io_uring`; discards in it need Linux 6.12.
    #[serde(rename = "io_uring")]
    IoUring,
    /// A thread for each command in flight.
    #[serde(rename = "threads")]
    Threads,
}

impl Engine {
    /// The name in the document.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Threads => "threads",
        }
    }
}
