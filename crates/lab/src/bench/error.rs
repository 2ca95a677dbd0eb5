//! What can go wrong in a bench.

use std::fmt;
use std::io;

use trimtab_core::Extent;
use trimtab_core::document::bench::Operation;

use crate::interrupt::Interrupted;

/// What can go wrong in a bench.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A command that names bytes of the device failed.
    #[error("cannot {action} {extent}")]
    Io {
        /// The command.
        action: Action,
        /// The bytes it named.
        extent: Extent,
        /// What the kernel said.
        source: io::Error,
    },
    /// The results could not be saved.
    #[error("cannot save the results")]
    Save(#[source] io::Error),
    /// The device as a whole can't be brought into a known state.
    #[error("cannot {action} the device")]
    Device {
        /// What was tried, such as `flush`.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl BenchError {
    /// Wraps what the kernel said to `action` on `extent`.
    pub fn io(action: Action, extent: Extent) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, extent, source }
    }

    /// Whether the device or the kernel has no such command.
    pub fn is_unsupported(&self) -> bool {
        let source = match self {
            Self::Io { source, .. } | Self::Device { source, .. } => source,
            Self::Interrupted(_) | Self::Save(_) => return false,
        };
        source.kind() == io::ErrorKind::Unsupported
    }

    /// Wraps what the kernel said to `action` on the whole device.
    pub fn device(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Device { action, source }
    }
}

/// A command that names bytes of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Reads; in a queue, throws away what it read.
    Read,
    /// Writes; in a queue, data that can't be compressed.
    Write,
    /// A discard, or another operation that frees.
    Erase(Operation),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Erase(Operation::Discard) => "discard",
            Self::Erase(Operation::Zeroout) => "zero out",
            Self::Erase(Operation::Secure) => "securely discard",
        })
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::Bytes;

    use super::*;

    #[test]
    fn an_error_names_the_command_and_its_bytes() {
        let extent = Extent::new(Bytes(4096), Bytes(8192));
        let error = BenchError::io(Action::Erase(Operation::Discard), extent)(io::ErrorKind::Other.into());
        assert_eq!(error.to_string(), "cannot discard 4096..8192");
        assert!(std::error::Error::source(&error).is_some());
    }
}
