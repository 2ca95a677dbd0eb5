//! The kernel's trace buffers of an instance, one per processor.

use std::os::fd::{AsFd, BorrowedFd};

use trimtab_core::{Bytes, Nanos};

use super::error::TracefsError;
use super::format::PageLayout;
use super::instance::{Instance, Pipe};
use super::{clock, page};

/// The open buffers. They must be dropped before the instance, which cannot be removed while they are open.
#[derive(Debug)]
pub(super) struct Buffers {
    layout: PageLayout,
    /// A page that is being decoded.
    page: Vec<u8>,
    /// The number of pages of each buffer.
    pages: usize,
    pipes: Vec<Pipe>,
}

impl Buffers {
    /// Opens the buffers of `instance`. Each has room for `size`.
    pub fn open(instance: &Instance, size: Bytes) -> Result<Self, TracefsError> {
        let pipes = instance.pipes()?;
        let page = vec![0; instance.page_size()];
        let pages = (size.0 as usize / page.len()).max(1);
        Ok(Self { layout: instance.page_layout()?, page, pages, pipes })
    }

    /// Returns the files that become readable once a buffer is filled as far as `buffer_percent` says.
    pub fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pipes.iter().map(AsFd::as_fd)
    }

    /// Calls `take` with the time and the bytes of each buffered event, at most one buffer's worth per
    /// processor. Returns the time before which every event has been read.
    pub fn read(&mut self, take: impl FnMut(Nanos, &[u8])) -> Result<Nanos, TracefsError> {
        self.drain(self.pages, take)
    }

    /// Does the same until the buffers are empty.
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
                    // This buffer is filled as fast as it is read: go on to the other processors.
                    until = last.map_or(until, |last| until.min(last));
                    break;
                }
            }
        }
        Ok(until)
    }
}
