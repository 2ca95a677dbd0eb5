//! Completes the fix of a finding on one layer by what other layers and the machine's settings say.

use trimtab_core::verdict::Finding;
use trimtab_linux::stack::{LayerKind, Setup, Stack};

use super::findings::{self, mapped};
use super::mapper;

/// The findings whose fixes make a device take discards while others lie on it.
const OPENS: [&str; 6] =
    [findings::USB, findings::LIMITED, "host-no-discards", "provisioning-mode", mapped::LUKS, mapped::STALE];

/// Commands that need the devices above to be gone, or take effect after a restart only: these get their limits anew.
const SETS_UP_ANEW: [&str; 4] = ["cryptsetup close", "homectl", "losetup", "#"];

/// Adds to a fix that makes a device take discards the commands by which the devices above it follow: the kernel took their
/// limits from it when their tables were loaded.
pub(super) fn reload_above(finding: &mut Finding, stack: &Stack) {
    let Some(fix) = &mut finding.fix else { return };
    let is_rescan = fix.contains("/device/rescan");
    let is_new = SETS_UP_ANEW.iter().any(|start| fix.starts_with(start)) && !is_rescan;
    let is_of_host = finding.id == "host-no-discards" && !is_rescan;
    if !OPENS.contains(&finding.id.as_str()) || is_new || is_of_host {
        return;
    }
    let Some(at) = stack.layers.iter().position(|layer| layer.name == finding.layer) else { return };
    // A layer comes before those it lies on; the lowest is reloaded first.
    let mut reached = vec![false; stack.layers.len()];
    reached[at] = true;
    let mut reloads = Vec::new();
    for index in (0..at).rev() {
        let layer = &stack.layers[index];
        // Above what stays closed, nothing would change.
        let follows = layer.kind == LayerKind::Partition || mapper::is_stale(layer);
        reached[index] = follows && layer.below.iter().any(|below| reached[below.layer]);
        if reached[index] && mapper::is_stale(layer) {
            // It takes the volume down, and this device is in use.
            if mapped::needs_idle(layer) {
                break;
            }
            reloads.push(mapped::fresh_table(layer));
        }
    }
    if reloads.is_empty() {
        return;
    }
    // On one line: where the first command asks for a passphrase, further lines would be taken for it.
    let start = fix.rfind('\n').map_or(0, |at| at + 1);
    let end = fix[start..].find("   #").map_or(fix.len(), |at| start + at);
    fix.insert_str(end, &format!(" && {}", reloads.join(" && ")));
}

/// Takes the fix of [`findings::FORCED_OFF`] away where the kernel's command line does not turn TRIM off: the kernel's own list
/// of drives does, or an option of its module.
pub(super) fn name_who_forced(finding: &mut Finding, setup: &Setup) {
    if finding.id != findings::FORCED_OFF || setup.command_line.iter().any(|word| word.contains("notrim")) {
        return;
    }
    finding.fix = None;
    finding.cost = None;
    finding.why = "Nothing on the kernel's command line says so: it is the kernel's list of drives that lose data with it, or an option of the \
         module libata in /etc/modprobe.d."
        .to_owned();
}
