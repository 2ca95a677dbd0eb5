//! Mounting, unmounting and the list of mounts.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, fstat, openat, statx};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::block::{BlockDevice, DeviceNumber};
use crate::file_system_kind::FileSystemKind;
use crate::{SYSFS, btrfs, ioctl};

mod list;
mod namespace;
mod visible;

pub use list::{EXCLUDED, Listed, listed_in};
pub(crate) use namespace::processes;
pub use namespace::{Namespace, namespaces};
pub use visible::{covering, is_directory, visible};

/// Why a mount, an unmount or the list of mounts failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel refused the mount.
    #[error("cannot mount {} ({fstype}) on {}", source_path.display(), target.display())]
    Mount {
        /// The source that should have been mounted.
        source_path: PathBuf,
        /// Where.
        target: PathBuf,
        /// Its file system's name.
        fstype: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel refused the unmount.
    #[error("cannot unmount {}", target.display())]
    Unmount {
        /// The mount point.
        target: PathBuf,
        /// The kernel's error; `EBUSY` where a process still uses it.
        #[source]
        source: io::Error,
    },
    /// The list of mounts can't be read.
    #[error("cannot read the list of mounts {}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// One mount, as `mountinfo` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The mount's own number.
    pub id: u64,
    /// The number of the mount that it lies on.
    pub parent: u64,
    /// The number of the device it is on; one that no block device has where the file system is on
    /// none, or as btrfs on several.
    pub number: DeviceNumber,
    /// The directory of the file system that is seen at the mount point: `/`, but for bind mounts and
    /// subvolumes.
    pub root: PathBuf,
    /// Its mount point.
    pub target: PathBuf,
    /// The file system's name, such as `ext4`.
    pub fstype: String,
    /// The mounted source: a device's path, or a name that the file system chose.
    pub source: PathBuf,
    /// The mount's own options, with commas between them.
    pub options: String,
    /// The file system's options, with commas between them.
    pub super_options: String,
}

impl Mount {
    /// Whether nothing can be written at this mount point, by its own options or the file system's.
    pub fn is_read_only(&self) -> bool {
        [&self.options, &self.super_options]
            .iter()
            .any(|options| options.split(',').any(|option| option == "ro"))
    }

    /// Whether this and `other` are of one file system; all data sets of a ZFS pool are one.
    pub fn is_of_same_file_system(&self, other: &Self) -> bool {
        let pool = |mount: &Self| mount.source.iter().next().map(OsStr::to_owned);
        let are_in_pools = [self, other].iter().all(|mount| mount.fstype == "zfs");
        self.number == other.number || (are_in_pools && pool(self) == pool(other))
    }

    /// Returns the path of the realtime device that an XFS was mounted with; none for other file systems and without one.
    pub fn realtime_device(&self) -> Option<&str> {
        let mut options = self.super_options.split(',').filter(|_| self.fstype == "xfs");
        options.find_map(|option| option.strip_prefix("rtdev="))
    }

    /// The mount's own options and the file system's, each once.
    pub fn all_options(&self) -> String {
        let mut all: Vec<&str> = Vec::new();
        for option in self.options.split(',').chain(self.super_options.split(',')) {
            if !all.contains(&option) {
                all.push(option);
            }
        }
        all.join(",")
    }
}

/// Returns the option in `options`, a list with commas, that makes a file system discard by itself:
/// `discard`, or `discard=` with a mode. None if there is none, or `nodiscard` follows it.
pub fn discard_option(options: &str) -> Option<&str> {
    let mut found = None;
    for option in options.split(',') {
        if option == "nodiscard" {
            found = None;
        } else if option == "discard" || option.starts_with("discard=") {
            found = Some(option);
        }
    }
    found
}

/// The options that the system call takes as flags; all others go to the file system as text.
const FLAGS: [(&str, MountFlags); 7] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
];

/// Splits mount options into the system call's flags and the file system's own text.
fn split_options(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut rest = Vec::new();
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match FLAGS.iter().find(|(name, _)| *name == option) {
            Some((_, flag)) => flags |= *flag,
            None => rest.push(option),
        }
    }
    (flags, rest.join(","))
}

/// Mounts the file system `fstype` on the device `source` at the directory `target`. `options` are
/// those of `mount -o`, with commas between them; empty for none.
///
/// # Errors
/// [`MountError::Mount`].
pub fn mount(source: &Path, target: &Path, fstype: &str, options: &str) -> Result<(), MountError> {
    let (flags, rest) = split_options(options);
    CString::new(rest)
        .map_err(|_| Errno::INVAL)
        .and_then(|data| rustix::mount::mount(source, target, fstype, flags, Some(data.as_c_str())))
        .map_err(|errno| MountError::Mount {
            source_path: source.to_owned(),
            target: target.to_owned(),
            fstype: fstype.to_owned(),
            source: errno.into(),
        })
}

/// Unmounts what is mounted at `target`.
///
/// # Errors
/// [`MountError::Unmount`].
pub fn unmount(target: &Path) -> Result<(), MountError> {
    unmount_with(target, UnmountFlags::NOFOLLOW)
}

/// Takes `target` out of the tree at once; the file system itself goes when its last user does.
///
/// # Errors
/// [`MountError::Unmount`].
pub fn unmount_lazily(target: &Path) -> Result<(), MountError> {
    unmount_with(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)
}

fn unmount_with(target: &Path, flags: UnmountFlags) -> Result<(), MountError> {
    rustix::mount::unmount(target, flags)
        .map_err(|errno| MountError::Unmount { target: target.to_owned(), source: errno.into() })
}

/// This process's mounts, in the order they were made; `procfs` is where procfs is mounted.
///
/// # Errors
/// [`MountError::List`].
pub fn mounts(procfs: &Path) -> Result<Vec<Mount>, MountError> {
    let path = procfs.join("self/mountinfo");
    let text = fs::read(&path).map_err(|source| MountError::List { path, source })?;
    Ok(parse(&text))
}

/// The mounts in the text of a `mountinfo`.
pub(crate) fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// Opens the directory of the mount at `target`, and wakes no automount point that may be left there. While the returned
/// file is open, the mount can't be unmounted: it is to be closed after one call.
///
/// # Errors
/// The kernel's error.
pub fn open_directory(target: &Path) -> io::Result<File> {
    let place = openat(CWD, target, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(place, ".", flags, Mode::empty())?.into())
}

/// Returns whether `directory` is the root of a mount; true also where the kernel does not say (before 5.8).
fn is_mount_point(directory: &File) -> bool {
    let found = statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS);
    found.map_or(true, |found| {
        !found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT)
            || found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

/// Opens as [`open_directory`] does the directory `target` of the file system on `devices`.
///
/// # Errors
/// The kernel's error; [`is_gone`] holds where another file system is mounted there, or above it, by now.
pub fn open_of(target: &Path, devices: &[BlockDevice]) -> io::Result<File> {
    let directory = open_directory(target)?;
    let number = DeviceNumber::unpack(fstat(&directory)?.st_dev);
    // One that can be on several devices has numbers of its own.
    let is_on: Box<dyn Fn(&BlockDevice) -> bool> = match (number.major, ioctl::btrfs_id(&directory)) {
        (0, Ok(id)) => {
            let members = btrfs::directory(Path::new(SYSFS), &id).join("devices");
            Box::new(move |device| members.join(device.name()).exists())
        }
        (0, Err(_)) if is_mount_point(&directory) => return Ok(directory),
        // After an unmount it may be a directory of an overlay or in memory, which has such a number too.
        (0, Err(_)) => return Err(io::Error::other(Gone)),
        _ => Box::new(move |device| device.number().is_ok_and(|own| own == number)),
    };
    if devices.iter().any(is_on) { Ok(directory) } else { Err(io::Error::other(Gone)) }
}

/// Another file system is mounted where one was.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("another file system is mounted there, or above it, by now")]
struct Gone;

/// Returns whether `error`, of [`open_of`], says that the file system is not mounted there any more.
pub fn is_gone(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Gone>())
        || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns the number of the file system's directory in sysfs, which the kernel makes anew at each mount and removes when
/// the last of it is unmounted; none for kinds that have no such directory. Does not open the file system.
pub fn superblock_number(sysfs: &Path, mount: &Mount) -> Option<u64> {
    let directory = match mount.fstype.as_str() {
        "btrfs" => btrfs::directory_of(sysfs, mount)?,
        _ => {
            let driver = FileSystemKind::named(&mount.fstype)?.driver;
            sysfs.join("fs").join(driver).join(BlockDevice::numbered(sysfs, mount.number)?.name())
        }
    };
    Some(fs::metadata(directory).ok()?.ino())
}

/// The mounts of the block device at the path `device`.
///
/// # Errors
/// [`MountError::List`].
pub fn mounts_of(procfs: &Path, device: &Path) -> Result<Vec<Mount>, MountError> {
    let mut mounts = mounts(procfs)?;
    mounts.retain(|mount| mount.source == device);
    Ok(mounts)
}

/// Reads a line of mountinfo: `36 35 98:0 /root /target options optional... - fstype source super`.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = text(fields.next()?).parse().ok()?;
    let parent = text(fields.next()?).parse().ok()?;
    let number = text(fields.next()?).parse().ok()?;
    let root = unescape(fields.next()?);
    let target = unescape(fields.next()?);
    let options = text(fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let fstype = text(fields.next()?);
    let source = unescape(fields.next()?);
    let super_options = text(fields.next()?);
    Some(Mount { id, parent, number, root, target, fstype, source, options, super_options })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

/// Undoes the kernel's escapes: space, tab, newline and backslash are written as `\` and three
/// octal digits.
pub(crate) fn unescape(field: &[u8]) -> PathBuf {
    let octal = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits).ok()?;
        u8::from_str_radix(digits, 8).ok()
    };
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'\\').then(|| after.get(..3).and_then(octal)).flatten();
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_without_a_device_is_that_of_a_mount() {
        // As an overlay, procfs has numbers that no device has.
        assert!(open_of(Path::new("/proc"), &[]).is_ok());
        let error = open_of(Path::new("/proc/self/net"), &[]).unwrap_err();
        assert!(is_gone(&error), "{error}");
    }

    #[test]
    fn a_captured_list_is_read() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("self")).unwrap();
        let captured = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
31 27 7:0 / /mnt/a\\040b\\134c rw,noatime shared:1 master:2 - ext4 /dev/loop0 rw,discard
40 27 0:44 /sub /mnt/b rw - btrfs /dev/loop0 rw,ssd
";
        fs::write(root.path().join("self/mountinfo"), captured).unwrap();
        let all = mounts(root.path()).unwrap();
        assert_eq!(all.len(), 3);
        assert_eq!(all[1].target, Path::new("/mnt/a b\\c"));
        assert_eq!(all[1].id, 31);
        assert_eq!(all[1].number, DeviceNumber { major: 7, minor: 0 });
        assert_eq!((all[1].root.as_path(), all[2].root.as_path()), (Path::new("/"), Path::new("/sub")));
        assert_eq!((all[1].fstype.as_str(), all[1].super_options.as_str()), ("ext4", "rw,discard"));
        assert_eq!(all[1].all_options(), "rw,noatime,discard");
        let targets: Vec<_> = mounts_of(root.path(), Path::new("/dev/loop0"))
            .unwrap()
            .into_iter()
            .map(|mount| mount.target)
            .collect();
        assert_eq!(targets, [Path::new("/mnt/a b\\c"), Path::new("/mnt/b")]);
    }

    #[test]
    fn discard_option_is_a_whole_word() {
        assert_eq!(discard_option("rw,discard,relatime"), Some("discard"));
        assert_eq!(discard_option("rw,discard=async,ssd"), Some("discard=async"));
        assert_eq!(discard_option("rw,discard_unit=block"), None);
        assert_eq!(discard_option("rw,discard,nodiscard"), None);
    }

    #[test]
    fn options_become_flags_or_text() {
        let (flags, rest) = split_options("noatime,discard=async,ro,,nobarrier");
        assert_eq!(flags, MountFlags::NOATIME | MountFlags::RDONLY);
        assert_eq!(rest, "discard=async,nobarrier");
    }
}
