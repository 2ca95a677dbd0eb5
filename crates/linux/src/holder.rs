//! Finds a process that keeps a block device or its file system in use.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Statx};
use trimtab_core::shell::quoted;

use crate::block::DeviceNumber;
use crate::limited::in_time;
use crate::mount::{parse, processes};
use crate::{identity, process};

/// A process that keeps a device in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// Its hold on the device.
    pub hold: Hold,
}

/// The hold of a process on a device. The first variants are the stronger holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// It has files or directories of its file system open, or works in one.
    Files,
    /// Its file system is mounted here, where the process sees it.
    Mount(PathBuf),
    /// It has the device itself open.
    Device,
}

impl fmt::Display for Holder {
    /// Writes the process, what it does, and the next step.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { process, name, hold } = self;
        match hold {
            Hold::Files => {
                write!(f, "{name} (process {process}) has files of its file system open; end it first")
            }
            Hold::Mount(target) => write!(
                f,
                "it is mounted on {} in the mount namespace of {name} (process {process}); unmount it there first \
                 (nsenter --target {process} --mount umount {})",
                target.display(),
                quoted(target.display())
            ),
            Hold::Device => write!(f, "{name} (process {process}) has it open; end it first"),
        }
    }
}

/// Returns a process with the strongest hold on the block device `device` with this number; `None` if none is found. Other
/// users' processes are looked at by root alone.
pub fn holder(procfs: &Path, device: &Path, number: DeviceNumber) -> Option<Holder> {
    let mut namespaces = BTreeSet::new();
    let mut strongest: Option<(Hold, u32)> = None;
    for process in processes(procfs).unwrap_or_default() {
        let directory = procfs.join(process.to_string());
        let mut found = open_hold(&directory, number);
        let namespace = fs::read_link(directory.join("ns/mnt")).ok();
        // The others in a namespace see the same mounts.
        if namespace.is_none_or(|namespace| namespaces.insert(namespace)) {
            let mounts = parse(&fs::read(directory.join("mountinfo")).unwrap_or_default());
            // btrfs has numbers of its own.
            let mount = mounts.into_iter().find(|mount| mount.number == number || mount.source == device);
            found = found.into_iter().chain(mount.map(|mount| Hold::Mount(mount.target))).min();
        }
        let found = found.map(|hold| (hold, process));
        strongest = strongest.into_iter().chain(found).min();
    }
    let (hold, process) = strongest?;
    Some(Holder { process, name: process::name(procfs, process), hold })
}

/// Returns the strongest hold of a process, with this directory in procfs, on the device `number` by what it has open.
fn open_hold(directory: &Path, number: DeviceNumber) -> Option<Hold> {
    let mut links: Vec<_> = ["cwd", "root"].iter().map(|link| directory.join(link)).collect();
    let descriptors = fs::read_dir(directory.join("fd")).into_iter().flatten().flatten();
    links.extend(descriptors.map(|entry| entry.path()));
    // A file system that does not answer is not asked for every file.
    let looked =
        in_time(move || Ok(links.iter().filter_map(|link| identity::look(link).ok()).collect::<Vec<_>>()));
    looked.ok()?.iter().filter_map(|found| hold(found, number)).min()
}

/// Returns the hold that an open file is.
fn hold(found: &Statx, number: DeviceNumber) -> Option<Hold> {
    let on = DeviceNumber { major: found.stx_dev_major, minor: found.stx_dev_minor };
    let of = DeviceNumber { major: found.stx_rdev_major, minor: found.stx_rdev_minor };
    let is_device = FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice;
    match (on == number, is_device && of == number) {
        (true, _) => Some(Hold::Files),
        (false, true) => Some(Hold::Device),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::captured::Captured;

    #[test]
    fn open_file_is_a_stronger_hold_than_a_mount() {
        let mut machine = Captured::new().file("mnt/file", "");
        let file = machine.root().join("mnt/file");
        let number = DeviceNumber::unpack(File::open(&file).unwrap().metadata().unwrap().dev());
        let mount = format!("36 35 {}:{} / /mnt rw - ext4 /dev/x rw\n", number.major, number.minor);
        for (process, name) in [("8", "sees-it"), ("9", "has-it-open")] {
            machine = machine
                .file(&format!("proc/{process}/comm"), format!("{name}\n"))
                .file(&format!("proc/{process}/mountinfo"), &mount)
                .file(&format!("proc/{process}/fd/none"), "");
            fs::remove_file(machine.procfs().join(process).join("fd/none")).unwrap();
        }
        let found = || holder(&machine.procfs(), Path::new("/dev/y"), number).unwrap();
        assert_eq!((found().hold, found().name), (Hold::Mount(PathBuf::from("/mnt")), "sees-it".to_owned()));
        symlink(&file, machine.procfs().join("9/fd/3")).unwrap();
        assert_eq!((found().hold, found().process), (Hold::Files, 9));
        let text = found().to_string();
        assert_eq!(text, "has-it-open (process 9) has files of its file system open; end it first");
        let other = DeviceNumber { major: 4711, minor: 1 };
        assert_eq!(holder(&machine.procfs(), Path::new("/dev/y"), other), None);
        let by_source = holder(&machine.procfs(), Path::new("/dev/x"), other).unwrap();
        assert_eq!(by_source.hold, Hold::Mount(PathBuf::from("/mnt")));
    }
}
