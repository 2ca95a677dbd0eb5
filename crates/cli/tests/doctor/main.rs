//! `trimtab doctor` as its users meet it, on stacks that this machine's kernel can build. Most need root; see
//! [`common::possible`]. Those of another kernel are in the room vm.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod captured;
#[path = "../../../linux/tests/common/mounts.rs"]
mod mounts;
mod proofs;
mod stacks;
mod support;
