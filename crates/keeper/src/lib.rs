//! The service and `trimtab trim`: tracks the pending extents of mounted file systems, trims them when the
//! policy asks for it, and saves them over restarts.
//!
//! Start reading at [`service::Service`] for the service and at [`trim::PreparedTrim`] for a single trim.

pub mod decision_log;
pub mod free_space;
pub mod pause;
pub mod service;
pub mod state;

mod failures;
mod policy_driver;
pub mod trim;
mod trimmer;
