//! Runs `trimtab doctor` on stacks that this machine's kernel can build. Most tests need root; see
//! [`common::possible`]. The test program vm has the stacks of another kernel.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/program.rs"]
mod program;

mod bad_input;
mod captured;
mod frozen;
#[path = "../../../linux/tests/common/mounts.rs"]
mod mounts;
mod names;
mod namespaces;
mod proofs;
mod stacks;
mod support;
