//! Commands in `io_uring`.
//!
//! The kernel reads and writes memory of this process while a command is in flight. That memory
//! stays with the command's slot, untouched, until its end was seen; where the ring can't wait for
//! that end, the memory is never freed.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io, mem};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode};
use rustix::io::Errno;
use trimtab_core::erase::Operation;
use trimtab_core::{Bytes, Extent};

use super::{Command, CommandKind};
use crate::device::Device;
use trimtab_core::aligned::Aligned;

/// `_IO(0x12, 0)` of the kernel's `include/uapi/linux/blkdev.h`.
const BLOCK_URING_CMD_DISCARD: u32 = 0x1200;

/// A ring with commands in flight on a device. Dropping it waits for all of them.
pub(super) struct Ring {
    ring: IoUring,
    device: Device,
    discards: bool,
    slots: Vec<Slot>,
}

/// The buffers of the command in flight at a number, or of the last one.
#[derive(Default)]
struct Slot {
    /// The bytes that the command in flight must transfer, zero for an erase; none where no command
    /// is in flight.
    expected: Option<u32>,
    /// Where it reads to.
    read: Aligned,
    /// The data that it writes.
    written: Arc<Aligned>,
}

impl Ring {
    /// A ring for up to `depth` commands in flight on `device`.
    ///
    /// # Errors
    /// The kernel's error, `ENOSYS` and `EPERM` where it has no ring for this process, and
    /// `EOPNOTSUPP` where its ring has no plain reads and writes (before Linux 5.6).
    pub(super) fn new(device: &Device, depth: u32) -> io::Result<Self> {
        let ring = IoUring::new(depth)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(|_| Errno::OPNOTSUPP)?;
        if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::Write::CODE) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let slots = (0..depth).map(|_| Slot::default()).collect();
        let mut ring = Self { ring, device: device.clone(), discards: false, slots };
        ring.discards = probe.is_supported(opcode::UringCmd16::CODE) && ring.probe_discards()?;
        Ok(ring)
    }

    /// Whether it takes commands of kind `kind`.
    pub(super) fn takes(&self, kind: CommandKind) -> bool {
        match kind {
            CommandKind::Read | CommandKind::Write => true,
            CommandKind::Erase(operation) => operation == Operation::Discard && self.discards,
        }
    }

    /// Takes no more discards.
    pub(super) fn leave_discards(&mut self) {
        self.discards = false;
    }

    /// Whether the kernel knows discards in a ring and the device takes them. It refuses one of no
    /// bytes as invalid where it does, and as not supported where it doesn't.
    fn probe_discards(&mut self) -> io::Result<bool> {
        let nothing = Extent::at(Bytes::ZERO, Bytes::ZERO);
        let command = Command { kind: CommandKind::Erase(Operation::Discard), extent: nothing };
        self.submit(0, command, &Arc::default())?;
        loop {
            if let Some((_, result)) = self.reap() {
                return Ok(result.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput));
            }
            retrying(|| self.ring.submit_and_wait(1))?;
        }
    }

    /// Sends `command`, a write with the first bytes of `data`; `slot` comes back with its end.
    ///
    /// # Errors
    /// The kernel's error; the ring is of no use after that. `EINVAL` for a transfer of 4 GiB or
    /// more, which is not sent.
    ///
    /// # Panics
    /// If a command is in flight at `slot`, or `data` is shorter than a write.
    pub(super) fn submit(&mut self, slot: usize, command: Command, data: &Arc<Aligned>) -> io::Result<()> {
        let Command { kind, extent } = command;
        let uses = &mut self.slots[slot];
        assert!(uses.expected.is_none(), "a command is in flight at this number");
        let fd = Fd(self.device.as_fd().as_raw_fd());
        let length = || u32::try_from(extent.len().0).map_err(|_| Errno::INVAL);
        let (entry, expected) = match kind {
            CommandKind::Read => {
                let length = length()?;
                if uses.read.len() < length as usize {
                    uses.read = Aligned::zeroed(length as usize);
                }
                let read = opcode::Read::new(fd, uses.read.as_mut_ptr(), length);
                (read.offset(extent.start.0).build(), length)
            }
            CommandKind::Write => {
                let length = length()?;
                uses.written = Arc::clone(data);
                let written = uses.written[..length as usize].as_ptr();
                (opcode::Write::new(fd, written, length).offset(extent.start.0).build(), length)
            }
            CommandKind::Erase(_) => {
                // `addr3`, where the length goes, is the first half of the command's own bytes.
                let mut length = [0; 16];
                length[..8].copy_from_slice(&extent.len().0.to_ne_bytes());
                let discard = opcode::UringCmd16::new(fd, BLOCK_URING_CMD_DISCARD).cmd(length);
                (discard.addr(Some(extent.start.0)).build(), 0)
            }
        };
        uses.expected = Some(expected);
        let entry = entry.user_data(slot as u64);
        // SAFETY: IORING_OP_READ and IORING_OP_WRITE use `length` bytes at `addr`, which belong to
        // `uses.read` and `uses.written`. Neither is touched, moved or freed before `reap` has seen
        // the command's end and set `expected` to none; see also the drop. IORING_OP_URING_CMD with
        // BLOCK_URING_CMD_DISCARD takes an address on the device and uses no memory.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has an entry for each slot");
        retrying(|| self.ring.submit())?;
        Ok(())
    }

    /// Whether [`wait`](Self::wait) can give up (since Linux 5.11).
    pub(super) fn waits(&self) -> bool {
        self.ring.params().is_feature_ext_arg()
    }

    /// Waits until a command has ended, for `left` at most. It wakes sooner than a poll, which the
    /// kernel first has to leave to note the command's end.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn wait(&self, left: Option<Duration>) -> io::Result<()> {
        let left = left.map(Timespec::from);
        let args = left.iter().fold(SubmitArgs::new(), SubmitArgs::timespec);
        match self.ring.submitter().submit_with_args(1, &args) {
            Ok(_) => Ok(()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::TIME | Errno::INTR) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// The number of a command that has ended, and how.
    pub(super) fn reap(&mut self) -> Option<(usize, io::Result<()>)> {
        let entry = self.ring.completion().next()?;
        let slot = entry.user_data() as usize;
        let expected = self.slots[slot].expected.take().expect("what ended was in flight");
        let result = match u32::try_from(entry.result()) {
            Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
            Ok(transferred) if transferred < expected => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
        };
        Some((slot, result))
    }
}

/// Calls the kernel again where it was interrupted or had no resources for the moment.
fn retrying(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call().map_err(|error| (Errno::from_io_error(&error), error)) {
            Err((Some(Errno::INTR | Errno::AGAIN | Errno::BUSY), _)) => std::thread::yield_now(),
            outcome => return outcome.map_err(|(_, error)| error),
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while self.slots.iter().any(|slot| slot.expected.is_some()) {
            if self.reap().is_none() && retrying(|| self.ring.submit_and_wait(1)).is_err() {
                mem::forget(mem::take(&mut self.slots));
            }
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Ring").field("discards", &self.discards).finish_non_exhaustive()
    }
}
