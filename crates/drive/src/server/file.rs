//! The FUSE file system of one file that the loop device sits on.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, Session, WriteFlags,
};
use rustix::fs::FallocateFlags;
use trimtab_core::{Bytes, Extent};
use trimtab_linux::identity::DRIVE_SOURCE;

use super::engine::{Engine, ModelFailed};
use super::held::{Answer, HeldAnswers};
use super::ordering::RequestNumber;
use crate::directory::FILE_NAME;
use crate::protocol::{Clock, Spec};

/// The file's inode; the root directory's is 1.
const FILE: INodeNo = INodeNo(2);

/// Nothing about the file ever changes: the kernel may remember it as long as it likes.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// The largest request.
const MAX_WRITE: u32 = 1 << 20;

/// How many requests the kernel keeps in flight: what the loop driver's queue holds.
const IN_FLIGHT: u16 = 128;

/// Threads that take requests.
const THREADS: usize = 2;

/// Mounts the file system of a drive's file at `target`; running the session serves it.
pub(crate) fn mount(target: &Path, engine: Arc<Engine>, spec: &Spec) -> io::Result<Session<DriveFile>> {
    let held = match spec.clock {
        Clock::Model => None,
        Clock::Real { .. } => {
            let held = Arc::new(HeldAnswers::new());
            let sender = Arc::clone(&held);
            thread::Builder::new().name("held".to_owned()).spawn(move || sender.send_all())?;
            Some(held)
        }
    };
    let file = DriveFile {
        engine,
        held,
        size: spec.size,
        granularity: spec.profile.discard.advertised_granularity.value,
    };
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName(DRIVE_SOURCE.to_owned()), MountOption::Subtype("trimtab".to_owned())];
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    Session::new(file, target, &config)
}

/// The file system.
pub(crate) struct DriveFile {
    engine: Arc<Engine>,
    /// Where replies wait on the real clock.
    held: Option<Arc<HeldAnswers>>,
    size: Bytes,
    granularity: Bytes,
}

thread_local! {
    /// The buffer that a thread reads into, kept from one read to the next.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl DriveFile {
    /// Says that something is done when that is due, or that it failed.
    fn done(&self, done: Result<Option<Instant>, ModelFailed>, reply: ReplyEmpty) {
        match done {
            Ok(due) => self.answer(due, Answer::Done(reply)),
            Err(failed) => reply.error(io::Error::from(failed).into()),
        }
    }

    /// Sends `answer` when it is due, or at once.
    fn answer(&self, due: Option<Instant>, answer: Answer) {
        match (due, &self.held) {
            (Some(due), Some(held)) if due > Instant::now() => held.hold(due, answer),
            _ => answer.send(),
        }
    }

    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let (kind, size) = match inode {
            FILE => (FileType::RegularFile, self.size.0),
            _ => (FileType::Directory, 0),
        };
        let time = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino: inode,
            size,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

fn number(request: &Request) -> RequestNumber {
    RequestNumber(request.unique().0)
}

impl Filesystem for DriveFile {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let unsupported = |_| io::Error::from(io::ErrorKind::Unsupported);
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(unsupported)?;
        config.set_max_write(MAX_WRITE).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        config.set_max_background(IN_FLIGHT).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == FILE_NAME {
            reply.entry(&FOR_EVER, &self.attributes(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(size as usize, 0);
            match self.engine.read(number(request), Bytes(offset), buffer) {
                Ok(Some(due)) => self.answer(Some(due), Answer::Data(reply, std::mem::take(buffer))),
                Ok(None) => reply.data(buffer),
                Err(error) => reply.error(error.into()),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.engine.write(number(request), Bytes(offset), data) {
            Ok(due) => self.answer(due, Answer::Written(reply, data.len() as u32)),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // Only a discard: see the crate's documentation. `ENOSYS` would end all fallocates.
        if !FallocateFlags::from_bits_retain(mode as u32).contains(FallocateFlags::PUNCH_HOLE) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let done = self.engine.discard(number(request), Extent::at(Bytes(offset), Bytes(length)));
        self.done(done, reply);
    }

    fn fsync(&self, request: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.done(self.engine.flush(number(request)), reply);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Every close of the file, not a flush of the drive.
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        // The loop driver takes the block size for the discard granularity.
        let granularity = self.granularity.0;
        reply.statfs(self.size.0 / granularity, 0, 0, 1, 0, granularity as u32, 255, granularity as u32);
    }
}
