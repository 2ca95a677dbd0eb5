//! `trimtab watch` as its users meet it, on loop devices over sparse files. All of it needs root; see
//! [`common::possible`].

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod ends;
#[path = "../../../linux/tests/common/mounts.rs"]
mod mounts;
mod support;
mod trees;
