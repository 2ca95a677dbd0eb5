//! Rules of udev.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Reader, UdevLine};

/// Where rules are; a file hides those of its name in the directories after.
const DIRECTORIES: [&str; 5] = [
    "/etc/udev/rules.d",
    "/run/udev/rules.d",
    "/usr/local/lib/udev/rules.d",
    "/usr/lib/udev/rules.d",
    "/lib/udev/rules.d",
];

/// The lines that set `provisioning_mode`, in the order in which they apply.
pub(super) fn rules(reader: &mut Reader) -> Vec<UdevLine> {
    let mut files = BTreeMap::new();
    for directory in DIRECTORIES {
        let entries = fs::read_dir(reader.machine.file(directory));
        let entries = reader.noting(&format!("list {directory}"), entries);
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".rules") {
                files.entry(name).or_insert(directory);
            }
        }
    }
    let mut rules = Vec::new();
    for (name, directory) in files {
        let file = format!("{directory}/{name}");
        // A line goes on after a backslash.
        let text = reader.text(&file).replace("\\\n", " ");
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let lines = lines.filter(|line| line.contains("provisioning_mode"));
        rules.extend(lines.map(|line| UdevLine { file: Path::new(&file).to_owned(), line: line.to_owned() }));
    }
    rules
}
