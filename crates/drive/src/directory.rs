//! A drive's directory below `/run/trimtab/drives`, and the files in it.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use trimtab_core::Bytes;
use trimtab_linux::block::{BlockDevice, BlockError};
use trimtab_linux::holder::Holder;
use trimtab_linux::identity::DRIVES;
use trimtab_linux::{PROCFS, SYSFS, loop_device, mount};

use crate::DriveError;
use crate::data::{DataFile, Identity, Removal};

/// The name of the one file in a drive's FUSE file system.
pub(crate) const FILE_NAME: &str = "drive";

/// How many requests the queue of a loop device holds unless told otherwise, and at most.
pub(crate) const MOST_REQUESTS: u32 = 128;

/// The longest time in which a server ends after the last user of its drive is gone.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How often it is looked at.
const POLL: Duration = Duration::from_millis(2);

/// A drive's directory. Its server holds a lock on it as long as it lives.
#[derive(Debug, Clone)]
pub(crate) struct DriveDirectory {
    name: String,
    directory: PathBuf,
}

/// Held while drives are created, removed or cleaned up, so that these happen one at a time.
pub(crate) struct Registry {
    _lock: File,
}

impl Registry {
    /// Waits for its number.
    pub(crate) fn lock() -> Result<Self, DriveError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(DRIVES)
            .map_err(DriveError::file("create the directory", DRIVES))?;
        let lock = File::open(DRIVES).map_err(DriveError::file("open", DRIVES))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|errno| DriveError::file("lock", DRIVES)(errno.into()))?;
        Ok(Self { _lock: lock })
    }

    /// All drives, dead ones too, in order of name.
    pub(crate) fn places(&self) -> Result<Vec<DriveDirectory>, DriveError> {
        let entries = fs::read_dir(DRIVES).map_err(DriveError::file("list", DRIVES))?;
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names.iter().filter_map(|name| DriveDirectory::named(name).ok()).collect())
    }

    /// Cleans up after servers that were killed, and returns where. What can't be cleaned up yet
    /// stays for the next time.
    pub(crate) fn clean_up(&self) -> Result<Vec<DriveDirectory>, DriveError> {
        let mut dead = self.places()?;
        dead.retain(|place| place.is_dead().unwrap_or(false));
        for place in &dead {
            // Nobody asked for the data file of a killed server to go.
            place.forget_data();
            let _ = place.release();
        }
        Ok(dead)
    }
}

/// Returns a process that keeps `device` in use; `None` if none is found.
pub(crate) fn holder(device: &Path) -> Option<Holder> {
    let number = BlockDevice::open(Path::new(SYSFS), device).and_then(|block| block.number()).ok()?;
    trimtab_linux::holder::holder(Path::new(PROCFS), device, number)
}

/// Gives a loop device the limits that it has while nobody sets any, as far as the kernel takes them.
pub(crate) fn reset_limits(block: &BlockDevice) -> Result<(), BlockError> {
    let limits = block.discard_limits()?;
    block.set_discard_max(whole_grains(limits.max_hardware, limits.granularity))?;
    block.set_queue_requests(MOST_REQUESTS)
}

/// Returns the part of `longest` that the kernel takes as a limit of discards: whole grains.
pub(crate) fn whole_grains(longest: Bytes, granularity: Bytes) -> Bytes {
    let step = least_limit(granularity).0;
    Bytes((longest.0 / step).max(1) * step)
}

/// The least limit of discards that the kernel takes: it holds whole grains, and has no bit that the
/// granularity less one has (`queue_max_discard_sectors_store` in block/blk-sysfs.c), which is one grain
/// where that is a power of two.
pub(crate) fn least_limit(granularity: Bytes) -> Bytes {
    let grain = granularity.0.max(512);
    let power = grain.next_power_of_two();
    // The least common multiple: a power of two shares with the grain the twos that are in that.
    Bytes(grain) * (power >> grain.trailing_zeros())
}

impl DriveDirectory {
    /// The place of the drive `name`, whether there is one or not.
    pub(crate) fn named(name: &str) -> Result<Self, DriveError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        // What begins with a dash would be an option to every command.
        if name.is_empty() || name.len() > 32 || !name.chars().all(allowed) || name.starts_with('-') {
            return Err(DriveError::BadName { name: name.to_owned() });
        }
        Ok(Self { name: name.to_owned(), directory: Path::new(DRIVES).join(name) })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn exists(&self) -> bool {
        self.directory.exists()
    }

    /// The control socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("control")
    }

    /// Where the FUSE file system is mounted.
    pub(crate) fn mount(&self) -> PathBuf {
        self.directory.join("fuse")
    }

    /// An empty directory to mount a file system of the drive on.
    pub(crate) fn mount_point(&self) -> PathBuf {
        self.directory.join("mnt")
    }

    /// The file behind the loop device.
    pub(crate) fn file(&self) -> PathBuf {
        self.mount().join(FILE_NAME)
    }

    /// A symbolic link to the data file, where there is one.
    fn data_link(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// Says which file the data file is.
    fn data_identity(&self) -> PathBuf {
        self.directory.join("data-identity")
    }

    /// Makes the directory and what the server needs in it.
    pub(crate) fn create(&self) -> Result<(), DriveError> {
        let mut private = DirBuilder::new();
        private.mode(0o700);
        for directory in [&self.directory, &self.mount(), &self.mount_point()] {
            private.create(directory).map_err(DriveError::file("create the directory", directory))?;
        }
        Ok(())
    }

    /// Remembers the data file, which from then on is deleted with the drive.
    pub(crate) fn link_data(&self, data: &Path, identity: Identity) -> io::Result<()> {
        identity.save(&self.data_identity())?;
        symlink(data, self.data_link())
    }

    /// Keeps the data file when the drive goes.
    fn forget_data(&self) {
        let _ = fs::remove_file(self.data_link());
        let _ = fs::remove_file(self.data_identity());
    }

    /// Marks the drive as served by this process, until it ends or the returned file is closed.
    pub(crate) fn hold(&self) -> io::Result<File> {
        let directory = File::open(&self.directory)?;
        rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
        Ok(directory)
    }

    /// Whether no process serves the drive.
    pub(crate) fn is_dead(&self) -> Result<bool, DriveError> {
        let failed = DriveError::file("open", &self.directory);
        let directory = File::open(&self.directory).map_err(failed)?;
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(errno) => Err(DriveError::file("lock", &self.directory)(errno.into())),
        }
    }

    /// The loop device on the drive's file.
    pub(crate) fn device(&self) -> Result<Option<PathBuf>, DriveError> {
        let file = self.file();
        let attached = loop_device::attached(Path::new(SYSFS))?;
        Ok(attached.into_iter().find(|device| device.file == file).map(|device| device.device))
    }

    /// Takes the drive down: file systems mounted from it, the loop device, FUSE, its data and its
    /// directory. Continues after a failure; returns the first.
    pub(crate) fn release(&self) -> Result<(), DriveError> {
        // While the server has it open, nothing else can be taken for it.
        let data = self.hold_data();
        let outcomes = [self.release_device(), self.release_fuse(), self.await_server(), self.delete(data)];
        outcomes.into_iter().collect()
    }

    fn release_device(&self) -> Result<(), DriveError> {
        let Some(device) = self.device()? else { return Ok(()) };
        for mounted in mount::mounts_of(Path::new(PROCFS), &device)?.iter().rev() {
            mount::unmount(&mounted.target).or_else(|_| mount::unmount_lazily(&mounted.target))?;
        }
        // The kernel keeps a loop device's limits for whoever has it next.
        let _ = BlockDevice::open(Path::new(SYSFS), &device).and_then(|block| reset_limits(&block));
        Ok(loop_device::detach(&device)?)
    }

    fn release_fuse(&self) -> Result<(), DriveError> {
        let target = self.mount();
        let mounts = mount::mounts(Path::new(PROCFS))?;
        mounts
            .iter()
            .filter(|mount| mount.target == target)
            .try_for_each(|mount| Ok(mount::unmount_lazily(&mount.target)?))
    }

    /// Waits until the server has ended, which it does once its file system is gone.
    fn await_server(&self) -> Result<(), DriveError> {
        let deadline = Instant::now() + TIMEOUT;
        while !self.is_dead()? {
            if Instant::now() > deadline {
                let holder = self.device()?.and_then(|device| holder(&device));
                return Err(DriveError::Lingers { name: self.name.clone(), holder });
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn delete(&self, data: Result<Option<(PathBuf, DataFile)>, DriveError>) -> Result<(), DriveError> {
        let mut replaced = None;
        if let Some((path, data)) = data? {
            let removal = data.remove().map_err(DriveError::file("remove the data file", &path))?;
            replaced = (removal == Removal::Another).then_some(path);
        }
        // One by one: should FUSE still be mounted in there, its file must not be deleted.
        self.forget_data();
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_dir(self.mount());
        let _ = fs::remove_dir(self.mount_point());
        fs::remove_dir(&self.directory).map_err(DriveError::file("remove", &self.directory))?;
        match replaced {
            Some(path) => Err(DriveError::DataReplaced { name: self.name.clone(), path }),
            None => Ok(()),
        }
    }

    /// The data file and its path, where there is one.
    fn hold_data(&self) -> Result<Option<(PathBuf, DataFile)>, DriveError> {
        let Ok(path) = fs::read_link(self.data_link()) else { return Ok(None) };
        let identity = Identity::load(&self.data_identity()).ok();
        let data = DataFile::hold(&path, identity).map_err(DriveError::file("open the data file", &path))?;
        Ok(Some((path, data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discard_limits_are_accepted_by_the_kernel() {
        for (longest, granularity, limit) in [
            (1 << 20, 512, 1 << 20),
            (1 << 20, 0, 1 << 20),
            (4096, 65_536, 65_536),
            (100_000, 4096, 98_304),
            (1 << 20, 1536, 170 * 6144),
            (1 << 30, 3 << 20, 85 * (12 << 20)),
        ] {
            let found = whole_grains(Bytes(longest), Bytes(granularity));
            assert_eq!(found, Bytes(limit), "{longest} in grains of {granularity}");
            assert_eq!(found.0 & granularity.max(512).wrapping_sub(1), 0);
        }
    }
}
