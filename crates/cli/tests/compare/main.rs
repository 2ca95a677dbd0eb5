//! `trimtab compare` as a user runs it, on real file systems.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/program.rs"]
mod program;

mod bad_input;
mod interrupted;
mod policies;
mod support;
mod workloads;
