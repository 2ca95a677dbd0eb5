//! Compares what dm-crypt devices do now with what /etc/crypttab, headers and the kernel's command line say.

use trimtab_core::shell::quoted;
use trimtab_core::verdict::{Finding, Severity};
use trimtab_linux::stack::{CrypttabLine, Layer, LayerKind, Setup, Stack, allows_discards};

use super::findings::mapped;
use super::maker::Maker;
use super::service::finding;

/// A dm-crypt device that passes discards on now, but won't after the next start.
pub(super) fn until_restart(layer: &Layer, setup: &Setup) -> Option<Finding> {
    let LayerKind::DeviceMapper(lines) = &layer.kind else { return None };
    let crypt = lines.iter().find(|line| line.target == "crypt")?;
    let name = mapped(layer);
    let set_up = line_of(layer, setup)?;
    let by_table = set_up.options.iter().any(|option| allows_discards(option));
    // By the header of LUKS2, or the kernel's command line.
    let is_kept = setup.luks_allows.iter().any(|(device, allows)| device == &layer.name && *allows);
    let now = crypt.parameters.split_whitespace().any(|word| word == "allow_discards");
    if !now || by_table || is_kept {
        return None;
    }
    let word = quoted(name);
    let (why, check) = match Maker::of(layer) {
        Maker::Luks2 => (
            "Neither /etc/crypttab nor the LUKS header allows them.",
            "cryptsetup luksDump DEVICE   # Flags: allow-discards",
        ),
        _ => ("/etc/crypttab doesn't allow them.", "grep discard /etc/crypttab"),
    };
    Some(Finding {
        fix: Some(match Maker::of(layer) {
            Maker::Luks2 => format!("cryptsetup refresh --allow-discards --persistent {word}"),
            _ => format!("# add discard to the options of {word} in /etc/crypttab; {NEW_INITRAMFS}"),
        }),
        cost: Some("The same as now: unused blocks can be told from used ones on the raw disk.".to_owned()),
        ..finding(
            "luks-until-restart",
            Severity::Warning,
            layer,
            format!("dm-crypt hands the discards of {name} on only until the next start.{}", unread(set_up)),
            why,
            check,
        )
    })
}

/// Returns the line of crypttab that sets a device up.
fn line_of<'a>(layer: &Layer, setup: &'a Setup) -> Option<&'a CrypttabLine> {
    setup.crypttab.iter().find(|line| line.name == mapped(layer))
}

/// The commands that carry a changed crypttab into the initramfs.
const NEW_INITRAMFS: &str = "then update-initramfs -u (Debian) or dracut -f";

/// Says which options of a line in crypttab nobody reads; nothing if there are none that allow discards.
fn unread(line: &CrypttabLine) -> String {
    match line.unread.iter().find(|option| allows_discards(option)) {
        Some(option) => format!(
            " In its line of /etc/crypttab, a blank stands before {option}: the options end there, and it is not read."
        ),
        None => String::new(),
    }
}

/// Adds to the finding on a dm-crypt device what /etc/crypttab says of it.
pub(super) fn compare_with_crypttab(finding: &mut Finding, stack: &Stack, setup: &Setup) {
    let layer = stack.layers.iter().find(|layer| layer.name == finding.layer);
    let Some(line) = layer.and_then(|layer| line_of(layer, setup)) else { return };
    if line.options.iter().any(|option| allows_discards(option)) {
        finding.message += " Its line in /etc/crypttab allows them, but it was opened without that line, or by an older copy in \
            the initramfs.";
        if let Some(fix) = &mut finding.fix {
            *fix = format!("{fix}\n# {NEW_INITRAMFS}");
        }
    } else {
        finding.message += &unread(line);
        // The header of LUKS2 keeps the option by itself.
        if let Some(fix) =
            finding.fix.as_mut().filter(|_| layer.is_some_and(|layer| Maker::of(layer) != Maker::Luks2))
        {
            *fix = format!("{fix}\n# where the initramfs opens it: {NEW_INITRAMFS}");
        }
    }
}
