//! Smart discards: what is pending on a mounted file system, when it is trimmed, and how that is
//! kept over restarts.

pub mod free_space;
pub mod service;
pub mod state;

mod failures;
mod policy_driver;
pub mod trim;
mod trimmer;
