//! The only contact with the kernel: sysfs, procfs, ioctls and mounts.
//!
//! Every ioctl is one safe function in [`ioctl`], the only module with `unsafe`. Readers of sysfs
//! and procfs take a root path, so that a captured tree can be read as well as the live one.

pub mod block;
pub mod btrfs;
pub mod environment;
pub mod ioctl;
pub mod loop_device;
pub mod mount;
pub mod trim;

/// Where sysfs is mounted.
pub const SYSFS: &str = "/sys";
/// Where procfs is mounted.
pub const PROCFS: &str = "/proc";
