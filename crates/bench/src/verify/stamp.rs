//! Writing, discarding and classifying whole extents of a device.

use trimtab_core::erase::Operation;
use trimtab_core::{Bytes, Extent};

use super::content::{Class, Contents, Generation};
use crate::device_under_test::pieces;
use crate::error::BenchError;
use crate::target::{CommandKind, Target};
use trimtab_core::interrupt::Interrupt;

/// How much is written or read at a time.
const CHUNK: Bytes = Bytes::MIB;

/// An extent whose every block was written as one generation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamped {
    pub(super) extent: Extent,
    pub(super) generation: Generation,
}

/// Writes blocks that say what they are, and looks what became of them.
pub(super) struct Stamper<'a> {
    target: &'a dyn Target,
    contents: Contents,
    generation: Generation,
    interrupt: &'a Interrupt,
}

impl<'a> Stamper<'a> {
    pub(super) fn new(target: &'a dyn Target, run: u64, interrupt: &'a Interrupt) -> Self {
        let contents = Contents::new(run, target.logical_block());
        Self { target, contents, generation: Generation(0), interrupt }
    }

    pub(super) fn target(&self) -> &'a dyn Target {
        self.target
    }

    pub(super) fn interrupt(&self) -> &'a Interrupt {
        self.interrupt
    }

    pub(super) fn block(&self) -> Bytes {
        self.target.logical_block()
    }

    /// Writes `extent` as a new generation and brings it to stable storage.
    pub(super) fn write(&mut self, extent: Extent) -> Result<Stamped, BenchError> {
        self.generation.0 += 1;
        let stamped = Stamped { extent, generation: self.generation };
        self.write_again(stamped)?;
        Ok(stamped)
    }

    /// Writes what `stamped` says, and brings it to stable storage.
    pub(super) fn write_again(&self, stamped: Stamped) -> Result<(), BenchError> {
        let mut memory = vec![0; CHUNK.min(stamped.extent.len()).0 as usize];
        for piece in pieces(stamped.extent, CHUNK) {
            self.interrupt.check()?;
            let data = &mut memory[..piece.len().0 as usize];
            self.contents.fill(piece.start, stamped.generation, data);
            self.target.write(piece.start, data).map_err(BenchError::io(CommandKind::Write, piece))?;
        }
        self.target.flush().map_err(BenchError::device("flush"))
    }

    /// Discards `extent` with one command.
    pub(super) fn discard(&self, extent: Extent) -> Result<(), BenchError> {
        self.interrupt.check()?;
        let kind = CommandKind::Erase(Operation::Discard);
        self.target.erase(Operation::Discard, extent).map_err(BenchError::io(kind, extent))
    }

    /// Reads the blocks that were written as `stamped`, and passes the address, the class and the contents of each to
    /// `tell`.
    pub(super) fn read(
        &self,
        stamped: Stamped,
        mut tell: impl FnMut(Bytes, Class, &[u8]),
    ) -> Result<(), BenchError> {
        let mut memory = vec![0; CHUNK.min(stamped.extent.len()).0 as usize];
        let block = self.block().0;
        for piece in pieces(stamped.extent, CHUNK) {
            self.interrupt.check()?;
            let data = &mut memory[..piece.len().0 as usize];
            self.target.read(piece.start, data).map_err(BenchError::io(CommandKind::Read, piece))?;
            for (at, bytes) in
                (piece.start.0..).step_by(block as usize).zip(data.chunks_exact(block as usize))
            {
                tell(Bytes(at), self.contents.classify(Bytes(at), stamped.generation, bytes), bytes);
            }
        }
        Ok(())
    }

    /// How many blocks of `stamped` don't read back as written.
    pub(super) fn lost(&self, stamped: Stamped) -> Result<u64, BenchError> {
        let mut lost = 0;
        self.read(stamped, |_, class, _| lost += u64::from(class != Class::Unchanged))?;
        Ok(lost)
    }
}
