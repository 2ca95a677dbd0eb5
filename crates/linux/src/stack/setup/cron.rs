//! Jobs of cron that trim.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{CronTrim, Reader};

/// The tables that are read besides those of [`TABLES`]; every line of one may be a job.
const TABLE: &str = "/etc/crontab";
const TABLES: &str = "/etc/cron.d";
/// Where scripts are that run as often as the name says.
const SCRIPTS: [&str; 4] = ["/etc/cron.hourly", "/etc/cron.daily", "/etc/cron.weekly", "/etc/cron.monthly"];

/// The commands in cron's files that trim.
pub(super) fn trims(reader: &mut Reader) -> Vec<CronTrim> {
    let mut files = vec![PathBuf::from(TABLE)];
    files.extend(jobs_in(reader, TABLES));
    for directory in SCRIPTS {
        // What can't be run is passed over. A captured machine has no such files.
        let may_run = |file: &PathBuf| {
            let found = fs::metadata(reader.machine.file(&file.to_string_lossy()));
            !reader.machine.is_live() || found.is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
        };
        let scripts = jobs_in(reader, directory).into_iter().filter(may_run).collect::<Vec<_>>();
        files.extend(scripts);
    }
    let mut trims = Vec::new();
    for file in files {
        let text = reader.text(&file.to_string_lossy()).replace("\\\n", " ");
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        trims.extend(lines.flat_map(commands).map(|(is_own, words)| CronTrim {
            file: file.clone(),
            is_own,
            words,
        }));
    }
    trims
}

/// The files of a directory whose names cron heeds.
fn jobs_in(reader: &mut Reader, directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(reader.machine.file(directory));
    let entries = reader.noting(&format!("list {directory}"), entries).into_iter().flatten().flatten();
    let is_heeded =
        |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(is_heeded);
    let mut files: Vec<_> = names.map(|name| Path::new(directory).join(name)).collect();
    files.sort();
    files
}

/// The words after each `fstrim` or `trimtab trim` of a line, up to where another command begins, and whether it is trimtab.
fn commands(line: &str) -> Vec<(bool, Vec<String>)> {
    let spaced = [";", "|", "&", ">", "<", "(", ")"]
        .iter()
        .fold(line.to_owned(), |line, sign| line.replace(sign, &format!(" {sign} ")));
    let words: Vec<_> = spaced.split_ascii_whitespace().collect();
    let mut commands = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let rest = match (word.rsplit('/').next().unwrap_or_default(), words.get(at + 1)) {
            ("fstrim", _) => &words[at + 1..],
            ("trimtab", Some(&"trim")) => &words[at + 2..],
            _ => continue,
        };
        let ends = |word: &&&str| !matches!(**word, ";" | "|" | "&" | ">" | "<" | "(" | ")" | "#");
        let command: Vec<_> = rest.iter().take_while(ends).map(|word| (*word).to_owned()).collect();
        if !command.is_empty() {
            commands.push((word.contains("trimtab"), command));
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use crate::captured::Captured;
    use crate::stack::Setup;

    #[test]
    fn commands_that_trim_are_found() {
        let own: Vec<_> = super::commands("trimtab trim /a; /usr/lib/trimtab/fstrim -a; /sbin/fstrim -a")
            .into_iter()
            .map(|(is_own, _)| is_own)
            .collect();
        assert_eq!(own, [true, true, false]);
        let commands = |line| super::commands(line).into_iter().map(|(_, words)| words).collect::<Vec<_>>();
        assert_eq!(commands("@weekly root test -x /sbin/fstrim && /sbin/fstrim -av || true"), [["-av"]]);
        assert_eq!(commands("fstrim /home; fstrim \"$mount\""), [["/home"], ["\"$mount\""]]);
        assert_eq!(commands("0 3 * * 0 root trimtab trim --all >/dev/null 2>&1"), [["--all"]]);
        assert!(commands("trimtab status; echo nofstrim -a; fstrim").is_empty());
    }

    #[test]
    fn all_files_of_cron_are_read() {
        let machine = Captured::new()
            .file("etc/crontab", "# fstrim -a\n17 * * * * root run-parts /etc/cron.hourly\n")
            .file("etc/cron.d/trim", "0 4 * * 1 root fstrim \\\n /home\n")
            .file("etc/cron.d/trim.dpkg-old", "0 4 * * 1 root fstrim /var\n")
            .file("etc/cron.weekly/fstrim", "#!/bin/sh\n/sbin/fstrim --all || true\n");
        let found = Setup::of(&machine.machine(), &[]).cron;
        let found: Vec<_> =
            found.iter().map(|trim| (trim.file.to_str().unwrap(), trim.words.join(" "))).collect();
        let expected = [("/etc/cron.d/trim", "/home"), ("/etc/cron.weekly/fstrim", "--all")];
        assert_eq!(found, expected.map(|(file, words)| (file, words.to_owned())));
    }
}
