//! Where the facts of a stack come from: this machine, or a captured tree.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mknodat};

use super::StackError;
use super::map;
use crate::block::{BlockDevice, DeviceNumber};
use crate::identity::FileId;
use crate::ioctl::{MapLine, device_map, inactive_map, scsi_identification};
use crate::loop_device::{self, Backing, LoopError};

/// The most files and directories in a captured tree.
const MOST_FILES: usize = 100_000;
/// The longest file in a captured tree.
const LONGEST_FILE: u64 = 1 << 20;

/// This machine, or a tree that holds another's `sys`, `proc`, `etc` and what it answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    root: PathBuf,
    live: bool,
}

impl Machine {
    /// The machine that this runs on.
    pub fn live() -> Self {
        Self { root: PathBuf::from("/"), live: true }
    }

    /// The machine whose files are below `root`, or below the one directory that is in there. Besides
    /// them are there, below `trimtab`, the tables of the device mapper as `dm/MAJOR:MINOR`, in the form of
    /// `dmsetup table`; what is behind loop devices as `loop/MAJOR:MINOR`, a device's number or a file's
    /// device and inode number; what SCSI units answer when asked for their identifiers as `vpd_pg83/MAJOR:MINOR`; for each dm-crypt device over LUKS2 the header's persistent flags as
    /// `luks/NAME`, with blanks between them; what `systemctl show fstrim.timer` says as `timer`; the file systems that the running service knows as
    /// `served`, `trimmed` or `left` before each mount point; `down`, an empty file, if the service is enabled but does not run; and
    /// what it was captured for as `targets`, a path a line.
    ///
    /// # Errors
    /// [`StackError::Tree`], [`StackError::Outside`], [`StackError::Special`] or
    /// [`StackError::TooLarge`]: all of it is small, and nothing leads out of it.
    pub fn captured(root: &Path) -> Result<Self, StackError> {
        check_tree(root)?;
        Ok(Self { root: unpacked(root).unwrap_or(root.to_owned()), live: false })
    }

    /// Whether it can be asked more than its files say.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Where the file with the absolute path `path` is found.
    pub fn file(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Where sysfs is mounted.
    pub fn sysfs(&self) -> PathBuf {
        self.file("/sys")
    }

    /// Where procfs is mounted.
    pub fn procfs(&self) -> PathBuf {
        self.file("/proc")
    }

    /// Returns the file behind a loop device; none where there is none, or where it wasn't captured.
    ///
    /// # Errors
    /// [`LoopError::Status`].
    pub(crate) fn backing(&self, device: &BlockDevice) -> Result<Option<Backing>, LoopError> {
        if self.live {
            return loop_device::backing(device);
        }
        let failed = |source| LoopError::Status { device: device.path(), source };
        let number = device.number().map_err(|error| failed(io::Error::other(error)))?;
        let Ok(text) = fs::read_to_string(self.file(&format!("/trimtab/loop/{number}"))) else {
            return Ok(None);
        };
        let mut words = text.split_whitespace();
        let number = words.next().and_then(|word| word.parse().ok());
        Ok(match (number, words.next().map(str::parse)) {
            (Some(number), None) => Some(Backing::Device(number)),
            (Some(device), Some(Ok(inode))) => Some(Backing::File(FileId { device, inode })),
            _ => None,
        })
    }

    /// Asks the SCSI unit with the node `node`, a device of kind `kind` and number `number`, for the page of identifiers that it
    /// has now; none where there is no answer. For a captured machine, what was captured.
    pub(crate) fn identification(
        &self,
        node: &Path,
        kind: FileType,
        number: DeviceNumber,
    ) -> Option<Vec<u8>> {
        if !self.live {
            return fs::read(self.file(&format!("/trimtab/vpd_pg83/{number}"))).ok();
        }
        let is_it =
            |file: &File| file.metadata().is_ok_and(|found| DeviceNumber::unpack(found.rdev()) == number);
        let file =
            open(node).ok().filter(is_it).or_else(|| open_by_number(kind, number).ok().filter(is_it))?;
        scsi_identification(file).ok()
    }

    /// The table of a device-mapper device; none where it can't be read.
    pub(crate) fn map(&self, device: DeviceNumber) -> Option<Vec<MapLine>> {
        let lines = if self.live {
            device_map(File::open("/dev/mapper/control").ok()?, device).ok()?
        } else {
            map::parse(&fs::read_to_string(self.file(&format!("/trimtab/dm/{device}"))).ok()?)?
        };
        Some(lines.into_iter().map(map::without_keys).collect())
    }

    /// The table that is loaded for a device-mapper device and takes effect when that is resumed; none where it can't be
    /// read, empty where nothing is loaded.
    pub(crate) fn inactive_map(&self, device: DeviceNumber) -> Option<Vec<MapLine>> {
        let lines = if self.live {
            inactive_map(File::open("/dev/mapper/control").ok()?, device).ok()?
        } else {
            let text = fs::read_to_string(self.file(&format!("/trimtab/dm/{device}.inactive")));
            map::parse(&text.unwrap_or_default())?
        };
        Some(lines.into_iter().map(map::without_keys).collect())
    }
}

/// Opens the device with the node `path` for questions, without waiting for a medium.
fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
}

/// Opens the device `number` by a node of its own, which is gone again: in a container `/dev` may have none.
fn open_by_number(kind: FileType, number: DeviceNumber) -> io::Result<File> {
    let name = format!("trimtab-{}-{}-{}", std::process::id(), number.major, number.minor);
    let path = Path::new("/dev").join(name);
    let device = makedev(number.major, number.minor);
    mknodat(CWD, &path, kind, Mode::RUSR, device)?;
    let pinned = File::options().read(true).custom_flags(OFlags::PATH.bits() as i32).open(&path);
    fs::remove_file(&path)?;
    open(&Path::new("/proc/self/fd").join(pinned?.as_raw_fd().to_string()))
}

/// The one directory in `root`, where that is no machine's root itself.
fn unpacked(root: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(root).ok().filter(|_| !root.join("proc").is_dir())?;
    let only = entries.next()?.ok()?.path();
    (entries.next().is_none() && only.is_dir()).then_some(only)
}

/// Holds that all below `root` is small, and that no link leads out of it.
fn check_tree(root: &Path) -> Result<(), StackError> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |source| StackError::Tree { path, source }
    };
    let inside = root.canonicalize().map_err(unreadable(root))?;
    let mut directories = vec![inside.clone()];
    let mut files = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(unreadable(&directory))? {
            let path = entry.map_err(unreadable(&directory))?.path();
            files += 1;
            if files > MOST_FILES {
                return Err(StackError::TooLarge { root: root.to_owned(), most: MOST_FILES });
            }
            let found = path.symlink_metadata().map_err(unreadable(&path))?;
            if found.is_symlink() {
                let leads_out = match path.canonicalize() {
                    Ok(place) => !place.starts_with(&inside),
                    // It leads nowhere on this machine; on another it might.
                    Err(_) => leaves(&inside, &path, &fs::read_link(&path).map_err(unreadable(&path))?),
                };
                if leads_out {
                    return Err(StackError::Outside { path });
                }
            } else if found.is_dir() {
                directories.push(path);
            } else if !found.is_file() || found.len() > LONGEST_FILE {
                return Err(StackError::Special { path });
            }
        }
    }
    Ok(())
}

/// Whether the link at `path`, which holds `to`, would lead out of `root`.
fn leaves(root: &Path, path: &Path, to: &Path) -> bool {
    let depth = path.strip_prefix(root).map_or(0, |inside| inside.components().count() - 1);
    let mut depth = depth as i64;
    to.components().any(|component| {
        depth += match component {
            std::path::Component::Normal(_) => 1,
            std::path::Component::ParentDir => -1,
            _ => 0,
        };
        depth < 0
    }) || to.is_absolute()
}
