//! Files, devices and NVMe controllers that the kernel itself uses for others without claiming them: for a USB
//! gadget, nvmet, LIO and the heartbeat of an OCFS2 cluster.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::block::{DeviceNumber, children};

/// A device or file that is served, and its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exported {
    /// The path that the server has of it.
    pub path: PathBuf,
    /// Where it is set up.
    pub server: PathBuf,
}

/// Where the path of what is served can be read, `*` standing for the rest of a name.
const GADGETS: [&str; 2] = [
    "class/udc/*/device/gadget*/lun*/file",
    "kernel/config/usb_gadget/*/functions/mass_storage.*/lun.*/file",
];
const NVMET: &str = "kernel/config/nvmet/subsystems/*/namespaces/*/device_path";
/// The character device of a controller, whose commands are all passed through.
const PASSTHRU: &str = "kernel/config/nvmet/subsystems/*/passthru/device_path";
/// The name of a disk that carries the heartbeat of an OCFS2 cluster.
const HEARTBEAT: &str = "kernel/config/cluster/*/heartbeat/*/dev";
const IBLOCK: &str = "kernel/config/target/core/iblock_*/*/info";
const FILEIO: &str = "kernel/config/target/core/fileio_*/*/info";

/// All files and block devices that the kernel says to be served.
pub(super) fn exported(sysfs: &Path) -> Vec<Exported> {
    let mut all = Vec::new();
    for pattern in GADGETS {
        all.extend(matching(sysfs, pattern).into_iter().filter_map(|file| found(&file, line)));
    }
    all.extend(enabled(sysfs, NVMET));
    let heartbeats = matching(sysfs, HEARTBEAT).into_iter().filter_map(|file| found(&file, line));
    all.extend(heartbeats.map(|disk| Exported { path: Path::new("/dev").join(&disk.path), ..disk }));
    all.extend(matching(sysfs, FILEIO).into_iter().filter_map(|file| found(&file, fileio)));
    all
}

/// The block devices that LIO serves, by their numbers, each with the directory where that is set up. LIO claims them
/// unless it is told not to (`exclusive=0`).
pub(super) fn iblocks(sysfs: &Path) -> Vec<(DeviceNumber, PathBuf)> {
    let found = matching(sysfs, IBLOCK).into_iter().filter_map(|file| {
        let number = iblock(&fs::read(&file).ok()?)?;
        Some((number, file.parent()?.to_owned()))
    });
    found.collect()
}

/// The number in `iBlock device: sdb  UDEV PATH: /dev/sdb ... Major: 8 Minor: 16  CLAIMED: IBLOCK`.
fn iblock(text: &[u8]) -> Option<DeviceNumber> {
    let text = String::from_utf8_lossy(text);
    let field = |name: &str| text.rsplit_once(name)?.1.split_ascii_whitespace().next()?.parse().ok();
    Some(DeviceNumber { major: field("Major: ")?, minor: field("Minor: ")? })
}

/// The NVMe controllers that nvmet serves with all their namespaces, by the paths of their character devices.
pub(super) fn passed_through(sysfs: &Path) -> Vec<Exported> {
    enabled(sysfs, PASSTHRU)
}

/// Returns the exports of nvmet whose settings match `pattern`.
fn enabled(sysfs: &Path, pattern: &str) -> Vec<Exported> {
    let is_enabled =
        |file: &PathBuf| fs::read(file.with_file_name("enable")).is_ok_and(|text| text.starts_with(b"1"));
    let all = matching(sysfs, pattern).into_iter().filter(is_enabled);
    all.filter_map(|file| found(&file, line)).collect()
}

/// Returns the export that `read` finds in `file`.
fn found(file: &Path, read: fn(&[u8]) -> Option<&[u8]>) -> Option<Exported> {
    let text = fs::read(file).ok()?;
    let path = read(&text).filter(|path| !path.is_empty())?;
    Some(Exported { path: OsStr::from_bytes(path).into(), server: file.parent()?.to_owned() })
}

fn line(text: &[u8]) -> Option<&[u8]> {
    text.split(|byte| *byte == b'\n').next()
}

/// The path in `TCM FILEIO ID: 0        File: /images/a  Size: 67108864  Mode: ...`.
fn fileio(text: &[u8]) -> Option<&[u8]> {
    let (file, size) = (b" File: ", b"  Size: ");
    let start = text.windows(file.len()).position(|window| window == file)? + file.len();
    let end = text.windows(size.len()).rposition(|window| window == size)?;
    text.get(start..end)
}

/// The files in `directory` that match `pattern`.
fn matching(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![directory.to_owned()];
    for name in pattern.split('/') {
        found = match name.split_once('*') {
            None => found.iter().map(|directory| directory.join(name)).collect(),
            Some((start, _)) => {
                let paths = found.iter().flat_map(|directory| children(directory));
                let is_such = |path: &PathBuf| {
                    path.file_name().is_some_and(|name| name.as_bytes().starts_with(start.as_bytes()))
                };
                paths.filter(is_such).collect()
            }
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::Captured;

    #[test]
    fn exports_of_the_kernel_are_listed() {
        let info = "Status: ACTIVATED  Max Queue Depth: 0  SectorSize: 512  HwMaxSectors: 16384\n        \
                    TCM FILEIO ID: 0        File: /images/a b  Size: 67108864  Mode: O_DSYNC Async: 0\n";
        let nvmet = "sys/kernel/config/nvmet/subsystems/s/namespaces";
        let machine = Captured::new()
            .file("sys/class/udc/dummy_udc.0/device/gadget.0/lun0/file", "/images/g\n")
            .file("sys/kernel/config/usb_gadget/g/functions/mass_storage.0/lun.0/file", "/images/c\n")
            .file("sys/kernel/config/usb_gadget/g/functions/mass_storage.0/lun.1/file", "\n")
            .file("sys/kernel/config/usb_gadget/g/functions/uac1.0/lun.0/file", "/images/no")
            .file(&format!("{nvmet}/1/device_path"), "/dev/sdb\n")
            .file(&format!("{nvmet}/1/enable"), "1\n")
            .file(&format!("{nvmet}/2/device_path"), "/dev/sdc\n")
            .file(&format!("{nvmet}/2/enable"), "0\n")
            .file("sys/kernel/config/nvmet/subsystems/p/passthru/device_path", "/dev/nvme0\n")
            .file("sys/kernel/config/nvmet/subsystems/p/passthru/enable", "1\n")
            .file("sys/kernel/config/nvmet/subsystems/q/passthru/device_path", "/dev/nvme1\n")
            .file("sys/kernel/config/nvmet/subsystems/q/passthru/enable", "0\n")
            .file("sys/kernel/config/cluster/c/heartbeat/0123456789/dev", "nvme1n1\n")
            .file("sys/kernel/config/cluster/c/heartbeat/9876543210/dev", "\n")
            .file("sys/kernel/config/target/core/fileio_0/x/info", info)
            .file("sys/kernel/config/target/core/fileio_0/hba_info", "HBA Index: 1\n");
        let all = exported(&machine.sysfs());
        let paths: Vec<_> = all.iter().map(|found| found.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/images/g", "/images/c", "/dev/sdb", "/dev/nvme1n1", "/images/a b"]);
        assert!(all[2].server.ends_with("subsystems/s/namespaces/1"));
        let through = passed_through(&machine.sysfs());
        assert_eq!(
            through.iter().map(|found| found.path.as_path()).collect::<Vec<_>>(),
            [Path::new("/dev/nvme0")]
        );
        assert!(exported(&Captured::new().sysfs()).is_empty());
    }
}
