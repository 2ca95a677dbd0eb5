//! A device with one range that may be touched, whatever goes wrong above it.

use std::io;
use std::time::{Duration, Instant};

use trimtab_core::document::KernelCounters;
use trimtab_core::erase::{Engine, Operation};
use trimtab_core::{Bytes, Extent};

use super::target::{Command, CommandKind, Completion, Queue, Target};

/// A device that refuses every command with bytes outside a range.
pub(crate) struct Confined<'a> {
    target: &'a dyn Target,
    range: Extent,
}

impl<'a> Confined<'a> {
    /// `target`, but for what lies outside `range`.
    pub(crate) fn new(target: &'a dyn Target, range: Extent) -> Self {
        Self { target, range }
    }

    fn check(&self, at: Bytes, length: usize) -> io::Result<()> {
        check(self.range, Extent::at(at, Bytes(length as u64)))
    }
}

fn check(range: Extent, extent: Extent) -> io::Result<()> {
    if extent.start < range.start || extent.end > range.end {
        let reason = format!("{extent} is outside the range {range} that may be touched");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    }
    Ok(())
}

impl Target for Confined<'_> {
    fn logical_block(&self) -> Bytes {
        self.target.logical_block()
    }

    fn read(&self, at: Bytes, into: &mut [u8]) -> io::Result<()> {
        self.check(at, into.len())?;
        self.target.read(at, into)
    }

    fn write(&self, at: Bytes, data: &[u8]) -> io::Result<()> {
        self.check(at, data.len())?;
        self.target.write(at, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.target.flush()
    }

    fn erase(&self, operation: Operation, extent: Extent) -> io::Result<()> {
        check(self.range, extent)?;
        self.target.erase(operation, extent)
    }

    fn drop_caches(&self) -> io::Result<()> {
        self.target.drop_caches()
    }

    fn counters(&self) -> Option<KernelCounters> {
        self.target.counters()
    }

    fn now(&self) -> Instant {
        self.target.now()
    }

    fn pause(&self, span: Duration) {
        self.target.pause(span);
    }

    fn queue(&self, depth: u32) -> io::Result<Box<dyn Queue + '_>> {
        Ok(Box::new(ConfinedQueue { queue: self.target.queue(depth)?, range: self.range }))
    }
}

struct ConfinedQueue<'a> {
    queue: Box<dyn Queue + 'a>,
    range: Extent,
}

impl Queue for ConfinedQueue<'_> {
    fn engine(&self, kind: CommandKind) -> Engine {
        self.queue.engine(kind)
    }

    fn submit(&mut self, tag: u64, command: Command) -> io::Result<()> {
        check(self.range, command.extent)?;
        self.queue.submit(tag, command)
    }

    fn wait(&mut self, until: Option<Instant>) -> io::Result<Option<Completion>> {
        self.queue.wait(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A target that must never be reached.
    struct Untouchable;

    impl Target for Untouchable {
        fn logical_block(&self) -> Bytes {
            Bytes(512)
        }
        fn read(&self, _: Bytes, _: &mut [u8]) -> io::Result<()> {
            unreachable!("a read got through")
        }
        fn write(&self, _: Bytes, _: &[u8]) -> io::Result<()> {
            unreachable!("a write got through")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
        fn erase(&self, _: Operation, _: Extent) -> io::Result<()> {
            unreachable!("an erase got through")
        }
        fn drop_caches(&self) -> io::Result<()> {
            Ok(())
        }
        fn counters(&self) -> Option<KernelCounters> {
            None
        }
        fn now(&self) -> Instant {
            Instant::now()
        }
        fn pause(&self, _: Duration) {}
        fn queue(&self, _: u32) -> io::Result<Box<dyn Queue + '_>> {
            Ok(Box::new(Unreachable))
        }
    }

    struct Unreachable;

    impl Queue for Unreachable {
        fn engine(&self, _: CommandKind) -> Engine {
            Engine::Threads
        }
        fn submit(&mut self, _: u64, _: Command) -> io::Result<()> {
            unreachable!("a command got through")
        }
        fn wait(&mut self, _: Option<Instant>) -> io::Result<Option<Completion>> {
            Ok(None)
        }
    }

    #[test]
    fn commands_outside_the_range_are_refused() {
        let confined = Confined::new(&Untouchable, Extent::new(Bytes(4096), Bytes(8192)));
        for start in [0, 3584, 7680, 8192] {
            let extent = Extent::at(Bytes(start), Bytes(1024));
            assert!(confined.read(extent.start, &mut [0; 1024]).is_err());
            assert!(confined.write(extent.start, &[0; 1024]).is_err());
            assert!(confined.erase(Operation::Discard, extent).is_err());
            let mut queue = confined.queue(1).unwrap();
            assert!(queue.submit(0, Command { kind: CommandKind::Write, extent }).is_err());
        }
    }
}
