//! The errors of a bench.

use std::io;

use trimtab_core::Extent;
use trimtab_core::erase::Operation;
use trimtab_linux::queue::CommandKind;

use trimtab_core::interrupt::Interrupted;

/// The errors of a bench.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A command that names bytes of the device failed.
    #[error("cannot {} {extent}", verb(*kind))]
    Io {
        /// The command.
        kind: CommandKind,
        /// The bytes it named.
        extent: Extent,
        /// The kernel's error.
        source: io::Error,
    },
    /// The results could not be saved.
    #[error("cannot save the results")]
    Save(#[source] io::Error),
    /// The device as a whole can't be brought into a known state.
    #[error("cannot {action} the device")]
    Device {
        /// The action that failed, such as `flush`.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl BenchError {
    /// Wraps what the kernel said to a command on `extent`.
    pub fn io(kind: CommandKind, extent: Extent) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { kind, extent, source }
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

/// Returns the action of a command, as a verb.
const fn verb(kind: CommandKind) -> &'static str {
    match kind {
        CommandKind::Read => "read",
        CommandKind::Write => "write",
        CommandKind::Erase(Operation::Discard) => "discard",
        CommandKind::Erase(Operation::Zeroout) => "zero out",
        CommandKind::Erase(Operation::Secure) => "securely discard",
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::Bytes;

    use super::*;

    #[test]
    fn an_error_names_the_command_and_its_bytes() {
        let extent = Extent::new(Bytes(4096), Bytes(8192));
        let error =
            BenchError::io(CommandKind::Erase(Operation::Discard), extent)(io::ErrorKind::Other.into());
        assert_eq!(error.to_string(), "cannot discard 4096..8192");
        assert!(std::error::Error::source(&error).is_some());
    }
}
