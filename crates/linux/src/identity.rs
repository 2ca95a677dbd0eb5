//! Finds out which regular files are the same: by device and inode number, through overlays, in every mount
//! namespace.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, statfs, statx};

use crate::block::DeviceNumber;
use crate::mount::{Mount, Namespace};
use crate::stack::overlaid;
use crate::{btrfs, limited};

/// File systems without a block device of their own that keep a file's bytes to themselves.
const PLAIN: [&str; 14] = [
    "bcachefs",
    "btrfs",
    "devtmpfs",
    "erofs",
    "f2fs",
    "gfs2",
    "hugetlbfs",
    "jffs2",
    "ocfs2",
    "ramfs",
    "rootfs",
    "tmpfs",
    "ubifs",
    "zfs",
];

/// File systems that keep a file's bytes on another machine, or of a virtual machine's host. One file may have several
/// inode numbers there.
const REMOTE: [&str; 14] = [
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "smb3",
    "vboxsf", "virtiofs",
];

/// The source of the FUSE mounts of emulated drives (`trimtab drive`).
pub const DRIVE_SOURCE: &str = "trimtab";

/// The directory that these are in.
pub const DRIVES: &str = "/run/trimtab/drives";

/// `f_type` of tmpfs, which descriptors of `memfd_create` are on without a mount.
const TMPFS: i64 = 0x0102_1994;

/// `f_type` of ecryptfs, whose files are shorter than those that hold them.
const ECRYPTFS: i64 = 0xf15f;

/// The file system of a file that is on none of those that can be seen, in words.
const UNSEEN: &str = "a file system that is mounted nowhere";

/// How many overlays may lie on each other; the kernel allows two.
const MOST_OVERLAYS: u32 = 4;

/// A regular file, by the numbers that `stat` has of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The file system's number.
    pub device: DeviceNumber,
    /// The file's number in it.
    pub inode: u64,
}

/// Whether two files are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sameness {
    Same,
    Different,
    /// It can't be told.
    Unknown,
}

/// All that is known of where the bytes of a regular file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Its own numbers, followed by those of the files below an overlay that it may be.
    ids: Vec<FileId>,
    /// Whether these are all.
    is_known: bool,
    /// The number of its FUSE connection, where it is on a FUSE file system.
    pub fuse: Option<u32>,
    /// Its file system, where that may keep the bytes in another file, in a length of its own.
    pub stacked: Option<String>,
}

impl Identity {
    /// A file that has its bytes to itself.
    pub fn plain(id: FileId) -> Self {
        Self { ids: vec![id], is_known: true, fuse: None, stacked: None }
    }

    /// Whether `id` is one of its numbers.
    pub fn has(&self, id: FileId) -> bool {
        self.ids.contains(&id)
    }

    /// Whether this and `other` are one file.
    pub fn compare(&self, other: &Self) -> Sameness {
        if self.ids.iter().any(|id| other.has(*id)) {
            Sameness::Same
        } else if self.ids[0].device == other.ids[0].device {
            // On one file system, other inodes are other files.
            Sameness::Different
        } else if self.is_known && other.is_known {
            Sameness::Different
        } else {
            Sameness::Unknown
        }
    }

    /// Whether this file, which is as long as `length` says, and `other`, which the link `opened` of procfs
    /// leads to, may share their bytes although their numbers don't show it.
    pub fn may_share(&self, other: &Self, opened: &Path, length: Length) -> bool {
        // One of them has to be a file whose bytes may be elsewhere.
        if self.is_known && (other.is_known || keeps_its_bytes(opened)) {
            return false;
        }
        kind_of(opened) == Some(ECRYPTFS)
            || look(opened).is_ok_and(|found| match length {
                Length::Exactly(length) => found.stx_size == length,
                Length::AtLeast(length) => found.stx_size >= length,
            })
    }
}

/// Identifies the regular file with the numbers `id`, which may be found at `path` in one of `namespaces`.
pub(crate) fn identify(namespaces: &[Namespace], id: FileId, path: &Path) -> Identity {
    identify_below(namespaces, id, path, 0, &mut HashSet::new())
}

/// Files that were looked at, by their numbers, their paths and how many overlays are above: layers may lead to one again and
/// again.
type Seen = HashSet<(FileId, PathBuf, u32)>;

fn identify_below(
    namespaces: &[Namespace],
    id: FileId,
    path: &Path,
    depth: u32,
    seen: &mut Seen,
) -> Identity {
    let is_plain = |is_known| Identity { is_known, ..Identity::plain(id) };
    let is_on = |kind: &str| match PLAIN.contains(&kind) {
        true => is_plain(true),
        false => Identity { stacked: Some(kind.to_owned()), ..is_plain(false) },
    };
    let mut mounts = namespaces.iter().flat_map(|namespace| &namespace.mounts);
    let mount = mounts.find(|mount| mount.number == id.device);
    let kind = mount.map(|mount| mount.fstype.as_str());
    match kind {
        Some(kind) if kind.starts_with("fuse") => {
            // The server of an emulated drive keeps the bytes itself. Others may show those of another file.
            let stacked = (!mount.is_some_and(is_emulated_drive)).then(|| kind.to_owned());
            Identity { fuse: Some(id.device.minor), stacked, ..is_plain(true) }
        }
        _ if id.device.major != 0 => is_plain(true),
        Some(kind) if REMOTE.contains(&kind) => Identity { stacked: Some(kind.to_owned()), ..is_plain(true) },
        Some(kind) if PLAIN.contains(&kind) => is_plain(true),
        Some("overlay") | None if depth < MOST_OVERLAYS => match locate(namespaces, id, path) {
            Some((_, _, kind)) if kind == btrfs::MAGIC => is_plain(true),
            Some((namespace, mount, _)) if mount.fstype == "overlay" => {
                overlay(namespaces, namespace, mount, id, path, depth, seen)
            }
            // A subvolume or a file system that gives files device numbers of their own.
            Some((_, mount, _)) => is_on(&mount.fstype),
            None => is_on(kind.unwrap_or(UNSEEN)),
        },
        Some(kind) => is_on(kind),
        None => is_on(UNSEEN),
    }
}

/// The directory of the emulated drive whose FUSE connection has the number `connection`; none of other FUSE.
pub(crate) fn drive_directory(namespaces: &[Namespace], connection: u32) -> Option<PathBuf> {
    let number = DeviceNumber { major: 0, minor: connection };
    let mut mounts = namespaces.iter().flat_map(|namespace| &namespace.mounts);
    let mount = mounts.find(|mount| mount.number == number && is_emulated_drive(mount))?;
    Some(mount.target.parent()?.to_owned())
}

/// Whether the file that the link `opened` of procfs leads to is in memory or on btrfs, whose files may have device numbers that
/// no list of mounts has, and which keep their bytes to themselves.
pub(crate) fn keeps_its_bytes(opened: &Path) -> bool {
    matches!(kind_of(opened), Some(TMPFS | btrfs::MAGIC))
}

/// The `f_type` of the file system of the file at `path`; none where its server does not answer.
fn kind_of(path: &Path) -> Option<i64> {
    let path = path.to_owned();
    limited::ask(move || statfs(&path).ok().map(|found| found.f_type)).answer().flatten()
}

fn is_emulated_drive(mount: &Mount) -> bool {
    mount.source == Path::new(DRIVE_SOURCE) && mount.target.starts_with(DRIVES)
}

/// The namespace and the mount in which `path` is the file `id`, and its file system's `f_type`.
fn locate<'a>(
    namespaces: &'a [Namespace],
    id: FileId,
    path: &Path,
) -> Option<(&'a Namespace, &'a Mount, i64)> {
    namespaces.iter().zip(look_in_all(namespaces, path)).find_map(|(namespace, found)| {
        let found = found.filter(|found| id_of(found) == id)?;
        let mut mounts = namespace.mounts.iter();
        let mount = mounts.find(|mount| mount.id == found.stx_mnt_id)?;
        Some((namespace, mount, kind_of(&namespace.file(path))?))
    })
}

/// The file at `path` of the overlay `mount`, with the files at the same place of its directories: the file of the
/// upper one, or else the files of all lower ones. The directories are known by the paths they had when the overlay
/// was mounted, and other files may be there now. So a match counts as the same file, and the absence of one
/// proves nothing.
fn overlay(
    namespaces: &[Namespace],
    namespace: &Namespace,
    mount: &Mount,
    id: FileId,
    path: &Path,
    depth: u32,
    seen: &mut Seen,
) -> Identity {
    let stacked = Some(mount.fstype.clone());
    let mut identity = Identity { ids: vec![id], is_known: false, fuse: None, stacked };
    let Ok(inner) = path.strip_prefix(&mount.target) else { return identity };
    let inner = mount.root.strip_prefix("/").unwrap_or(&mount.root).join(inner);
    let (upper, lower) = overlaid(&mount.super_options);
    let has_metadata_only = mount.super_options.split(',').any(|option| option == "metacopy=on");
    let directories = upper.iter().chain(&lower);
    for directory in directories {
        if !directory.is_absolute() {
            return identity;
        }
        let below = directory.join(&inner);
        let here = look_in(namespace, &below);
        // The directories of a container's overlay may be seen from outside of it alone.
        let elsewhere = look_in_all(namespaces, &below).into_iter().flatten();
        for found in here.into_iter().chain(elsewhere) {
            if !seen.insert((id_of(&found), below.clone(), depth)) {
                continue;
            }
            let real = identify_below(namespaces, id_of(&found), &below, depth + 1, seen);
            identity.ids.extend(real.ids);
            identity.fuse = identity.fuse.or(real.fuse);
        }
        // Any other has been copied, or is hidden.
        if here.is_some() && upper.as_ref() == Some(directory) && !has_metadata_only {
            break;
        }
    }
    identity
}

/// How long a file is: what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Exactly(u64),
    AtLeast(u64),
}

/// The length of the file `id`, where `path` leads to it in one of `namespaces`.
pub(crate) fn length_of(namespaces: &[Namespace], id: FileId, path: &Path) -> Option<u64> {
    let mut found = look_in_all(namespaces, path).into_iter().flatten();
    found.find(|found| id_of(found) == id).map(|found| found.stx_size)
}

/// Returns the identity of the regular file at `path`, by `stat`.
///
/// # Errors
/// The kernel's error; another error for anything else than a regular file.
pub(crate) fn file_at(path: &Path) -> io::Result<FileId> {
    let found = look(path)?;
    match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::RegularFile => Ok(id_of(&found)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Looks without asking the server of a network file system or of FUSE, which may never answer.
pub(crate) fn look(path: &Path) -> io::Result<Statx> {
    Ok(statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?)
}

/// Looks at the file that has the absolute path `path` in `namespace`; none where it is not there, or leads through a file
/// system that does not answer.
fn look_in(namespace: &Namespace, path: &Path) -> Option<Statx> {
    let place = namespace.place(path);
    limited::in_time(move || look(&place.found())).ok()
}

/// Looks at the file that has the absolute path `path` in each of `namespaces`, as [`look_in`] does.
fn look_in_all(namespaces: &[Namespace], path: &Path) -> Vec<Option<Statx>> {
    let places: Vec<_> = namespaces.iter().map(|namespace| namespace.place(path)).collect();
    let look = move || places.iter().map(|place| look(&place.found()).ok()).collect();
    // Where one does not answer, the others still do.
    let one_by_one = || namespaces.iter().map(|namespace| look_in(namespace, path)).collect();
    limited::ask(look).answer().unwrap_or_else(one_by_one)
}

/// The numbers in an answer of `statx`.
pub(crate) fn id_of(found: &Statx) -> FileId {
    let device = DeviceNumber { major: found.stx_dev_major, minor: found.stx_dev_minor };
    FileId { device, inode: found.stx_ino }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unidentified_file_may_be_any_of_its_length() {
        let machine = crate::captured::Captured::new().file("real", [7; 40]);
        let real = machine.root().join("real");
        let identity = |id, is_known| Identity { ids: vec![id], is_known, fuse: None, stacked: None };
        let known = identity(file_at(&real).unwrap(), true);
        let device = DeviceNumber { major: 0, minor: 77 };
        let unknown = identity(FileId { device, inode: 5 }, false);
        assert_eq!(unknown.compare(&known), Sameness::Unknown);
        // A loop device over a file of an overlay, and a process that has the file below it, or the reverse.
        assert!(unknown.may_share(&known, &real, Length::Exactly(40)));
        assert!(unknown.may_share(&known, &real, Length::AtLeast(40)));
        assert!(known.may_share(&unknown, &real, Length::Exactly(40)));
        assert!(!unknown.may_share(&known, &real, Length::Exactly(41)));
        assert!(!known.may_share(&known, &real, Length::Exactly(40)));
    }

    fn number(minor: u32) -> DeviceNumber {
        DeviceNumber { major: 0, minor }
    }

    fn known(minor: u32, inode: u64) -> Identity {
        Identity {
            ids: vec![FileId { device: number(minor), inode }],
            is_known: true,
            fuse: None,
            stacked: None,
        }
    }

    #[test]
    fn files_are_compared_by_all_their_numbers() {
        let (one, other) = (known(1, 7), known(2, 7));
        assert_eq!(one.compare(&one), Sameness::Same);
        assert_eq!(one.compare(&other), Sameness::Different);
        let opaque = Identity { is_known: false, ..known(3, 7) };
        assert_eq!(one.compare(&opaque), Sameness::Unknown);
        assert_eq!(opaque.compare(&one), Sameness::Unknown);
        assert_eq!(opaque.compare(&Identity { is_known: false, ..known(3, 8) }), Sameness::Different);
        let through = Identity { ids: vec![opaque.ids[0], one.ids[0]], ..opaque };
        assert_eq!(one.compare(&through), Sameness::Same);
    }

    #[test]
    fn file_systems_are_known_by_the_mounts_of_every_namespace() {
        let lines = b"22 1 0:21 / /tmp rw - tmpfs t rw\n23 1 0:22 / /f rw - fuse.x x rw\n24 1 0:23 / /e rw - ecryptfs e rw\n\
            25 1 0:25 / /run/trimtab/drives/d/fuse rw - fuse trimtab rw\n\
            26 1 0:26 / /tmp/d rw - fuse trimtab rw\n27 1 8:7 / /b rw - fuseblk /dev/sda7 rw\n\
            28 1 0:28 / /n rw - nfs4 server:/ rw\n";
        let namespaces = [
            Namespace::new("/nowhere".into(), None, Vec::new()),
            Namespace::new("/nowhere".into(), Some(7), crate::mount::parse(lines)),
        ];
        let of = |device| identify(&namespaces, FileId { device, inode: 5 }, Path::new("/none"));
        assert!(of(DeviceNumber { major: 8, minor: 1 }).is_known);
        assert!(of(number(21)).is_known);
        assert_eq!((of(number(22)).is_known, of(number(22)).fuse), (true, Some(22)));
        assert!(!of(number(23)).is_known, "it shows the bytes of other files");
        assert_eq!(of(number(23)).stacked, Some("ecryptfs".to_owned()));
        assert!(!of(number(24)).is_known, "it is mounted nowhere");
        assert_eq!(of(number(24)).stacked, Some(UNSEEN.to_owned()));
        assert_eq!(of(number(22)).stacked, Some("fuse.x".to_owned()));
        assert_eq!(of(number(26)).stacked, Some("fuse".to_owned()), "its name proves nothing");
        let block = of(DeviceNumber { major: 8, minor: 7 });
        assert_eq!(block.stacked, Some("fuseblk".to_owned()), "a server keeps it, too");
        assert_eq!((of(number(28)).is_known, of(number(28)).stacked), (true, Some("nfs4".to_owned())));
        assert_eq!(
            [21, 25].map(|minor| of(number(minor)).stacked),
            [None, None],
            "files of a drive of ours are its own"
        );
    }
}
