//! The bare FUSE file that the drive is measured against: memory, and nothing else.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, Session, WriteFlags,
};
use trimtab_core::Bytes;
use trimtab_linux::{loop_device, mount};

const FILE: INodeNo = INodeNo(2);
/// As many as the drive's server has.
const THREADS: usize = 2;
const FOR_EVER: Duration = Duration::from_secs(1 << 20);

/// A bare file behind a loop device, in a process of its own.
pub struct Bare {
    server: Child,
    target: PathBuf,
    device: PathBuf,
}

impl Bare {
    pub fn start(executable: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let target = std::env::temp_dir().join(format!("trimtab-bare-{}", std::process::id()));
        std::fs::create_dir(&target)?;
        let server = Command::new(executable).arg("bare").arg(&target).stdin(Stdio::null()).spawn()?;
        let mut bare = Self { server, target, device: PathBuf::new() };
        let file = bare.target.join("file");
        while !file.exists() {
            if let Some(status) = bare.server.try_wait()? {
                return Err(format!("the bare server ended: {status}").into());
            }
            sleep(Duration::from_millis(5));
        }
        bare.device = loop_device::attach(&file, Bytes(512))?;
        Ok(bare)
    }

    pub fn device(&self) -> &Path {
        &self.device
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = loop_device::detach(&self.device);
        let _ = mount::unmount_lazily(&self.target);
        let _ = self.server.wait();
        let _ = std::fs::remove_dir(&self.target);
    }
}

/// Serves a file of `size` at `target` until that is unmounted.
pub fn serve(target: &Path, size: Bytes) -> io::Result<()> {
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    match Session::new(Memory(RwLock::new(vec![0; size.0 as usize])), target, &config)?.run() {
        // So one thread is told of the unmount that takes a request while the other ends.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        served => served,
    }
}

struct Memory(RwLock<Vec<u8>>);

impl Memory {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let size = self.0.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let (kind, size) =
            if inode == FILE { (FileType::RegularFile, size) } else { (FileType::Directory, 0) };
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

    fn write_with(&self, offset: u64, length: usize, write: impl FnOnce(&mut [u8])) {
        let mut memory = self.0.write().unwrap_or_else(PoisonError::into_inner);
        write(&mut memory[offset as usize..offset as usize + length]);
    }
}

impl Filesystem for Memory {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let unsupported = |_| io::Error::from(io::ErrorKind::Unsupported);
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(unsupported)?;
        config.set_max_write(1 << 20).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        config.set_max_background(128).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "file" {
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
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let memory = self.0.read().unwrap_or_else(PoisonError::into_inner);
        reply.data(&memory[offset as usize..offset as usize + size as usize]);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.write_with(offset, data.len(), |memory| memory.copy_from_slice(data));
        reply.written(data.len() as u32);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        self.write_with(offset, length as usize, |memory| memory.fill(0));
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }
}
