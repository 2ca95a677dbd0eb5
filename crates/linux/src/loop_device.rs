//! Loop devices: a file as a block device.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use trimtab_core::Bytes;

use crate::block::{BlockDevice, DeviceNumber};
use crate::identity::{self, FileId};
use crate::{SYSFS, ioctl, limited};

const CONTROL: &str = "/dev/loop-control";

/// How often a free device is asked for, since another process may take it first.
const ATTEMPTS: u32 = 64;

/// Why a loop device can't be attached, detached or listed.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// There is no loop driver, or no right to use it.
    #[error("cannot open {CONTROL}; load the loop module (modprobe loop) and run as root")]
    NoControl(#[source] io::Error),
    /// All loop devices are in use and the kernel adds no more.
    #[error("no loop device is free; detach one (losetup -d) or load the loop module with a larger max_loop")]
    NoneFree(#[source] io::Error),
    /// The kernel refused the file.
    #[error("cannot put {} behind {}", file.display(), device.display())]
    Attach {
        /// The file.
        file: PathBuf,
        /// The loop device.
        device: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refused to let go of the file.
    #[error("cannot detach {}", device.display())]
    Detach {
        /// The loop device.
        device: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The file behind it is unknown.
    #[error("cannot tell which file is behind {}; see that this node has the number in /sys/class/block/{}/dev, and detach it if it is not needed", device.display(), device.file_name().unwrap_or_default().display())]
    Status {
        /// The loop device.
        device: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The list of loop devices can't be read.
    #[error("cannot list loop devices in {}", path.display())]
    List {
        /// The directory in sysfs.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// A loop device that has a file behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopDevice {
    /// The device, such as `/dev/loop0`.
    pub device: PathBuf,
    /// The file, as the kernel names it; ` (deleted)` is added to one that is gone. Empty where the kernel
    /// can't name it.
    pub file: PathBuf,
}

/// The file behind a loop device, whatever path leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// A block device.
    Device(DeviceNumber),
    /// A regular file.
    File(FileId),
}

/// Asks the kernel what is behind the loop device `device`; none where nothing is.
///
/// # Errors
/// [`LoopError::Status`], such as where nobody answers for the file system that the file is on.
pub fn backing(device: &BlockDevice) -> Result<Option<Backing>, LoopError> {
    let failed = |source| LoopError::Status { device: device.path(), source };
    let node = device.clone();
    // The kernel asks the file system: what a FUSE server or a network leaves unanswered takes forever.
    let asked = limited::ask(move || Ok(ioctl::loop_status(node.open_node(OFlags::empty())?)?));
    let status: io::Result<_> = match asked.answer() {
        // A node that leads to no device, and a FUSE server, can give the error of a device with nothing behind it.
        Some(Err(error)) if is_nothing(&error) && !device.attribute("loop").exists() => return Ok(None),
        Some(status) => status,
        None => Err(io::ErrorKind::TimedOut.into()),
    };
    let status = status.map_err(failed)?;
    let id = FileId { device: DeviceNumber::unpack(status.device), inode: status.inode };
    if status.rdevice == 0 {
        return Ok(Some(Backing::File(id)));
    }
    let number = DeviceNumber::unpack(status.rdevice);
    if number != id.device {
        return Ok(Some(Backing::Device(number)));
    }
    // Before Linux 6.0 so is a regular file; else it is a device's node on that device itself.
    let path = fs::read(device.attribute("loop/backing_file")).map_err(failed)?;
    let path = PathBuf::from(OsStr::from_bytes(path.strip_suffix(b"\n").unwrap_or(&path)));
    let found = identity::look(&path).map_err(failed)?;
    match FileType::from_raw_mode(found.stx_mode.into()) {
        _ if identity::id_of(&found) != id => Err(failed(io::Error::other("its file is found nowhere"))),
        FileType::BlockDevice => Ok(Some(Backing::Device(number))),
        _ => Ok(Some(Backing::File(id))),
    }
}

/// Whether the kernel answered that nothing is behind a loop device.
pub(crate) fn is_nothing(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NXIO)
}

/// Whether `file` is the one behind the loop device `device`.
///
/// # Errors
/// [`LoopError::Status`].
pub fn is_behind(file: &File, device: &BlockDevice) -> Result<bool, LoopError> {
    let failed = |source| LoopError::Status { device: device.path(), source };
    let found = file.metadata().map_err(failed)?;
    let id = FileId { device: DeviceNumber::unpack(found.dev()), inode: found.ino() };
    Ok(backing(device)? == Some(Backing::File(id)))
}

/// Puts `file` behind a free loop device, with direct I/O and logical blocks of `block_size`, and
/// returns the device's path. It stays until [`detach`].
///
/// # Errors
/// [`LoopError::NoControl`], [`LoopError::NoneFree`] or [`LoopError::Attach`].
pub fn attach(file: &Path, block_size: Bytes) -> Result<PathBuf, LoopError> {
    let control = File::open(CONTROL).map_err(LoopError::NoControl)?;
    let mut attempt = 0;
    loop {
        let number = ioctl::loop_get_free(&control).map_err(|errno| LoopError::NoneFree(errno.into()))?;
        let device = PathBuf::from(format!("/dev/loop{number}"));
        attempt += 1;
        if is_spoilt(number) && attempt < ATTEMPTS && ioctl::loop_remove(&control, number).is_ok() {
            continue;
        }
        match configure(&device, file, block_size) {
            Ok(()) => return Ok(device),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && attempt < ATTEMPTS => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && !device.exists() => {
                return Err(LoopError::NoneFree(error));
            }
            Err(source) => return Err(LoopError::Attach { file: file.to_owned(), device, source }),
        }
    }
}

/// Whether the free loop device of this number discards nothing from now on: where `discard_max_bytes` was
/// set to 0, Linux 6.18 takes no other value any more, whatever is attached later.
fn is_spoilt(number: u32) -> bool {
    let queue = Path::new(SYSFS).join(format!("block/loop{number}/queue"));
    let is_zero = |name| fs::read_to_string(queue.join(name)).is_ok_and(|limit: String| limit.trim() == "0");
    is_zero("discard_max_bytes") && !is_zero("discard_max_hw_bytes")
}

fn configure(device: &Path, file: &Path, block_size: Bytes) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(file)?;
    let device = OpenOptions::new().read(true).write(true).open(device)?;
    Ok(ioctl::loop_configure(device, file.as_fd(), block_size)?)
}

/// Takes the file from behind `device`; nothing to do where there is none. While others have the
/// device open, that happens when the last of them closes it.
///
/// # Errors
/// [`LoopError::Detach`].
pub fn detach(device: &Path) -> Result<(), LoopError> {
    let failed = |source| LoopError::Detach { device: device.to_owned(), source };
    let file = File::open(device).map_err(failed)?;
    match ioctl::loop_clear(file) {
        Ok(()) | Err(Errno::NXIO) => Ok(()),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// The loop devices that have a file behind them; `sysfs` is where sysfs is mounted.
///
/// # Errors
/// [`LoopError::List`].
pub fn attached(sysfs: &Path) -> Result<Vec<LoopDevice>, LoopError> {
    let path = sysfs.join("block");
    let entries = fs::read_dir(&path).map_err(|source| LoopError::List { path: path.clone(), source })?;
    let mut devices = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| LoopError::List { path: path.clone(), source })?;
        // The kernel adds this directory when a file is attached, and removes it when that is detached.
        let directory = entry.path().join("loop");
        if !directory.exists() {
            continue;
        }
        // A path of 4096 bytes or more can't be read; the device is attached all the same.
        let file = fs::read(directory.join("backing_file")).unwrap_or_default();
        let file = PathBuf::from(OsStr::from_bytes(file.strip_suffix(b"\n").unwrap_or(&file)));
        devices.push(LoopDevice { device: Path::new("/dev").join(entry.file_name()), file });
    }
    devices.sort_by(|a, b| a.device.cmp(&b.device));
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_captured_sysfs_is_read() {
        let root = tempfile::tempdir().unwrap();
        let with_file = root.path().join("block/loop1/loop");
        fs::create_dir_all(&with_file).unwrap();
        fs::create_dir_all(root.path().join("block/loop0")).unwrap();
        fs::create_dir_all(root.path().join("block/sda")).unwrap();
        fs::write(with_file.join("backing_file"), "/run/a b/drive\n").unwrap();
        let expected =
            LoopDevice { device: PathBuf::from("/dev/loop1"), file: PathBuf::from("/run/a b/drive") };
        assert_eq!(attached(root.path()).unwrap(), [expected]);
    }

    #[test]
    fn paths_that_are_not_text_or_cannot_be_read_hide_no_device() {
        let root = tempfile::tempdir().unwrap();
        let [bytes, unreadable] = ["loop1", "loop2"].map(|name| root.path().join("block").join(name));
        fs::create_dir_all(bytes.join("loop")).unwrap();
        fs::write(bytes.join("loop/backing_file"), b"/images/\xff\n").unwrap();
        fs::create_dir_all(unreadable.join("loop/backing_file")).unwrap();
        let files: Vec<_> = attached(root.path()).unwrap().into_iter().map(|found| found.file).collect();
        assert_eq!(files, [Path::new(OsStr::from_bytes(b"/images/\xff")), Path::new("")]);
    }
}
