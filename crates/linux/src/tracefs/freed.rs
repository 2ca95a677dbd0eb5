//! The extents that file systems free and allocate.

use std::time::Duration;

use trimtab_core::Extent;
use trimtab_core::trace::EventKind;

use crate::block::DeviceNumber;

/// Adjacent events at most this far apart are joined into one.
const JOIN_WITHIN: Duration = Duration::from_secs(1);

/// An extent that a file system freed or allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// The time of the event, or of its transaction's commit, since [`Frees::began`](super::Frees::began); wall time.
    pub at: Duration,
    /// The file system's number, as in [`Mount::number`](crate::mount::Mount::number).
    pub file_system: DeviceNumber,
    /// [`EventKind::Free`] or [`EventKind::Allocate`].
    pub kind: EventKind,
    /// The bytes, in the file system's trim address space: device addresses for ext4 and XFS, logical ones
    /// for btrfs. Adjacent extents in succession are joined. If very many wait for one commit, some are
    /// joined across the gaps between them.
    pub extent: Extent,
}

impl Freed {
    /// Joins the following event `next` if its extent is adjacent; returns true if it was joined.
    pub(super) fn absorb(&mut self, next: &Self) -> bool {
        let is_like = self.file_system == next.file_system && self.kind == next.kind;
        let is_near = next.at.saturating_sub(self.at) <= JOIN_WITHIN;
        let (one, other) = (self.extent, next.extent);
        let touches = one.end == other.start || other.end == one.start;
        if is_like && is_near && touches {
            self.extent = Extent::new(one.start.min(other.start), one.end.max(other.end));
        }
        is_like && is_near && touches
    }
}
