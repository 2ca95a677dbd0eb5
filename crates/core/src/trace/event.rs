//! One event of a trace.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::extent::Extent;
use crate::units::Nanos;

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum EventKind {
    /// A read request.
    Read,
    /// A write request.
    Write,
    /// A discard request.
    Discard,
    /// A flush request; it names no bytes.
    Flush,
    /// A "write zeroes" request.
    WriteZeroes,
    /// A secure erase request.
    SecureErase,
    /// A file system gave up these bytes.
    Free,
    /// A file system took these bytes into use.
    Allocate,
    /// These bytes were free when recording began, or when their file system was mounted.
    Unused,
}

/// A kind's name that isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no kind of event {0:?}; there are {names}", names = EventKind::ALL.map(EventKind::name).join(", "))]
pub struct UnknownKind(pub String);

impl EventKind {
    /// All of them, each at the place of its number.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Write,
        Self::Discard,
        Self::Flush,
        Self::WriteZeroes,
        Self::SecureErase,
        Self::Free,
        Self::Allocate,
        Self::Unused,
    ];

    /// The name that traces, tables and command lines use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Flush => "flush",
            Self::WriteZeroes => "write-zeroes",
            Self::SecureErase => "secure-erase",
            Self::Free => "free",
            Self::Allocate => "allocate",
            Self::Unused => "unused",
        }
    }

    /// Whether it is a request to a device, rather than word from a file system.
    pub const fn is_request(self) -> bool {
        !matches!(self, Self::Free | Self::Allocate | Self::Unused)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for EventKind {
    type Err = UnknownKind;
    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// A device, by its place in [`TraceHeader::devices`](super::TraceHeader::devices).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct DeviceIndex(pub u16);

/// A mounted file system, by its place in
/// [`TraceHeader::file_systems`](super::TraceHeader::file_systems).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FsIndex(pub u16);

/// The name of a process as the kernel keeps it: at most 15 bytes; empty where it isn't known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Comm([u8; 16]);

impl Comm {
    /// The name in `bytes`, which ends at their first zero; all past the 15th byte is cut off.
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        const LOW: u128 = u128::MAX / 255;
        let name = number_of(&bytes[..bytes.len().min(15)]);
        // Only the first byte of zero is marked for sure, and none before it.
        let zeroes = name.wrapping_sub(LOW) & !name & (LOW << 7);
        let end = zeroes.trailing_zeros() / 8 * 8;
        Self((name & ((1 << end) - 1)).to_le_bytes())
    }

    /// The name's bytes, which are whatever the process chose.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0[..self.0.iter().position(|byte| *byte == 0).unwrap_or(15)]
    }

    /// Whether the process isn't known.
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
}

/// Returns the number whose lowest bytes are these, 15 at most. A copy of few bytes into an array would make the next
/// load of the array wait.
#[inline]
fn number_of(bytes: &[u8]) -> u128 {
    let shift = |size: usize| 8 * (bytes.len() - size);
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        u128::from(u64::from_le_bytes(*first)) | u128::from(u64::from_le_bytes(*last)) << shift(8)
    } else if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        (u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift(4)).into()
    } else {
        bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)).into()
    }
}

impl fmt::Display for Comm {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(&String::from_utf8_lossy(self.as_bytes()))
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// One event of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent {
    /// When it began, in nanoseconds since the trace began, on the trace's own clock (wall time).
    pub at: Nanos,
    /// The whole device that it happened on.
    pub device: DeviceIndex,
    /// The kind of the event.
    pub kind: EventKind,
    /// The bytes of the device that it names; empty for a flush. A free or allocation is mapped from
    /// the file system's own addresses to the device's.
    pub extent: Extent,
    /// From issue to completion; none where that isn't known, or the event takes no time.
    pub latency: Option<Nanos>,
    /// The process that caused it.
    pub process: Comm,
    /// The error it ended with, as a positive errno; 0 for none.
    pub error: u16,
    /// The file system that told of it; none for requests.
    pub fs: Option<FsIndex>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_keep_their_number_and_name() {
        for (number, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.name()));
        }
        let error = "trim".parse::<EventKind>().unwrap_err().to_string();
        assert!(error.starts_with("there is no kind of event \"trim\"; there are read, write,"), "{error}");
    }

    #[test]
    fn process_names_are_cut_and_may_hold_any_bytes() {
        assert_eq!(Comm::new(b"fstrim\0\0rest").to_string(), "fstrim");
        assert_eq!(Comm::new(b"a-name-of-too-many-bytes").to_string(), "a-name-of-too-m");
        let name = b"a-name-of-too-many-bytes";
        for length in 0..name.len() {
            assert_eq!(Comm::new(&name[..length]).as_bytes(), &name[..length.min(15)]);
        }
        assert_eq!(Comm::new(&[0xff, b'x']).to_string(), "\u{fffd}x");
    }
}
