//! A file system that was in use for long, made in seconds: its files are allocated and not written.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rustix::fs::{FallocateFlags, StatVfs};
use rustix::io::Errno;
use trimtab_core::Bytes;
use trimtab_core::document::Filling;

use crate::error::{LabError, io_at};
use crate::fs::FileSystem;

/// The directory of the files, from the mount point.
const DIRECTORY: &str = "full";
/// Files in a directory.
const FILES: usize = 1000;
/// The sizes of files, as powers of two: the files of each power have the same number of bytes together, those of the last twice
/// as many.
const POWERS: std::ops::Range<u32> = 24..32;
/// Before files are deleted, the file system is filled to this share, in percent.
const MOST: u64 = 95;
/// The seed of sizes and deletions: the same file system at every run.
const SEED: u64 = 0x66_75_6c_6c;

/// Fills the file system that is mounted on `mount` as `filling` says: with files of 16 MiB to 4 GiB that are allocated and not
/// written; some are deleted at random, so that its free space is in pieces of their sizes. The data of `filling`'s
/// workload must find room.
///
/// # Errors
/// [`LabError::File`] of a file that can't be made or deleted, [`LabError::NoRoomLeft`] if less than the room is left.
pub(super) fn fill(mount: &Path, file_system: FileSystem, filling: Filling) -> Result<(), LabError> {
    let space = space(mount)?;
    if filling.percent > 0 {
        let total = space.f_blocks * space.f_frsize;
        let most = total * MOST / 100;
        let used = total - (space.f_bavail * space.f_frsize).min(total);
        let goal = total / 100 * u64::from(filling.percent);
        let mut random = SmallRng::seed_from_u64(SEED);
        let mut files = allocate(mount, most.saturating_sub(used), &mut random)?;
        files.shuffle(&mut random);
        let mut excess = (used + files.iter().map(|(_, size)| size).sum::<u64>()).saturating_sub(goal);
        for (path, size) in files {
            if excess == 0 {
                break;
            }
            fs::remove_file(&path).map_err(io_at(&path, "delete"))?;
            excess = excess.saturating_sub(size);
        }
        rustix::fs::syncfs(File::open(mount).map_err(io_at(mount, "open"))?)
            .map_err(|errno| io_at(mount, "sync")(errno.into()))?;
    }
    let left = self::space(mount)?;
    let left = Bytes(left.f_bavail * left.f_frsize);
    if left < filling.room {
        let Filling { percent, room } = filling;
        return Err(LabError::NoRoomLeft { left, file_system, percent, room });
    }
    Ok(())
}

/// Makes files of `length` bytes together, or until nothing is left, and returns them with their sizes.
fn allocate(mount: &Path, length: u64, random: &mut SmallRng) -> Result<Vec<(PathBuf, u64)>, LabError> {
    let (mut files, mut left) = (Vec::new(), length);
    while left >= 1 << POWERS.start {
        let size = size(random).min(left);
        let directory = mount.join(DIRECTORY).join((files.len() / FILES).to_string());
        if files.len().is_multiple_of(FILES) {
            fs::create_dir_all(&directory).map_err(io_at(&directory, "create"))?;
        }
        let path = directory.join(files.len().to_string());
        let file = File::create(&path).map_err(io_at(&path, "create"))?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
            Ok(()) => {}
            // Metadata took the rest.
            Err(Errno::NOSPC) => {
                fs::remove_file(&path).map_err(io_at(&path, "delete"))?;
                break;
            }
            Err(errno) => return Err(io_at(&path, "allocate space for")(errno.into())),
        }
        files.push((path, size));
        left -= size;
    }
    Ok(files)
}

/// Draws the size of a file, a multiple of 4 KiB: a power of two to the next one, each power half as often as the one before.
fn size(random: &mut SmallRng) -> u64 {
    let highest = POWERS.end - POWERS.start - 1;
    let power = POWERS.start + random.random::<u32>().trailing_zeros().min(highest);
    let bytes = (1_u64 << power) + random.random_range(0..1_u64 << power);
    bytes & !4095
}

fn space(mount: &Path) -> Result<StatVfs, LabError> {
    rustix::fs::statvfs(mount).map_err(|errno| io_at(mount, "look at")(io::Error::from(errno)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_as_many_bytes_in_every_power_of_two() {
        const COUNT: usize = (POWERS.end - POWERS.start) as usize;
        let mut random = SmallRng::seed_from_u64(7);
        let mut bytes = [0_u64; COUNT];
        for _ in 0..200_000 {
            let size = size(&mut random);
            assert!(size.is_multiple_of(4096));
            bytes[(size.ilog2() - POWERS.start) as usize] += size;
        }
        // The last power has the files of all higher ones, too.
        let part = bytes.iter().sum::<u64>() as f64 / (COUNT as f64 + 1.0);
        for (power, bytes) in bytes.into_iter().enumerate() {
            let parts = if power == COUNT - 1 { 2.0 } else { 1.0 };
            let share = bytes as f64 / part / parts;
            assert!((share - 1.0).abs() < 0.12, "power {power}: {share:.2}");
        }
    }
}
