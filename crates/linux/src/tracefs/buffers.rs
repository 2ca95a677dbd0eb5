//! The kernel's buffers of an instance, one of each processor.

use std::os::fd::{AsFd, BorrowedFd};

use trimtab_core::{Bytes, Nanos};

use super::error::TracefsError;
use super::format::PageLayout;
use super::instance::{Instance, Pipe};
use super::{clock, page};

/// The buffers, open to be read. The instance can only be removed when they are gone.
#[derive(Debug)]
pub(super) struct Buffers {
    layout: PageLayout,
    /// Room for a page.
    page: Vec<u8>,
    /// How many pages each has.
    pages: usize,
    pipes: Vec<Pipe>,
}

impl Buffers {
    /// Those of `instance`, each of which has room for `size`.
    pub fn open(instance: &Instance, size: Bytes) -> Result<Self, TracefsError> {
        let pipes = instance.pipes()?;
        let page = vec![0; instance.page_size()];
        let pages = (size.0 as usize / page.len()).max(1);
        Ok(Self { layout: instance.page_layout()?, page, pages, pipes })
    }

    /// Readable when there is enough to read.
    pub fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pipes.iter().map(AsFd::as_fd)
    }

    /// Calls `take` with the time and the bytes of each event that is there now, as many of each
    /// processor as its buffer has room for; says until when all was read.
    pub fn read(&mut self, take: impl FnMut(Nanos, &[u8])) -> Result<Nanos, TracefsError> {
        self.drain(self.pages, take)
    }

    /// The same until nothing is left.
    pub fn read_all(&mut self, take: impl FnMut(Nanos, &[u8])) -> Result<Nanos, TracefsError> {
        self.drain(usize::MAX, take)
    }

    fn drain(&mut self, pages: usize, mut take: impl FnMut(Nanos, &[u8])) -> Result<Nanos, TracefsError> {
        let mut until = clock();
        for pipe in &self.pipes {
            let mut last = None;
            for turn in 0.. {
                let length = pipe.read(&mut self.page)?;
                if length == 0 {
                    break;
                }
                page::decode(&self.layout, &self.page[..length], |at, event| {
                    last = Some(Nanos(at));
                    take(Nanos(at), event);
                })
                .map_err(|what| TracefsError::Damaged { cpu: pipe.cpu, what })?;
                if turn == pages {
                    // It is filled as fast as it is read; the others want their turn.
                    until = last.map_or(until, |last| until.min(last));
                    break;
                }
            }
        }
        Ok(until)
    }
}
