//! Tasks of the first process of a system: kernel modules, entropy, power.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::system::RebootCommand;

use crate::ioctl;

/// Mounts a file system of the kernel's own, such as `proc` or `tmpfs`, on `target`, which is made where
/// it is missing.
///
/// # Errors
/// The kernel's error, such as `ENODEV` where it has no such file system.
pub fn mount_kernel_files(fstype: &str, target: &Path) -> io::Result<()> {
    fs::create_dir_all(target)?;
    Ok(rustix::mount::mount(fstype, target, fstype, MountFlags::empty(), None)?)
}

/// Loads a kernel module from a file. Returns false where this machine lacks the device it is for.
///
/// # Errors
/// The kernel's error, such as `ENOENT` where a module that it depends on isn't loaded.
pub fn load_module(path: &Path) -> io::Result<bool> {
    const NO_PARAMETERS: &CStr = c"";
    match rustix::system::finit_module(File::open(path)?, NO_PARAMETERS, 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(true),
        Err(Errno::NODEV) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Mixes `seed` into the kernel's random numbers and has it count as 256 bits of entropy, so that the
/// kernel gathers none by itself.
///
/// # Errors
/// The kernel's error, such as `EPERM` without `CAP_SYS_ADMIN`.
pub fn credit_entropy(random: impl AsFd, seed: &[u8; 32]) -> io::Result<()> {
    Ok(ioctl::add_entropy(random, seed)?)
}

/// Turns the machine off at once.
///
/// # Errors
/// The kernel's error, such as `EPERM` without `CAP_SYS_BOOT`.
pub fn power_off() -> io::Result<()> {
    Ok(rustix::system::reboot(RebootCommand::PowerOff)?)
}
