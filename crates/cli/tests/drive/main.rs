//! Emulated drives as their users meet them: the `drive` verbs, the library that the experiments
//! use, and the block device that both make. All of it needs root; see [`support::possible`].

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/program.rs"]
mod program;

mod data;
mod file_systems;
mod lifecycle;
#[path = "../../../linux/tests/common/mounts.rs"]
#[allow(dead_code, reason = "the drives have loop devices of their own")]
mod mounts;
mod support;
mod time;
