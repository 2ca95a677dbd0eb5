//! Checks that the kernel's lists of devices, processes and swap are in sight.

use std::fs;
use std::path::Path;

use rustix::fs::statfs;
use rustix::thread::CapabilitySet;

use super::ClaimError;
use crate::mount::Mount;

/// `f_type` of procfs and sysfs; see `linux/magic.h`.
const PROCFS: i64 = 0x9fa0;
const SYSFS: i64 = 0x6265_6572;

/// Directories of sysfs with nothing that a block device needs, which containers have covered.
const HARMLESS: [&str; 2] = ["/sys/devices/system", "/sys/devices/virtual/powercap"];

/// Checks that sysfs and procfs are what they should be, and that procfs shows all processes.
///
/// # Errors
/// [`ClaimError::NoLists`], [`ClaimError::HiddenProcesses`].
pub(super) fn are_the_kernels(sysfs: &Path, procfs: &Path) -> Result<(), ClaimError> {
    for (path, kind, expected) in [(sysfs, SYSFS, "sysfs"), (procfs, PROCFS, "proc")] {
        // Mounts are listed by the place that a symbolic link leads to.
        let is_directory = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        if !is_directory || !statfs(path).is_ok_and(|found| found.f_type == kind) {
            return Err(ClaimError::NoLists { path: path.to_owned(), expected });
        }
    }
    // Every PID namespace has a process 1. The option hidepid of procfs hides it with all others of other users.
    if procfs.join("1").exists() { Ok(()) } else { Err(ClaimError::HiddenProcesses) }
}

/// Returns whether the last mount of `/proc` among this process' `mounts` has the option hidepid, which shows processes of
/// others only with `CAP_SYS_PTRACE` or to members of a group.
pub(super) fn hide_processes(mounts: &[Mount]) -> bool {
    let proc = mounts.iter().rfind(|mount| mount.target == Path::new("/proc"));
    let hiding = ["hidepid=2", "hidepid=invisible", "hidepid=4", "hidepid=ptraceable"];
    proc.is_some_and(|mount| mount.super_options.split(',').any(|option| hiding.contains(&option)))
}

/// Returns whether this process may look at all others.
pub(super) fn may_look_at_processes() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

/// Returns the first of this process' mounts that hides devices, processes, swap or md arrays, or shows others.
pub(super) fn covering(mounts: &[Mount]) -> Option<&Mount> {
    mounts.iter().find(|mount| hides(mount))
}

fn hides(mount: &Mount) -> bool {
    let target = &mount.target;
    if target == Path::new("/sys") || target == Path::new("/proc") {
        // A bind mount of one of their directories.
        return ["sysfs", "proc"].contains(&mount.fstype.as_str()) && mount.root != Path::new("/");
    }
    if let Ok(inner) = target.strip_prefix("/proc") {
        let first = inner.iter().next().unwrap_or_default();
        return ["filesystems", "mdstat", "swaps"].iter().any(|list| first == *list)
            || first.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    }
    let parts = [
        "/sys/block",
        "/sys/bus",
        "/sys/class",
        "/sys/dev",
        "/sys/devices",
        "/sys/fs/btrfs",
        "/sys/fs/erofs",
    ];
    // What is mounted over all file systems' directories hides those of these two.
    let is_inside = target == Path::new("/sys/fs") || parts.iter().any(|part| target.starts_with(part));
    is_inside && !HARMLESS.iter().any(|part| target.starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount;

    #[test]
    fn mounts_over_the_lists_are_found() {
        for (target, root, fstype, is_covering) in [
            ("/proc", "/", "proc", false),
            ("/proc", "/42", "proc", true),
            ("/proc/42", "/", "tmpfs", true),
            ("/proc/42/fd", "/41/fd", "proc", true),
            ("/proc/swaps", "/proc/swaps", "fuse.lxcfs", true),
            ("/proc/filesystems", "/null", "devtmpfs", true),
            ("/proc/mdstat", "/null", "devtmpfs", true),
            ("/proc/sys/fs/binfmt_misc", "/", "autofs", false),
            ("/proc/kcore", "/null", "devtmpfs", false),
            ("/sys", "/", "sysfs", false),
            ("/sys", "/fs", "sysfs", true),
            ("/sys/block", "/", "tmpfs", true),
            ("/sys/bus", "/", "tmpfs", true),
            ("/sys/bus/scsi/devices", "/", "tmpfs", true),
            ("/sys/class/block", "/", "tmpfs", true),
            ("/sys/dev/block/8:0", "/", "tmpfs", true),
            ("/sys/devices/virtual/block", "/", "tmpfs", true),
            ("/sys/devices/virtual/powercap", "/", "tmpfs", false),
            ("/sys/devices/system/cpu", "/sys", "fuse.lxcfs", false),
            ("/sys/fs", "/", "tmpfs", true),
            ("/sys/fs/erofs/erofs-3", "/", "tmpfs", true),
            ("/sys/fs/btrfs", "/", "tmpfs", true),
            ("/sys/fs/cgroup", "/", "cgroup2", false),
            ("/sys/kernel/config", "/", "configfs", false),
            ("/sys/firmware", "/", "tmpfs", false),
            ("/system/block", "/", "ext4", false),
        ] {
            let mounts = mount::parse(format!("22 1 0:21 {root} {target} rw - {fstype} x rw\n").as_bytes());
            assert_eq!(covering(&mounts).is_some(), is_covering, "{root} on {target} ({fstype})");
        }
    }

    #[test]
    fn options_that_hide_processes_are_found() {
        for (options, hides) in [
            ("rw", false),
            ("rw,hidepid=1", false),
            ("rw,hidepid=noaccess", false),
            ("rw,gid=100,hidepid=2", true),
            ("rw,hidepid=invisible", true),
            ("rw,hidepid=ptraceable", true),
        ] {
            let mounts = mount::parse(format!("22 1 0:21 / /proc rw - proc proc {options}\n").as_bytes());
            assert_eq!(hide_processes(&mounts), hides, "{options}");
        }
    }

    #[test]
    fn other_file_systems_are_no_lists() {
        let [sysfs, procfs, other] = ["/sys", "/proc", "/"].map(Path::new);
        assert!(are_the_kernels(sysfs, procfs).is_ok());
        for (sysfs, procfs) in [(other, procfs), (sysfs, other), (sysfs, Path::new("/nowhere"))] {
            assert!(matches!(are_the_kernels(sysfs, procfs), Err(ClaimError::NoLists { .. })));
        }
    }
}
