//! The commands that a drive takes.

use trimtab_core::Extent;

/// The operation of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Reads its extent.
    Read,
    /// Writes its extent.
    Write,
    /// Tells the drive that its extent holds nothing of use.
    Discard,
    /// Brings all that was written to flash; its extent doesn't matter.
    Flush,
}

/// A command to a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command {
    /// Its operation.
    pub op: Op,
    /// The bytes it names, inside the drive.
    pub extent: Extent,
}

impl Command {
    /// Whether it writes one page of `2^page_shift` bytes, or a part of one.
    pub(crate) fn is_page_write(&self, page_shift: u32) -> bool {
        let Extent { start, end } = self.extent;
        self.op == Op::Write && start < end && start.0 >> page_shift == (end.0 - 1) >> page_shift
    }
}
