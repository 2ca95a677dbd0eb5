//! A sysfs and a procfs as a machine may have them, for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::block::BlockDevice;
use crate::stack::Machine;

/// A tree with `sys` and `proc` in it.
pub(crate) struct Captured(tempfile::TempDir);

impl Captured {
    /// A machine without block devices, mounts and swap.
    pub(crate) fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for directory in ["sys/block", "sys/class/block", "sys/dev/block", "proc/self"] {
            fs::create_dir_all(machine.0.path().join(directory)).unwrap();
        }
        machine.mounts("").swaps("")
    }

    /// The machine that the tree is.
    pub(crate) fn machine(&self) -> Machine {
        Machine::captured(self.0.path()).unwrap()
    }

    /// The directory that holds `sys` and `proc`.
    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn sysfs(&self) -> PathBuf {
        self.0.path().join("sys")
    }

    pub(crate) fn procfs(&self) -> PathBuf {
        self.0.path().join("proc")
    }

    /// The directory of a device: `sda`, or `sda/sda1` of a partition.
    fn directory(&self, device: &str) -> PathBuf {
        self.sysfs().join("devices").join(device)
    }

    /// Adds `device`, a disk such as `sda` or a partition such as `sda/sda1`, with the number
    /// `number` and these attributes; 1 MiB from its start on, if not said otherwise.
    pub(crate) fn device(self, device: &str, number: &str, attributes: &[(&str, &str)]) -> Self {
        let directory = self.directory(device);
        let name = directory.file_name().unwrap().to_owned();
        for inner in ["holders", "slaves"] {
            fs::create_dir_all(directory.join(inner)).unwrap();
        }
        let common = [("dev", number), ("size", "2048"), ("ro", "0")];
        let partition = [("partition", "1"), ("start", "2048")];
        let own = if device.contains('/') { &partition[..] } else { &[] };
        for (attribute, value) in common.iter().chain(own).chain(attributes) {
            let file = directory.join(attribute);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{value}\n")).unwrap();
        }
        symlink(&directory, self.sysfs().join("class/block").join(&name)).unwrap();
        symlink(&directory, self.sysfs().join("dev/block").join(number)).unwrap();
        if own.is_empty() {
            symlink(&directory, self.sysfs().join("block").join(&name)).unwrap();
        }
        self
    }

    /// Puts `backing` behind the loop device with the number `number`: a device's number, or a file's device
    /// and inode number.
    pub(crate) fn behind(self, number: &str, backing: &str) -> Self {
        self.file(&format!("trimtab/loop/{number}"), backing)
    }

    /// Builds `upper` on `lower`, as the device mapper does.
    pub(crate) fn stacked(self, upper: &str, lower: &str) -> Self {
        let (above, below) = (self.directory(upper), self.directory(lower));
        symlink(&above, below.join("holders").join(above.file_name().unwrap())).unwrap();
        symlink(&below, above.join("slaves").join(below.file_name().unwrap())).unwrap();
        self
    }

    /// Makes `from` below `sys` a link to `to`.
    pub(crate) fn link(self, from: &str, to: &str) -> Self {
        let from = self.sysfs().join(from);
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        symlink(to, from).unwrap();
        self
    }

    /// Adds a file with the path `path` below the root.
    pub(crate) fn file(self, path: &str, text: impl AsRef<[u8]>) -> Self {
        let file = self.0.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        self
    }

    /// The list of mounts: lines of mountinfo.
    pub(crate) fn mounts(self, lines: &str) -> Self {
        fs::write(self.procfs().join("self/mountinfo"), lines).unwrap();
        self
    }

    /// The list of swap, without its first line.
    pub(crate) fn swaps(self, lines: &str) -> Self {
        let header = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        fs::write(self.procfs().join("swaps"), format!("{header}{lines}")).unwrap();
        self
    }

    /// Where the node of the device named `name` would be: by that it is known whatever this machine has.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.0.path().join("dev").join(name)
    }

    /// The device named `name`.
    pub(crate) fn open(&self, name: &str) -> BlockDevice {
        BlockDevice::open(&self.sysfs(), &self.node(name)).unwrap()
    }
}
