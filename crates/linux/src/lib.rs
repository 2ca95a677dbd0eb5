//! The only contact with the kernel: sysfs, procfs, ioctls and mounts.
//!
//! Every ioctl is one safe function in [`ioctl`]; that module, the `io_uring` in [`queue`], [`child`],
//! [`forked`] and [`memory`] are the only ones with `unsafe`. Readers of sysfs and procfs take a root path, so that a
//! captured tree can be read as well as the live one.
//!
//! To see the [`stack`] below a path, run the example `discard_limits`, in `examples/`.

pub mod block;
pub mod btrfs;
#[cfg(test)]
mod captured;
pub mod child;
pub mod claim;
mod describe;
mod descriptors;
pub mod device;
pub mod ext4;
pub mod file_system_kind;
pub mod first_process;
pub mod forked;
pub mod generation;
pub mod holder;
pub mod identity;
pub mod ioctl;
mod limited;
pub mod loop_device;
pub mod memory;
pub mod mount;
pub mod mount_points;
pub mod namespace;
pub mod process;
pub mod process_tree;
pub mod queue;
pub mod stack;
pub mod steer;
pub mod thin_pool;
pub mod tracefs;
pub mod trim;

/// Where sysfs is mounted.
pub const SYSFS: &str = "/sys";

pub use trimtab_host::{CGROUPS, PROCFS, environment, file};
