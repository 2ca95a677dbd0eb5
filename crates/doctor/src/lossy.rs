//! File systems whose trims [discard data that is in use](trimtab_linux::trim::loses_data), and those who trim them all the same.

use std::path::Path;

use trimtab_core::shell::quoted;
use trimtab_core::verdict::{Finding, Severity};
use trimtab_linux::stack::{FileSystem, LayerKind, Setup, Stack};
use trimtab_linux::trim::loses_data;

use super::file_system::is_online;
use super::listing::{Listing, by_fstrim};
use super::service::{FSTRIM_TIMER, cron_off, cron_trims, finding, is_timed};

/// The id of the finding.
const ID: &str = "trim-loses-data";
const EXCLUDED: &str = "X-fstrim.notrim";

/// Adds a finding where somebody trims such a file system of a stack, whatever becomes of its discards: storage that keeps them from
/// its drive may still take the data away. Every fix that could let more of them through waits until that has ended.
pub(super) fn warn(findings: &mut Vec<Finding>, stack: &Stack, setup: &Setup) {
    let found = stack.layers.iter().find_map(|layer| match &layer.kind {
        LayerKind::FileSystem(found) if loses_data(&found.fstype) && !found.writable.is_empty() => {
            Some((layer, found))
        }
        _ => None,
    });
    let Some((layer, file_system)) = found else { return };
    let ends = ends(file_system, setup);
    if ends.is_empty() {
        return;
    }
    for finding in findings.iter_mut().filter(|finding| finding.fix.is_some()) {
        (finding.fix, finding.cost) = (None, None);
        finding.why.push_str(" End the trims that lose data first (trim-loses-data); then this has a fix.");
    }
    let (mount, fstype) = (quoted(&layer.name), &file_system.fstype);
    let is_at_once = fstype != "ntfs3" || is_online(file_system);
    let when = if is_at_once { "" } else { " once it is mounted with discard" };
    let names = ends.iter().map(|end| end.who.as_str()).collect::<Vec<_>>().join(" and ");
    let verb = if ends.len() == 1 { "trims" } else { "trim" };
    let others: Vec<_> = ends.iter().filter(|end| end.is_for_all).map(|end| end.who.as_str()).collect();
    findings.insert(
        0,
        Finding {
            fix: Some(ends.iter().map(|end| end.fix.as_str()).collect::<Vec<_>>().join("\n")),
            cost: (!others.is_empty())
                .then(|| format!("{} then trims no other file system either.", others.join(" and "))),
            ..finding(
                ID,
                if is_at_once { Severity::Critical } else { Severity::Warning },
                layer,
                format!("{names} {verb} {mount}, and a trim of {fstype} can discard data that is in use{when}."),
                if fstype == "ntfs3" {
                    "Files were lost after fstrim where a large part of the volume was full (Linux 6.12). Mounted with discard, it \
                     discards what it frees, and needs no trim."
                } else {
                    "Files were reported lost after fstrim with the driver of Linux 7.2. The older driver of this name takes no trims."
                },
                "systemctl list-timers fstrim.timer; findmnt -o TARGET,OPTIONS",
            )
        },
    );
}

/// Somebody that trims a file system, and the command that ends it.
struct End {
    who: String,
    fix: String,
    /// Whether it ends its trims of other file systems, too.
    is_for_all: bool,
}

/// Returns all who trim a file system and are not trimtab, which leaves it alone.
fn ends(file_system: &FileSystem, setup: &Setup) -> Vec<End> {
    let others = without_own(setup);
    let is_by_timer = |setup: &Setup| by_fstrim(file_system, setup) == Listing::Trims;
    let timer = others.as_ref().filter(|others| is_timed(others) && is_by_timer(others)).map(|others| {
        let fix = format!("systemctl disable --now {FSTRIM_TIMER}");
        let is_for_all = is_by_timer(&excluding(file_system, others));
        let line = file_system.targets.iter().map(|target| quoted(target.display())).collect::<Vec<_>>();
        let option = format!("# in /etc/fstab, add {EXCLUDED} to the options of {}", line.join(" and "));
        End { who: FSTRIM_TIMER.to_owned(), fix: if is_for_all { fix } else { option }, is_for_all }
    });
    let cron = setup.cron.iter().filter(|command| !command.is_own && cron_trims(command, file_system, setup));
    let cron = cron.map(|command| End {
        who: format!("cron ({})", command.file.display()),
        fix: cron_off(&command.file),
        is_for_all: true,
    });
    timer.into_iter().chain(cron).collect()
}

/// Returns the setup with those commands of fstrim.service alone that are not trimtab's; `None` if all are trimtab's.
fn without_own(setup: &Setup) -> Option<Setup> {
    let mut others = setup.clone();
    if let Some(service) = &mut others.fstrim_service {
        let is_own = |command: &Vec<String>| command.iter().any(|word| word.contains("trimtab"));
        let had = service.commands.len();
        service.commands.retain(|command| !is_own(command));
        if had > 0 && service.commands.is_empty() {
            return None;
        }
    }
    Some(others)
}

/// Returns the setup after the file system was excluded in `/etc/fstab`, if it has a line there.
fn excluding(file_system: &FileSystem, setup: &Setup) -> Setup {
    let mut changed = setup.clone();
    let is_it = |target: &Path| file_system.targets.iter().any(|found| found == target);
    for line in changed.fstab.iter_mut().filter(|line| is_it(&line.target)) {
        line.options.push(EXCLUDED.to_owned());
    }
    changed
}
