//! Runs `trimtab watch` as a user would, on loop devices over sparse files. All tests need root; see
//! [`common::possible`].

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod ends;
#[path = "../../../linux/tests/common/mounts.rs"]
mod mounts;
mod support;
mod trees;
