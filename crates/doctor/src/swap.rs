//! Discards of swap: when it is turned on, and of what is freed later.

use trimtab_core::shell::quoted;
use trimtab_core::verdict::{Finding, Severity};
use trimtab_linux::mount::Listed;
use trimtab_linux::stack::{Layer, Setup, Stack};

use super::findings::{self, mapped};
use super::maker::Maker;
use super::service::finding;

/// Returns the lines of fstab that may belong to an active swap and enable discards.
fn discarding_swaps(setup: &Setup) -> impl Iterator<Item = &Listed> {
    let asks = |line: &&Listed| line.options.iter().any(|option| option.starts_with("discard"));
    setup.fstab.iter().filter(|line| line.fstype == "swap").filter(asks)
}

/// Describes the discard option of swap in /etc/fstab.
pub(super) fn swap_option(setup: &Setup) -> String {
    let has =
        |wanted: &str| discarding_swaps(setup).any(|line| line.options.iter().any(|option| option == wanted));
    let asked = if has("discard") {
        "/etc/fstab enables discards of the whole swap at swapon, and of pages freed later"
    } else if has("discard=once") {
        "/etc/fstab enables a discard of the whole swap at swapon"
    } else if has("discard=pages") {
        "/etc/fstab enables discards of freed pages, in clusters"
    } else {
        "/etc/fstab enables no discards"
    };
    format!("{asked}; only the kernel's log shows whether they are on")
}

/// A swap that no line of fstab asks to discard.
pub(super) fn undiscarded(target: &Layer, setup: &Setup) -> Option<Finding> {
    if discarding_swaps(setup).next().is_some() {
        return None;
    }
    let name = quoted(&target.name);
    Some(Finding {
        fix: Some(format!("swapoff {name} && swapon --discard {name}   # and add discard to its options in /etc/fstab")),
        cost: Some("Turning swap on takes as long as the drive takes to discard all of it; discard=pages adds one discard a freed cluster.".to_owned()),
        ..finding(
            "swap-no-discard",
            Severity::Note,
            target,
            format!("No line of /etc/fstab says that the swap {} is to be discarded.", target.name),
            "What was swapped out long ago stays live data for the drive. Only the kernel's log shows whether swapon was called with another option.",
            "dmesg | grep 'Adding.*swap'   # after the size: D discards allowed, s all when turned on, c what is freed",
        )
    })
}

/// Makes a finding on a layer below swap one on swap: its space is discarded when it is turned on, if at all, and it has to be
/// turned off before a device below it is set up anew.
pub(super) fn adapt(finding: &mut Finding, stack: &Stack) {
    finding.severity = finding.severity.max(Severity::Warning);
    let layer = stack.layers.iter().find(|layer| layer.name == finding.layer);
    let is_plain = layer.is_some_and(|layer| matches!(Maker::of(layer), Maker::Cryptsetup(_)));
    if finding.id == mapped::LUKS && is_plain {
        // A key that is drawn at random each time can't be given by hand.
        finding.fix = Some(format!(
            "# add discard to the options of {} in /etc/crypttab, and to those of the swap in /etc/fstab; then restart",
            layer.map(findings::mapped).map(quoted).unwrap_or_default()
        ));
    }
}
