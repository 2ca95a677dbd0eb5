//! File systems whose trims [discard data that is in use](trimtab_linux::trim::loses_data), and those who trim them all the same.

use std::path::Path;

use trimtab_core::shell::quoted;
use trimtab_core::verdict::{Finding, Severity};
use trimtab_linux::mount::EXCLUDED;
use trimtab_linux::stack::{FileSystem, LayerKind, Setup, Stack};
use trimtab_linux::trim::loses_data;

use super::file_system::is_online;
use super::listing::{Listing, by_fstrim};
use super::service::{FSTRIM_TIMER, Trimmer, finding, trimmers};

/// The id of the finding.
const ID: &str = "trim-loses-data";

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

/// The end of somebody's trims of a file system.
struct End {
    who: String,
    fix: String,
    /// Whether it ends its trims of other file systems, too.
    is_for_all: bool,
}

/// Returns the ends of all trims of a file system but trimtab's, which leaves it alone.
fn ends(file_system: &FileSystem, setup: &Setup) -> Vec<End> {
    let others = without_own_commands(setup);
    let is_excludable = by_fstrim(file_system, &excluding(file_system, &others)) != Listing::Trims;
    let targets = file_system.targets.iter().map(|target| quoted(target.display()));
    let lines = targets.collect::<Vec<_>>().join(" and ");
    let trimmers = trimmers(file_system, &others).into_iter().filter(|trimmer| !trimmer.is_own());
    let end = |Trimmer { name, off, .. }| {
        let by_option = is_excludable && name == FSTRIM_TIMER;
        let option = format!("# in /etc/fstab, add {EXCLUDED} to the options of {lines}");
        End { who: name, fix: if by_option { option } else { off }, is_for_all: !by_option }
    };
    trimmers.map(end).collect()
}

/// Returns the setup without the commands of cron and fstrim.service that call trimtab; without fstrim.timer if that has no others.
fn without_own_commands(setup: &Setup) -> Setup {
    let mut others = setup.clone();
    others.cron.retain(|command| !command.is_own);
    if let Some(service) = others.fstrim_service.as_mut().filter(|service| !service.commands.is_empty()) {
        service.commands.retain(|command| !command.iter().any(|word| word.contains("trimtab")));
        if service.commands.is_empty() {
            others.timer = None;
        }
    }
    others
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
