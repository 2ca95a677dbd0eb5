//! The service manager's units that trim besides `fstrim.timer`.

use std::fs;

use super::Reader;

/// Trimtab's own: its service, and the timer of its trims.
const OWN: [&str; 2] = ["trimtab.service", "trimtab-trim.timer"];
/// Where a unit that is enabled is linked to, in a directory of what wants it.
const ENABLED: &str = "/etc/systemd/system";

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
