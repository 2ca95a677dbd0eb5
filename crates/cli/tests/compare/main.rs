//! `trimtab compare` as a user runs it, on real file systems.

mod bad_input;
mod interrupted;
mod policies;
mod support;
mod workloads;
