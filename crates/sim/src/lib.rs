//! Traces and synthetic workloads on the flash model: one simulation, a sweep of them, and the arena of policies.

pub mod arena;
pub mod drive_profile;
pub mod simulate;
pub mod sweep;
