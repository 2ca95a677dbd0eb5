//! `trimtab trim` as a user runs it, on real file systems.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/program.rs"]
mod program;

mod as_fstrim;
mod interrupted;
mod options;
mod refused;
mod several_mounts;
mod support;
mod truth;
