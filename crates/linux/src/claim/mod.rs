//! Claiming a device whose data may be destroyed: the door that everything passes before a byte is
//! written to a device.
//!
//! The uses of a device are looked up first, and every use that is found refuses it: of its own bytes,
//! and of all devices that share them, which are known by their numbers and by those of the files behind loop
//! devices. Then it is opened with `O_EXCL`, which the kernel refuses for what it uses itself, in any mount
//! namespace; so are those that share its bytes. From then on nothing else can mount it or build on it; so all
//! is looked up once more.

mod around;
mod bitmaps;
mod configfs;
mod contents;
mod erofs;
mod error;
mod exported;
mod files;
mod fuse_servers;
mod identifiers;
mod lists;
mod mapped;
mod memory_map;
mod opened_kind;
mod processes;
mod reach;
mod remains;
mod ring;
mod served;
mod task;
mod usage;
mod uses;

use std::fs::{self, File, OpenOptions};
use std::iter;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::block::{BlockDevice, BlockError, DeviceNumber};
use crate::device::Device;
use crate::stack::Machine;
pub use contents::Signature;
pub use error::{ClaimError, Sharing};
pub use uses::Use;

/// How often a device is tried while others that may share its bytes come and go, and the time between two tries.
const ATTEMPTS: u32 = 4;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(250);

/// The contents that may be destroyed, each on its own; by default nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overrides {
    /// File systems and the like on the device: `--overwrite-signatures`.
    pub signatures: bool,
    /// The partitions of the device and its partition table: `--overwrite-partitions`.
    pub partitions: bool,
    /// The device may be no whole drive: a partition, a volume, a file behind a loop device. What uses the rest is slowed,
    /// and whether it relies on bytes of the device can't be proven: `--allow-part`.
    pub part: bool,
}

/// A device that may be written to and erased.
#[derive(Debug)]
pub struct Claim {
    /// The device, which is open and stays claimed until the last clone of it is gone.
    pub device: Device,
    /// The losses, a line each: `will be lost: ...` and the like.
    pub lost: Vec<String>,
    /// How many processes could not be looked at: what they have open is not known.
    pub unseen: usize,
}

/// A device that could be claimed.
#[derive(Debug)]
pub struct Check {
    /// The device as sysfs has it.
    pub block: BlockDevice,
    /// The losses by claiming it, as in [`Claim::lost`].
    pub lost: Vec<String>,
    /// As in [`Claim::unseen`].
    pub unseen: usize,
}

/// Claims the device at `path` for work that destroys its data. Nothing is written to it here.
///
/// # Errors
/// Why it can't be claimed; where an override would do, that is said.
pub fn claim(path: &Path, overrides: &Overrides) -> Result<Claim, ClaimError> {
    let (files, Check { block, lost, unseen }) = open(path, overrides, true)?;
    Ok(Claim { device: Device::claimed(files, block)?, lost, unseen })
}

/// Checks all that [`claim`] checks, and leaves the device alone.
///
/// # Errors
/// The errors of [`claim`].
pub fn check(path: &Path, overrides: &Overrides) -> Result<Check, ClaimError> {
    open(path, overrides, false).map(|(_, check)| check)
}

/// Checks all that [`check`] checks, and goes on after a reason to refuse the device.
///
/// # Errors
/// All uses of the device, and all that overrides would allow; the first of other reasons.
pub fn check_all(path: &Path, overrides: &Overrides) -> Result<Check, Vec<ClaimError>> {
    let mut lifted = *overrides;
    let mut found = Vec::new();
    loop {
        match check(path, &lifted) {
            Ok(check) if found.is_empty() => return Ok(check),
            Ok(_) => break,
            Err(error) if error.lift(&mut lifted) => found.push(error),
            Err(error) => {
                match &error {
                    ClaimError::InUse { .. } => found.extend(reasons_of_used(path, &lifted, error)),
                    _ => found.push(error),
                }
                break;
            }
        }
    }
    Err(found)
}

/// Returns the uses of the device at `path`, and what would be lost when they have ended; `error` if nothing is found.
fn reasons_of_used(path: &Path, overrides: &Overrides, error: ClaimError) -> Vec<ClaimError> {
    let machine = Machine::live();
    let block = number(path).ok().and_then(|number| BlockDevice::numbered(&machine.sysfs(), number));
    let Some(block) = block else { return vec![error] };
    let mut found = Vec::new();
    if let Ok(usage) = usage::Usage::of(&machine, &block) {
        found.extend(usage.in_use());
        found.extend(usage.part(overrides).err());
    }
    if found.is_empty() {
        found.push(error);
    }
    if let Ok(contents) = contents::Contents::of(&block) {
        let mut overrides = *overrides;
        while let Err(error) = contents.judge(&overrides) {
            let is_lifted = error.lift(&mut overrides);
            found.push(error);
            if !is_lifted {
                break;
            }
        }
    }
    found
}

/// Opens it, once more where what it shares bytes with changed meanwhile.
fn open(path: &Path, overrides: &Overrides, write: bool) -> Result<(Vec<File>, Check), ClaimError> {
    for _ in 1..ATTEMPTS {
        match open_once(path, overrides, write) {
            Err(error) if error.may_pass() => thread::sleep(BETWEEN_ATTEMPTS),
            result => return result,
        }
    }
    open_once(path, overrides, write)
}

fn open_once(path: &Path, overrides: &Overrides, write: bool) -> Result<(Vec<File>, Check), ClaimError> {
    let number = number(path)?;
    if !geteuid().is_root() {
        return Err(ClaimError::NotRoot { path: path.to_owned() });
    }
    judge(number, path, overrides)?;
    let flags = OFlags::EXCL | OFlags::DIRECT;
    let file = OpenOptions::new().read(true).write(write).custom_flags(flags.bits() as i32).open(path);
    let file = file.map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => ClaimError::Busy { path: path.to_owned() },
        Some(Errno::ROFS) => ClaimError::ReadOnly { device: path.display().to_string() },
        _ => ClaimError::Open { path: path.to_owned(), source },
    })?;
    let opened = file.metadata().map_err(|source| ClaimError::Look { path: path.to_owned(), source })?;
    if DeviceNumber::unpack(opened.rdev()) != number {
        return Err(ClaimError::Changed { path: path.to_owned() });
    }
    // Users that came since the first look are found now, and the kernel admits no more.
    let (check, sharing) = judge(number, path, overrides)?;
    let guards = sharing.iter().map(|(other, how)| guard(&check.block, other, *how));
    let files = iter::once(Ok(file)).chain(guards).collect::<Result<_, _>>()?;
    // A loop device attached before its siblings were opened may have been used before this one was.
    let usage = usage::Usage::of(&Machine::live(), &check.block)?;
    usage.judge(overrides)?;
    match unguarded(&sharing, &usage.sharing) {
        Some((other, how)) => {
            let [device, node] = [&check.block, other].map(|block| block.path().display().to_string());
            Err(ClaimError::Appeared { device, how: *how, node })
        }
        None => Ok((files, check)),
    }
}

/// The first device of `found` that is not among `guarded`.
fn unguarded<'a>(
    guarded: &[(BlockDevice, Sharing)],
    found: &'a [(BlockDevice, Sharing)],
) -> Option<&'a (BlockDevice, Sharing)> {
    found.iter().find(|(device, _)| guarded.iter().all(|(other, _)| other != device))
}

/// Opens `other`, which shares the bytes of `block`, so that the kernel uses it for nothing else meanwhile;
/// this fails where it does already.
fn guard(block: &BlockDevice, other: &BlockDevice, how: Sharing) -> Result<File, ClaimError> {
    let [device, node] = [block, other].map(|block| block.path().display().to_string());
    other.open_node(OFlags::EXCL).map_err(|source| match Errno::from_io_error(&source) {
        Some(Errno::BUSY) => ClaimError::Kept { device, how, node },
        _ => ClaimError::Guard { device, how, node, source },
    })
}

/// Checks the device against everything that is known of it. Returns the losses by claiming it, and the devices that
/// share its bytes and have to be held with it.
fn judge(
    number: DeviceNumber,
    path: &Path,
    overrides: &Overrides,
) -> Result<(Check, Vec<(BlockDevice, Sharing)>), ClaimError> {
    let machine = Machine::live();
    let block = BlockDevice::numbered(&machine.sysfs(), number)
        .ok_or_else(|| BlockError::Unknown { device: path.to_owned() })?;
    // Nothing can be read from a suspended device. Its surroundings are looked up again for its uses, which may change
    // while its contents are read.
    around::Around::of(&machine)?.answers(&block)?;
    // This runs a program and takes long, and its answer counts less; so uses are looked up after it.
    let contents = contents::Contents::of(&block);
    let usage = usage::Usage::of(&machine, &block)?;
    let mut lost = usage.judge(overrides)?;
    lost.extend(contents?.judge(overrides)?);
    Ok((Check { block, lost, unseen: usage.unseen }, usage.sharing))
}

/// The number of the block device at `path`.
fn number(path: &Path) -> Result<DeviceNumber, ClaimError> {
    let look = |source| ClaimError::Look { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(look)?;
    let kind = metadata.file_type();
    let found = if kind.is_block_device() {
        return Ok(DeviceNumber::unpack(metadata.rdev()));
    } else if kind.is_dir() {
        "directory"
    } else if kind.is_char_device() {
        "character device"
    } else if kind.is_file() {
        "regular file"
    } else {
        "socket or pipe"
    };
    Err(ClaimError::NotBlock { path: path.to_owned(), found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::Captured;

    #[test]
    fn devices_that_appear_after_the_guards_are_found() {
        let machine = Captured::new().device("loop0", "7:0", &[]).device("loop1", "7:1", &[]);
        let [one, other] = ["loop0", "loop1"].map(|name| (machine.open(name), Sharing::Certain));
        let both = [one.clone(), other.clone()];
        assert_eq!(unguarded(&both, &both), None);
        assert_eq!(unguarded(&both, &[]), None, "one that was detached is no harm");
        assert_eq!(unguarded(&[one], &both), Some(&other));
    }
}
