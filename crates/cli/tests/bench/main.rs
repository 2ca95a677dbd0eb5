//! `trimtab bench` as a user runs it, on emulated drives and on this machine's own kinds of device.

#[path = "../common/mod.rs"]
mod common;

mod alone;
mod bad_input;
mod devices;
#[path = "../../../guest/src/executable.rs"]
mod executable;
mod in_use;
mod interrupted;
mod races;
mod scene;
mod support;
mod truth;
mod written;
