//! Asks the service manager for the properties of units.

use std::io;
use std::process::{Command, Output, Stdio};

use crate::stack::Machine;

/// Runs `systemctl show` for `properties`, with commas between them, of a unit; none where there is no service manager.
pub(super) fn show(machine: &Machine, unit: &str, properties: &str) -> Option<io::Result<Output>> {
    let mut systemctl = Command::new("systemctl");
    systemctl.args(["show", unit, "--property", properties]).stdin(Stdio::null());
    machine.file("/run/systemd/system").is_dir().then(|| systemctl.output())
}

/// Returns the values of a property in lines `PROPERTY=VALUE`.
pub(super) fn values<'a>(text: &'a str, property: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.filter(move |(name, _)| *name == property).map(|(_, value)| value.trim())
}
