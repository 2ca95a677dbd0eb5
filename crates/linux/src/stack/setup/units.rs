//! The service manager's units that trim besides `fstrim.timer`.

use std::fs;
use std::path::PathBuf;

use super::{Reader, ServedMount};
use crate::stack::Machine;

/// Trimtab's own: its service, and the timer of its trims.
const OWN: [&str; 2] = ["trimtab.service", "trimtab-trim.timer"];
/// Where a unit that is enabled is linked to, in a directory of what wants it.
const ENABLED: &str = "/etc/systemd/system";

/// The file of a captured machine that lists what the service knew.
const SERVED: &str = "/trimtab/served";
/// The file that a captured machine has whose service was enabled, but did not run.
const DOWN: &str = "/trimtab/down";
/// The words before the mount points in the former file.
const TRIMMED: &str = "trimmed";
const LEFT: &str = "left";

/// Returns what the service of a captured machine knew; `None` if none ran.
pub(super) fn served(machine: &Machine) -> Option<Vec<ServedMount>> {
    let text = fs::read_to_string(machine.file(SERVED)).ok().filter(|_| !machine.is_live())?;
    let line = |line: &str| {
        let (word, mount) = line.split_once(' ')?;
        Some(ServedMount { mount: PathBuf::from(mount), is_trimmed: word == TRIMMED })
    };
    Some(text.lines().filter_map(line).collect())
}

impl ServedMount {
    /// The line that is read back as this, with `mount` as its mount point.
    pub(in crate::stack) fn line(&self, mount: &str) -> String {
        format!("{} {mount}\n", if self.is_trimmed { TRIMMED } else { LEFT })
    }
}

/// Returns whether the service of a captured machine was enabled, but did not run.
pub(super) fn is_down(machine: &Machine) -> bool {
    !machine.is_live() && machine.file(DOWN).exists()
}

/// Returns trimtab's own units that start by themselves.
pub(super) fn own(reader: &mut Reader) -> Vec<String> {
    let entries = fs::read_dir(reader.machine.file(ENABLED));
    let entries = reader.noting(&format!("list {ENABLED}"), entries).into_iter().flatten().flatten();
    let wants: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().ends_with(".wants")).collect();
    // The link may lead nowhere that a captured tree has.
    let is_enabled = |unit: &&str| wants.iter().any(|wants| wants.join(unit).symlink_metadata().is_ok());
    OWN.into_iter().filter(is_enabled).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use crate::captured::Captured;
    use crate::stack::Setup;

    #[test]
    fn unit_is_on_if_it_is_wanted() {
        let machine = Captured::new()
            .file("etc/systemd/system/trimtab-trim.timer", "[Timer]\n")
            .file("etc/systemd/system/multi-user.target.wants/trimtab.service", "");
        assert_eq!(Setup::of(&machine.machine(), &[]).own_units, ["trimtab.service"]);
    }
}
