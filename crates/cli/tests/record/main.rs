//! `trimtab record` as its users meet it. All of it needs root; see [`support::possible`].

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod ends;
mod support;
mod truth;
