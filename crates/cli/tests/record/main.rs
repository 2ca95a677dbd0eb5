//! Runs `trimtab record` as a user would. All tests need root; see [`support::possible`].

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod ends;
mod support;
mod truth;
