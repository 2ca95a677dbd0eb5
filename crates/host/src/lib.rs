//! Files that users name, read and written safely, and a description of processors and memory for documents. Nothing here knows of
//! storage.

mod cgroup;
pub mod environment;
pub mod file;

/// Where procfs is mounted.
pub const PROCFS: &str = "/proc";
/// Where control groups are mounted.
pub const CGROUPS: &str = "/sys/fs/cgroup";
