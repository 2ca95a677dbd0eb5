//! Judges file systems and swap: how they discard the space that they free.

use std::path::Path;

use trimtab_core::shell::quoted;
use trimtab_core::verdict::{Finding, Severity, Verdict};
use trimtab_linux::mount::discard_option;
use trimtab_linux::stack::{FileSystem, Layer, LayerKind, never_frees};
#[cfg(doc)]
use trimtab_linux::trim::loses_data;

use super::findings;
use super::opinion::{LayerInStack, Opinion};

/// The source of the mount that an emulated drive is served through.
const EMULATED: &str = "trimtab";

/// How a file system discards freed space.
enum DiscardMethod {
    /// fstrim (FITRIM), and the mount option `discard`.
    Trims,
    /// As it frees, with the mount option `discard` only: [FITRIM discards data that is in use](loses_data).
    Asked,
    /// As [`Self::Trims`], but only space that its cleaner has freed.
    Cleaned,
    /// As [`Self::Trims`]; with the mount option, only when the device is idle, and not for fstrim.
    Idle,
    /// By itself, as it frees.
    Online,
    /// Through the file system of its upper directory.
    Upper,
    /// Not at all: nothing is ever freed.
    Fixed,
    /// Not at all, whatever is freed.
    Never,
    /// It is memory.
    Memory,
    /// It shows the kernel's state and holds no data.
    View,
    /// By a tool of its own.
    Own(&'static str),
    /// It depends on the program that serves it.
    Server,
    /// Through the file system of the directory that it encrypts.
    Stacked,
    /// It is on another machine.
    Remote,
    /// Unknown.
    Unknown,
}

/// Returns how a file system discards. FITRIM: ext2 to 4 since 2.6.37, XFS 2.6.38, btrfs 2.6.39, JFS
/// 3.7, nilfs2 3.15, F2FS 3.8, GFS2 3.3, OCFS2 3.0, FAT 4.19, exFAT 5.13.
fn discard_method(fstype: &str) -> DiscardMethod {
    match fstype {
        "ext2" | "ext3" | "ext4" | "xfs" | "btrfs" | "vfat" | "msdos" | "exfat" | "jfs" | "gfs2"
        | "ocfs2" => DiscardMethod::Trims,
        "ntfs3" => DiscardMethod::Asked,
        "nilfs2" => DiscardMethod::Cleaned,
        "f2fs" => DiscardMethod::Idle,
        "bcachefs" => DiscardMethod::Online,
        "overlay" => DiscardMethod::Upper,
        "ecryptfs" => DiscardMethod::Stacked,
        "udf" | "reiserfs" | "minix" | "hfs" | "hfsplus" | "affs" | "ufs" | "sysv" | "hpfs" | "bfs" => {
            DiscardMethod::Never
        }
        fixed if never_frees(fixed) => DiscardMethod::Fixed,
        "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => DiscardMethod::Memory,
        "proc" | "sysfs" | "devpts" | "cgroup" | "cgroup2" | "securityfs" | "debugfs" | "tracefs"
        | "configfs" | "bpf" | "mqueue" | "fusectl" | "nsfs" | "selinuxfs" | "binfmt_misc" | "autofs" => {
            DiscardMethod::View
        }
        "zfs" => DiscardMethod::Own("zpool trim, or the pool's property autotrim"),
        "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "9p" | "virtiofs" | "afs" => DiscardMethod::Remote,
        "fuse" | "fuseblk" => DiscardMethod::Server,
        served if served.starts_with("fuse.") => DiscardMethod::Server,
        _ => DiscardMethod::Unknown,
    }
}

/// Returns true if fstrim works on a file system with this name.
pub(super) fn takes_fstrim(fstype: &str) -> bool {
    matches!(discard_method(fstype), DiscardMethod::Trims | DiscardMethod::Cleaned | DiscardMethod::Idle)
}

/// Returns true if a file system discards as it frees: by its mount options, or always.
pub(super) fn is_online(file_system: &FileSystem) -> bool {
    file_system.fstype == "bcachefs" || discard_option(&file_system.options).is_some()
}

/// Returns the upper directory of an overlay, as named when it was mounted.
pub(super) fn upper(file_system: &FileSystem) -> Option<&str> {
    file_system.options.split(',').find_map(|option| option.strip_prefix("upperdir="))
}

pub(super) fn opinion(place: &LayerInStack, file_system: &FileSystem) -> Opinion {
    let fstype = &file_system.fstype;
    let mount = place.layer.name.as_str();
    match discard_method(fstype) {
        DiscardMethod::Fixed => Opinion::stops(format!("{fstype} is read-only: it never frees anything")),
        DiscardMethod::View => Opinion::stops("it holds no data: there is nothing to discard"),
        DiscardMethod::Upper => match upper(file_system) {
            None => Opinion::stops("it has no upper directory: it frees nothing"),
            Some(_) if !place.below.is_empty() => {
                Opinion::passes("its changed files are files of the file system below, which frees them")
            }
            Some(upper) if !upper.starts_with('/') => Opinion::unknown(format!(
                "its upper directory {upper} is named relative to where mount was run, which nobody can tell now"
            )),
            Some(_) => Opinion::unknown("the directory that takes its changes can't be found from here"),
        },
        _ if place.layer.read_only => Opinion::stops("it is mounted read-only: it frees nothing"),
        _ if place.below.iter().any(|(below, _)| below.zoned) => Opinion::reshapes(
            Verdict::Reaches,
            "on a zoned device, it resets a zone once nothing in it is used",
        ),
        DiscardMethod::Never => Opinion::stops(format!("{fstype} never discards what it frees"))
            .found(findings::never_discards(place.layer, fstype)),
        DiscardMethod::Memory => Opinion::passes("it is memory, and what is freed is free at once"),
        DiscardMethod::Stacked => Opinion::unknown(format!(
            "its files are those of another file system: ask for {}",
            quoted(file_system.source.display())
        )),
        DiscardMethod::Remote => Opinion::unknown("it is on another machine: ask there"),
        DiscardMethod::Server if file_system.source == Path::new(EMULATED) => {
            Opinion::passes("it is an emulated drive of trimtab, which takes them")
        }
        DiscardMethod::Server => Opinion::unknown("it is up to the program behind it (FUSE)"),
        DiscardMethod::Own(how) => Opinion::unknown(format!("fstrim can't be used; its own way is {how}")),
        DiscardMethod::Unknown if place.below.is_empty() => Opinion::unknown("it lies on no block device"),
        DiscardMethod::Unknown => Opinion::unknown(format!("nothing is known of how {fstype} discards")),
        DiscardMethod::Trims
        | DiscardMethod::Asked
        | DiscardMethod::Cleaned
        | DiscardMethod::Idle
        | DiscardMethod::Online
            if place.below.is_empty() =>
        {
            Opinion::unknown("the device that it is on can't be found from here")
        }
        DiscardMethod::Online => by_device(place, file_system),
        DiscardMethod::Asked if !is_online(file_system) => {
            Opinion::stops("mounted without discard, it discards nothing, for fstrim neither")
                .found(findings::needs_the_option(place.layer))
        }
        DiscardMethod::Asked => Opinion::passes("it discards as it frees"),
        DiscardMethod::Cleaned => Opinion::reshapes(
            Verdict::Reaches,
            "it discards what its cleaner (nilfs_cleanerd) has made free, an hour or more after a deletion",
        ),
        DiscardMethod::Idle if is_online(file_system) => Opinion::reshapes(
            Verdict::Reaches,
            "it discards when the device is idle, up to a minute later, and sends nothing when fstrim runs",
        ),
        DiscardMethod::Trims if discard_option(&file_system.options) == Some("discard=async") => {
            Opinion::reshapes(Verdict::Reaches, "it discards some time after it frees, and when fstrim runs")
        }
        DiscardMethod::Trims | DiscardMethod::Idle if is_online(file_system) => {
            Opinion::passes("it discards as it frees, and when fstrim runs")
        }
        DiscardMethod::Trims | DiscardMethod::Idle if place.is_target() => {
            Opinion::passes("it discards when fstrim runs")
        }
        DiscardMethod::Trims | DiscardMethod::Idle => Opinion::reshapes(
            Verdict::Partial,
            format!("the holes are its free space: told to the device when fstrim runs on {mount}"),
        )
        .found(findings::nested(place.layer)),
    }
}

/// Judges a bcachefs, which has a setting for each of its devices.
fn by_device(place: &LayerInStack, file_system: &FileSystem) -> Opinion {
    let names = file_system.undiscarded.join(", ");
    let is_off = |name: &str| file_system.undiscarded.iter().any(|off| off == name);
    if names.is_empty() {
        Opinion::passes("it discards as it frees")
    } else if place.below.iter().all(|(below, _)| is_off(&below.name)) {
        Opinion::stops("its option discard is off: it sends none")
            .found(findings::bcachefs(place.layer, &file_system.undiscarded))
    } else {
        let reason =
            format!("it discards as it frees, but sends none to {names}, whose option discard is off");
        let finding = findings::bcachefs(place.layer, &file_system.undiscarded);
        Opinion::reshapes(Verdict::Partial, reason).found(Finding { severity: Severity::Warning, ..finding })
    }
}

/// Why nothing of a file system can ever be discarded, as its layers below are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Still {
    /// Nothing in it is ever freed.
    ForGood,
    /// It is mounted read-only.
    NowReadOnly,
}

/// Returns for how long nothing is freed in the layer `top`, so that the layers below do not matter. Returns `None` if it may free.
pub(super) fn still(top: &Layer) -> Option<Still> {
    let LayerKind::FileSystem(found) = &top.kind else { return None };
    match discard_method(&found.fstype) {
        DiscardMethod::Fixed | DiscardMethod::View => Some(Still::ForGood),
        DiscardMethod::Upper if upper(found).is_none() => Some(Still::ForGood),
        _ => top.read_only.then_some(Still::NowReadOnly),
    }
}

pub(super) fn swap(place: &LayerInStack) -> Opinion {
    if place.below.is_empty() {
        Opinion::unknown("what it lies on can't be looked at from here: that takes root")
    } else {
        Opinion::passes("swap is discarded when it is turned on with discards allowed")
    }
}
