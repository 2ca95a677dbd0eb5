//! Trimming a mounted file system, and bringing its data to the device.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{StatFs, fremovexattr};
use rustix::io::Errno;
use trimtab_core::{Bytes, Extent};

use crate::block::BlockDevice;
use crate::forked::{self, Ender, Forked, Woken};
use crate::mount::{is_gone, mounts, open_directory, open_of};
use crate::{PROCFS, SYSFS, btrfs, ioctl};

mod error;

pub use error::TrimError;

/// The whole trim address space of a file system, however large it is.
pub const EVERYTHING: Extent = Extent { start: Bytes(0), end: Bytes(u64::MAX) };

/// Returns whether the kernel's FITRIM of a file system of this name discards data that is in use, so that nothing here calls it.
///
/// `ntfs3`: a range that ends beyond the first 32768 clusters, and all of a volume where as many clusters are used between free
/// ones (tried with Linux 6.12: `findings/ntfs3-fitrim-discards-data-in-use.sh`; `ntfs_trim_fs` is the same since 5.15). `ntfs`, the driver of
/// Linux 7.1: what lies around free space within a unit of the drive (reported of 7.2).
pub fn loses_data(fstype: &str) -> bool {
    matches!(fstype, "ntfs3" | "ntfs")
}

/// The magic numbers of the file systems of [`loses_data`]: "ntfs" and "NTFS", from the last letter to the first.
const LOSES_DATA: [i64; 2] = [0x7366_746e, 0x5346_544e];
/// The magic number of eCryptfs (include/uapi/linux/magic.h), which hands FITRIM on to the file system below, whatever that is.
const ECRYPTFS: i64 = 0xf15f;

/// Checks that FITRIM may be called on a file system with this magic number.
fn check_magic(magic: i64) -> io::Result<()> {
    match magic {
        ECRYPTFS => Err(Errno::OPNOTSUPP.into()),
        magic if LOSES_DATA.contains(&magic) => Err(io::Error::other(LosesData)),
        _ => Ok(()),
    }
}

/// The error of [`fitrim`] on a file system of [`loses_data`].
#[derive(Debug, thiserror::Error)]
#[error("the FITRIM of NTFS discards data that is in use")]
struct LosesData;

/// Returns whether an error of [`fitrim`] says that it was not called, because it would [discard data that is in use](loses_data).
pub fn is_of_lost_data(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<LosesData>())
}

/// The magic number of JFS.
const JFS: i64 = 0x3153_464a;
/// The magic numbers of file systems that cut the least length to 32 bits: FAT (include/uapi/linux/magic.h), exFAT and JFS.
const CUT_TO_32_BITS: [i64; 3] = [0x4d44, 0x2011_bab0, JFS];

/// Returns `minimum`, or the longest that the file system of `directory` takes.
fn within_limits(directory: &File, minimum: Bytes) -> Bytes {
    let is_cut = || rustix::fs::fstatfs(directory).is_ok_and(|found| CUT_TO_32_BITS.contains(&found.f_type));
    let longest = Bytes(u32::MAX.into());
    if minimum > longest && is_cut() { longest } else { minimum }
}

/// A process that trims a mounted file system. It opens the file system for the length of a call only, so the mount can
/// be unmounted between two calls; a call that is under way can be [ended](Ender). Dropping it ends the process.
#[derive(Debug)]
pub struct TrimProcess<'a> {
    mount: &'a Path,
    devices: &'a [BlockDevice],
    child: Forked,
    /// The list of mounts, which shows that the file system was unmounted lazily during a call.
    mounts: Option<File>,
}

/// A trim that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The kernel's figure, which means different things: bytes discarded on ext4, bytes examined on XFS.
    pub reported: Bytes,
    /// When FITRIM was called. A file system that was frozen was waited for before.
    pub begun: Instant,
}

/// A name in a namespace of extended attributes that no file system has. To remove it takes the lock that freezing takes,
/// and changes nothing.
const NO_ATTRIBUTE: &str = "trimtab.none";

/// A file system to which nobody can write for so long is taken for frozen.
const FROZEN_AFTER: Duration = Duration::from_secs(1);

/// A request to the process: start and end of the range, and the least length.
const REQUEST: usize = 24;
/// An answer: one of these, and a figure.
const ANSWER: usize = 16;
const BEGUN: u64 = 0;
const TRIMMED: u64 = 1;
const REFUSED: u64 = 2;
const UNMOUNTED: u64 = 3;
const DANGEROUS: u64 = 4;

impl<'a> TrimProcess<'a> {
    /// Starts the process for the file system mounted at `mount` from `devices`. `ender` can end it from then on.
    ///
    /// # Errors
    /// [`TrimError::Trim`] if there can be no process.
    pub fn start(mount: &'a Path, devices: &'a [BlockDevice], ender: &Ender) -> Result<Self, TrimError> {
        let child = Forked::start(ender, |stream| serve(&stream, mount, devices));
        let child = child.map_err(|source| TrimError::Trim { mount: mount.to_owned(), source })?;
        let mounts = File::open(Path::new(PROCFS).join("self/mountinfo")).ok();
        Ok(Self { mount, devices, child, mounts })
    }

    /// Asks the file system to discard its free space within `range` of its trim address space, leaving out free pieces
    /// shorter than `minimum`. Ends the process if the mount goes, or after `limit`.
    ///
    /// # Errors
    /// [`TrimError::Unsupported`], [`TrimError::LosesData`], [`TrimError::Trim`], [`TrimError::Unmounted`], [`TrimError::Frozen`]: then
    /// [`Self::abandon`] it; [`TrimError::TooLong`] after `limit`, or [`TrimError::Ended`] if the process was ended otherwise.
    pub fn trim(&self, range: Extent, minimum: Bytes, limit: Option<Duration>) -> Result<Done, TrimError> {
        let mut request = Vec::with_capacity(REQUEST);
        for number in [range.start, range.end, minimum] {
            request.extend(number.0.to_le_bytes());
        }
        // If the process has ended, there is no answer.
        _ = (&mut self.child.stream()).write_all(&request);
        // Whoever writes has to wait while it is frozen, and so has the process before it calls FITRIM.
        if self.child.wait(&[], Some(Instant::now() + FROZEN_AFTER)) == Woken::Late {
            return Err(TrimError::Frozen { mount: self.mount.to_owned() });
        }
        let mut begun: Option<Instant> = None;
        loop {
            let is_late = self.await_answer(begun.zip(limit).map(|(begun, limit)| begun + limit));
            let [kind, figure] = self.child.receive::<ANSWER>().map_or([u64::MAX, 0], numbers);
            match kind {
                BEGUN => begun = Some(Instant::now()),
                TRIMMED => {
                    return Ok(Done { reported: Bytes(figure), begun: begun.unwrap_or_else(Instant::now) });
                }
                REFUSED => return Err(of_call(self.mount, io::Error::from_raw_os_error(figure as i32))),
                UNMOUNTED => return Err(TrimError::Unmounted { mount: self.mount.to_owned() }),
                DANGEROUS => return Err(TrimError::LosesData { mount: self.mount.to_owned() }),
                _ if is_late => return Err(TrimError::TooLong { mount: self.mount.to_owned() }),
                _ if self.is_mounted() => return Err(TrimError::Ended { mount: self.mount.to_owned() }),
                _ => return Err(TrimError::Unmounted { mount: self.mount.to_owned() }),
            }
        }
    }

    /// Ends a process that waits for a frozen file system. It hangs until that is thawed, and then ends without a trim. Returns a
    /// stream that [`crate::forked::has_closed`] then; `None` if there is none.
    pub fn abandon(self) -> Option<UnixStream> {
        self.child.abandon().ok()
    }

    /// Waits for the next answer or the end of the process, and ends it if the mount goes or at `deadline`. Returns whether it
    /// was too late.
    fn await_answer(&self, deadline: Option<Instant>) -> bool {
        let others: Vec<BorrowedFd<'_>> = self.mounts.iter().map(File::as_fd).collect();
        loop {
            match self.child.wait(&others, deadline) {
                Woken::Answer => return false,
                Woken::Other if self.is_mounted() => {}
                woken => {
                    self.child.end();
                    self.child.wait(&[], None);
                    return woken == Woken::Late;
                }
            }
        }
    }

    /// Returns whether the file system is still mounted there, as far as the list of mounts can be read.
    fn is_mounted(&self) -> bool {
        let Ok(mounts) = mounts(Path::new(PROCFS)) else { return true };
        let numbers: Vec<_> = self.devices.iter().filter_map(|device| device.number().ok()).collect();
        let mut here = mounts.iter().filter(|mount| mount.target == self.mount);
        // btrfs has a number of its own.
        here.any(|mount| mount.number.major == 0 || numbers.contains(&mount.number))
    }

    /// Returns the directory in sysfs of the btrfs that it trims.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn btrfs_directory(&self) -> io::Result<PathBuf> {
        let id = ioctl::btrfs_id(open_of(self.mount, self.devices)?)?;
        Ok(btrfs::directory(Path::new(SYSFS), &id))
    }
}

fn numbers<const BYTES: usize, const COUNT: usize>(bytes: [u8; BYTES]) -> [u64; COUNT] {
    std::array::from_fn(|at| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte])))
}

/// Answers requests until there are no more.
fn serve(mut stream: &UnixStream, mount: &Path, devices: &[BlockDevice]) {
    let mut request = [0; REQUEST];
    while stream.read_exact(&mut request).is_ok() {
        let [start, end, minimum] = numbers(request);
        let mut send = |kind: u64, figure: u64| {
            let mut answer = [0; ANSWER];
            answer[..8].copy_from_slice(&kind.to_le_bytes());
            answer[8..].copy_from_slice(&figure.to_le_bytes());
            _ = stream.write_all(&answer);
        };
        let answer = open_of(mount, devices).and_then(|directory| {
            check_writable(&directory, devices)?;
            send(BEGUN, 0);
            fitrim(&directory, Extent::new(Bytes(start), Bytes(end)), Bytes(minimum))
        });
        match answer {
            Ok(reported) => send(TRIMMED, reported.0),
            Err(error) if is_gone(&error) => send(UNMOUNTED, 0),
            Err(error) if is_of_lost_data(&error) => send(DANGEROUS, 0),
            Err(error) => send(REFUSED, error.raw_os_error().unwrap_or(libc::EIO) as u64),
        }
    }
}

/// Checks that the file system and its devices can be written to: a discard is a write. Waits while the file system is
/// frozen: FITRIM itself does not.
fn check_writable(directory: &File, devices: &[BlockDevice]) -> io::Result<()> {
    let is_read_only = |device: &BlockDevice| device.is_read_only().unwrap_or(false);
    match fremovexattr(directory, NO_ATTRIBUTE) {
        Err(Errno::ROFS) => Err(Errno::ROFS.into()),
        _ if devices.iter().any(is_read_only) => Err(Errno::ROFS.into()),
        _ => Ok(()),
    }
}

/// Calls FITRIM on the file system that `directory` is on, as [`trim`] does.
///
/// # Errors
/// The kernel's error; one of its own on a file system whose FITRIM [discards data that is in use](loses_data), where it is not called.
pub fn fitrim(directory: &File, range: Extent, minimum: Bytes) -> io::Result<Bytes> {
    check_magic(rustix::fs::fstatfs(directory)?.f_type)?;
    let minimum = within_limits(directory, minimum);
    match ioctl::fitrim(directory, range, minimum) {
        Err(Errno::INVAL) if has_none_as_long(&rustix::fs::fstatfs(directory)?, range, minimum) => {
            Ok(Bytes::ZERO)
        }
        discarded => Ok(discarded?),
    }
}

/// Returns whether the file system is a JFS that refuses `minimum`, and not `range`. It trims each of its groups by itself, and
/// refuses a least length above theirs, which is 8192 blocks or more (Linux 6.12: `jfs_ioc_trim`).
fn has_none_as_long(found: &StatFs, range: Extent, minimum: Bytes) -> bool {
    let block = Bytes(found.f_bsize as u64);
    let size = Bytes(found.f_blocks.saturating_mul(block.0));
    found.f_type == JFS && minimum > Bytes(block.0 * 8192) && range.start < size && range.len() >= block
}

/// Trims a range of whatever is mounted at `mount`, leaving out free pieces shorter than `minimum`. Returns the kernel's
/// figure, as in [`Done::reported`].
///
/// # Errors
/// [`TrimError::Unsupported`], [`TrimError::LosesData`] or [`TrimError::Trim`].
pub fn trim(mount: &Path, range: Extent, minimum: Bytes) -> Result<Bytes, TrimError> {
    let directory = open_directory(mount);
    directory.and_then(|directory| fitrim(&directory, range, minimum)).map_err(|error| of_call(mount, error))
}

/// Checks that the file system mounted at `mount` can be trimmed, without trimming anything.
///
/// # Errors
/// [`TrimError::Unsupported`], [`TrimError::LosesData`], or [`TrimError::Trim`] such as for lack of rights.
pub fn check(mount: &Path) -> Result<(), TrimError> {
    checked(mount, open_directory(mount))
}

/// Checks as [`check`] does the file system that is mounted at `mount` from `devices`.
///
/// # Errors
/// The errors of [`check`]; [`TrimError::Unmounted`] if another is mounted there by now.
pub fn check_of(mount: &Path, devices: &[BlockDevice]) -> Result<(), TrimError> {
    checked(mount, open_of(mount, devices))
}

fn checked(mount: &Path, directory: io::Result<File>) -> Result<(), TrimError> {
    // A range of nothing: file systems that can be trimmed find it shorter than a block.
    let nothing = Extent::at(Bytes::ZERO, Bytes::ZERO);
    match directory.and_then(|directory| fitrim(&directory, nothing, Bytes::ZERO)) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        Err(error) => Err(of_call(mount, error)),
        Ok(_) => Ok(()),
    }
}

/// Returns the error of a call that trims what is mounted at `mount`.
fn of_call(mount: &Path, source: io::Error) -> TrimError {
    if is_of_lost_data(&source) {
        return TrimError::LosesData { mount: mount.to_owned() };
    }
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::OPNOTSUPP | Errno::NOTTY) => TrimError::Unsupported { mount: mount.to_owned() },
        _ => TrimError::of_query(mount, source),
    }
}

/// Writes everything the file system mounted at `mount` holds in memory to its device.
///
/// # Errors
/// [`TrimError::Sync`].
pub fn sync(mount: &Path) -> Result<(), TrimError> {
    let failed = |source| TrimError::Sync { mount: mount.to_owned(), source };
    let directory = File::open(mount).map_err(failed)?;
    rustix::fs::syncfs(directory).map_err(|errno| failed(errno.into()))
}

/// Writes everything the file system at `mount` on the one device `device` holds in memory to it. Does not open the
/// file system, so it can be unmounted meanwhile; only if the device can't be opened, this is [`sync`].
///
/// This runs in a process of its own: on a drive that hangs, a thread of this process would keep it from ending.
///
/// # Errors
/// [`TrimError::Sync`].
pub fn sync_by_device(mount: &Path, device: &BlockDevice) -> Result<(), TrimError> {
    let failed = |source| TrimError::Sync { mount: mount.to_owned(), source };
    let synced = forked::attempt(None, || {
        match File::open(device.path()) {
            Ok(device) => ioctl::flush_buffers(device)?,
            Err(_) => rustix::fs::syncfs(File::open(mount)?)?,
        }
        Ok(Vec::new())
    });
    synced.map(|_| ()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_of_data_is_told_from_other_errors() {
        let error = of_call(Path::new("/mnt"), io::Error::other(LosesData));
        assert!(matches!(error, TrimError::LosesData { .. }), "{error:?}");
        assert!(!is_of_lost_data(&Errno::IO.into()));
        let magic = |letters: &[u8; 4]| i64::from(u32::from_le_bytes(*letters));
        for name in [b"ntfs", b"NTFS"] {
            assert!(is_of_lost_data(&check_magic(magic(name)).unwrap_err()));
        }
        assert_eq!(check_magic(ECRYPTFS).unwrap_err().raw_os_error(), Some(Errno::OPNOTSUPP.raw_os_error()));
        for other in [0xef53, i64::from(u32::from_be_bytes(*b"XFSB")), 0x9123_683e, 0x6573_5546, JFS] {
            check_magic(other).unwrap();
        }
    }

    #[test]
    fn least_length_is_passed_on_where_the_file_system_takes_it() {
        let directory = File::open("/proc").unwrap();
        assert_eq!(within_limits(&directory, Bytes(5 << 32)), Bytes(5 << 32));
    }

    #[test]
    fn jfs_has_no_free_extent_above_its_groups() {
        let mut found = rustix::fs::statfs("/proc").unwrap();
        (found.f_type, found.f_bsize, found.f_blocks) = (JFS, 4096, 131_072);
        let range = |start, length| Extent::at(Bytes(start), Bytes(length));
        let refused = |range, minimum| has_none_as_long(&found, range, Bytes(minimum));
        assert!(refused(EVERYTHING, 33 << 20) && refused(range(4096, 4096), 64 << 20));
        assert!(!refused(EVERYTHING, 32 << 20), "a group may be as long");
        assert!(!refused(range(512 << 20, 4096), 64 << 20), "past the end");
        assert!(!refused(range(0, 512), 64 << 20), "less than a block");
        found.f_type = 0xef53;
        assert!(!has_none_as_long(&found, EVERYTHING, Bytes(64 << 20)));
    }
}
