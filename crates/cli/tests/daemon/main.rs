//! `trimtab daemon` and `trimtab status` as their users meet them, on loop devices over sparse files. All of
//! it needs root; see [`common::possible`].

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/program.rs"]
mod program;

mod access;
mod bad_input;
mod broken;
mod churn;
mod contents;
mod ends;
mod faults;
mod lost;
mod monitoring;
mod mounts;
mod silent;
mod steered;
mod support;
mod trims;
mod units;
mod unmounts;
