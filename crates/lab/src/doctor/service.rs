//! Who issues the discards of a file system or a swap, and what is left out.

use trimtab_core::document::doctor::{Finding, Severity, Verdict};
use trimtab_linux::stack::{FileSystem, FstabLine, Kind, Layer, Setup, Stack};

use super::file_system::{is_online, takes_fstrim};
use super::findings::quoted;

const ENABLE: &str = "systemctl enable --now fstrim.timer";

fn finding(id: &str, severity: Severity, layer: &Layer, message: String, why: &str, check: &str) -> Finding {
    Finding {
        id: id.to_owned(),
        severity,
        layer: layer.name.clone(),
        message,
        why: why.to_owned(),
        fix: None,
        cost: None,
        check: check.to_owned(),
    }
}

/// What of the services and files of a machine concerns the discards of one stack, which end with `verdict`.
pub(super) fn findings(stack: &Stack, setup: &Setup, verdict: Verdict) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_overlay =
        |layer: &&Layer| matches!(&layer.kind, Kind::FileSystem(found) if found.fstype == "overlay");
    let Some(target) = stack.layers.iter().find(|layer| !is_overlay(layer)) else { return findings };
    match &target.kind {
        // Who sends discards down a way that is closed is of no concern.
        _ if matches!(verdict, Verdict::Blocked) => {}
        Kind::FileSystem(file_system) if takes_fstrim(&file_system.fstype) && !target.read_only => {
            findings.extend(who_trims(target, file_system, setup));
        }
        Kind::Swap if !stack.layers.iter().any(|layer| layer.kind == Kind::Zram) => {
            findings.extend(swap(target, setup));
        }
        _ => {}
    }
    findings.extend(stack.layers.iter().filter_map(|layer| until_restart(layer, setup)));
    findings.extend(
        stack.layers.iter().find(|layer| is_lvm(layer)).and_then(|layer| removed_volumes(layer, setup)),
    );
    findings
}

fn is_timed(setup: &Setup) -> bool {
    setup.timer.as_ref().is_some_and(|timer| timer.enabled || timer.active) && !setup.container
}

/// When fstrim.timer runs and ran, in a clause; none where it is off, or `stack` is nothing for it.
pub(super) fn timetable(stack: &Stack, setup: &Setup) -> Option<String> {
    let Kind::FileSystem(file_system) = &stack.layers.first()?.kind else { return None };
    if !takes_fstrim(&file_system.fstype) {
        return None;
    }
    let timer = setup.timer.as_ref().filter(|_| is_timed(setup))?;
    let next = timer.next.as_ref().map(|next| format!(", next {next}")).unwrap_or_default();
    let last = timer.last.as_ref().map(|last| format!(", last {last}")).unwrap_or_default();
    Some(format!("fstrim.timer is on{next}{last}"))
}

/// The line of fstab that mounts `file_system`.
fn fstab_line<'a>(file_system: &FileSystem, setup: &'a Setup) -> Option<&'a FstabLine> {
    setup.fstab.iter().find(|line| file_system.targets.contains(&line.target))
}

fn who_trims(target: &Layer, file_system: &FileSystem, setup: &Setup) -> Option<Finding> {
    let mount = quoted(&target.name);
    let online = is_online(file_system);
    let timed = is_timed(setup);
    let line = fstab_line(file_system, setup);
    let skipped = line.is_some_and(|line| line.options.iter().any(|option| option == "X-fstrim.notrim"));
    let check = "systemctl list-timers fstrim.timer";
    match (online, timed) {
        // btrfs discards the rest of its free space a little at a time: a trim now and then completes it.
        (true, true) if file_system.fstype != "btrfs" && !skipped => Some(Finding {
            fix: Some(format!("mount -o remount,nodiscard {mount}   # and take discard out of /etc/fstab")),
            cost: Some("Freed blocks then wait for the timer, up to a week.".to_owned()),
            ..finding(
                "double-work",
                Severity::Note,
                target,
                format!(
                    "{mount} is discarded twice: as it frees (mount option discard) and by fstrim.timer."
                ),
                "The timer sends again what the drive already knows; trimtab compare shows which of the two serves the workload better.",
                "findmnt -o TARGET,OPTIONS",
            )
        }),
        (true, _) => None,
        (false, true) if skipped => Some(finding(
            "fstrim-skips",
            Severity::Warning,
            target,
            format!("Nobody trims {mount}: its line in /etc/fstab says X-fstrim.notrim."),
            "The drive is never told what is free there.",
            "fstrim --listed-in /etc/fstab:/proc/self/mountinfo --dry-run --verbose",
        ))
        .map(|found| Finding {
            fix: Some(format!("fstrim {mount}   # or take X-fstrim.notrim out of /etc/fstab")),
            ..found
        }),
        // fstrim.timer reads /proc/self/mountinfo only where /etc/fstab is empty.
        (false, true) if line.is_none() && !setup.fstab.is_empty() => Some(Finding {
            fix: Some(format!(
                "systemctl edit --full fstrim.service   # ExecStart=/sbin/fstrim --all --verbose --quiet-unsupported; or add {mount} to /etc/fstab"
            )),
            ..finding(
                "not-in-fstab",
                Severity::Warning,
                target,
                format!("fstrim.timer passes {mount} by: it goes by /etc/fstab, which doesn't name it."),
                "The drive is never told what is free there.",
                "fstrim --listed-in /etc/fstab:/proc/self/mountinfo --dry-run --verbose",
            )
        }),
        (false, true) => None,
        (false, false) if setup.container => Some(Finding {
            fix: Some(format!("fstrim {mount}   # on the host: {ENABLE}")),
            ..finding(
                "container",
                Severity::Note,
                target,
                format!("Nobody trims {mount} from here: fstrim.timer doesn't start in a container."),
                "The drive learns what is free only from its host.",
                check,
            )
        }),
        (false, false) => Some(Finding {
            fix: Some(match setup.timer {
                Some(_) => ENABLE.to_owned(),
                None => format!("fstrim {mount}   # once a week, by cron; with systemd: {ENABLE}"),
            }),
            cost: Some(
                "A weekly trim sends all free space at once; trimtab compare shows what that costs."
                    .to_owned(),
            ),
            ..finding(
                "nobody-trims",
                Severity::Warning,
                target,
                match setup.timer {
                    Some(_) => format!(
                        "Nobody trims {mount}: it is mounted without discard, and fstrim.timer is off."
                    ),
                    None => format!(
                        "Nobody seems to trim {mount}: it is mounted without discard, and there is no fstrim.timer."
                    ),
                },
                "The way down is open, but nothing is ever sent along it.",
                check,
            )
        }),
    }
}

fn swap(target: &Layer, setup: &Setup) -> Option<Finding> {
    let asked = |line: &FstabLine| {
        line.fstype == "swap" && line.options.iter().any(|option| option.starts_with("discard"))
    };
    if setup.fstab.iter().any(asked) {
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
            "What was swapped out long ago stays live data for the drive. Whether swapon was told otherwise, the kernel doesn't say.",
            "grep swap /etc/fstab",
        )
    })
}

/// dm-crypt that hands discards on now, and won't after the next start.
fn until_restart(layer: &Layer, setup: &Setup) -> Option<Finding> {
    let Kind::DeviceMapper(lines) = &layer.kind else { return None };
    let crypt = lines.iter().find(|line| line.target == "crypt")?;
    let name = layer.label.as_deref().unwrap_or(&layer.name);
    let set_up = setup.crypttab.iter().find(|line| line.name == name)?;
    let by_table = set_up.options.iter().any(|option| option == "discard" || option == "allow-discards");
    let by_header = setup.luks_allows.iter().any(|(device, allows)| device == &layer.name && *allows);
    let by_kernel = setup
        .command_line
        .iter()
        .any(|word| word.starts_with("rd.luks.options=") && word.contains("discard"));
    let now = crypt.parameters.split_whitespace().any(|word| word == "allow_discards");
    if !now || by_table || by_header || by_kernel {
        return None;
    }
    Some(Finding {
        fix: Some(format!("cryptsetup refresh --allow-discards --persistent {}", quoted(name))),
        cost: Some("The same as now: unused blocks can be told from used ones on the raw disk.".to_owned()),
        ..finding(
            "luks-until-restart",
            Severity::Warning,
            layer,
            format!("dm-crypt hands the discards of {name} on only until the next start."),
            "Neither /etc/crypttab nor the LUKS header allows them.",
            "cryptsetup luksDump DEVICE   # Flags: allow-discards",
        )
    })
}

fn is_lvm(layer: &Layer) -> bool {
    matches!(&layer.kind, Kind::DeviceMapper(_))
        && layer.label.as_deref().is_some_and(|label| label.contains('/'))
}

fn removed_volumes(layer: &Layer, setup: &Setup) -> Option<Finding> {
    if setup.lvm_issues_discards == Some(true) {
        return None;
    }
    Some(Finding {
        fix: Some("issue_discards = 1   # in the section devices of /etc/lvm/lvm.conf".to_owned()),
        cost: Some("A volume removed by mistake can't be brought back with vgcfgrestore.".to_owned()),
        ..finding(
            "lvm-keeps-removed",
            Severity::Note,
            layer,
            "LVM doesn't discard the space of volumes that are removed or made smaller.".to_owned(),
            "It stays live data for the drive until another volume discards it.",
            "lvmconfig devices/issue_discards",
        )
    })
}

/// What concerns the machine as a whole.
pub(super) fn of_the_machine(setup: &Setup) -> Vec<Finding> {
    let note = |id: &str, layer: String, message: String, check: &str| Finding {
        id: id.to_owned(),
        severity: Severity::Note,
        layer,
        message,
        why: "It changes what is said of the layers above from what the device says of itself.".to_owned(),
        fix: None,
        cost: None,
        check: check.to_owned(),
    };
    let words = setup.command_line.iter().map(|word| {
        let message = format!("The kernel was started with {word}.");
        note("kernel-command-line", "/proc/cmdline".to_owned(), message, "cat /proc/cmdline")
    });
    let rules = setup.udev_rules.iter().map(|rule| {
        let file = rule.file.display().to_string();
        let message = format!("A udev rule sets how a device is told of free space: {}", rule.line.trim());
        note("udev-rule", file, message, "grep -r provisioning_mode /etc/udev/rules.d /lib/udev/rules.d")
    });
    words.chain(rules).collect()
}
