//! Finds out which services and settings issue the discards of a file system or swap, and what they miss.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use trimtab_core::shell::quoted;
use trimtab_core::verdict::{Finding, Severity, Verdict};
use trimtab_linux::mount::discard_option;
use trimtab_linux::stack::{CronTrim, FileSystem, Layer, LayerKind, ServedMount, Setup, Stack, Timer};

use super::crypttab::until_restart;
use super::file_system::{is_online, takes_fstrim};
use super::listing::{Listing, by_fstrim, by_lists, by_own_timer, has_option};
use super::removed;
use super::swap::{self, swap_option};
use super::units::{coarse_layer, online_only};

pub(super) const FSTRIM_TIMER: &str = "fstrim.timer";
/// Trimtab's timer, which trims the same file systems as fstrim's.
const OWN_TIMER: &str = "trimtab-trim.timer";
/// Trimtab's service.
pub(super) const OWN_SERVICE: &str = "trimtab.service";
pub(super) const ENABLE: &str = "systemctl enable --now fstrim.timer";

pub(super) fn finding(
    id: &str,
    severity: Severity,
    layer: &Layer,
    message: String,
    why: &str,
    check: &str,
) -> Finding {
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

/// The findings on who sends discards, which suppose that these can arrive.
pub(super) const ON_SENDERS: [&str; 10] = [
    "double-work",
    "fstrim-hides-home",
    "fstrim-read-only",
    "fstrim-skips",
    "nobody-trims",
    "not-in-fstab",
    "online-only",
    "swap-no-discard",
    "timer-not-in-container",
    "fstrim-trims-nothing",
];

/// Returns the findings on a machine's services and files for one stack, whose discards have this `verdict`.
pub(super) fn findings(stack: &Stack, setup: &Setup, verdict: Verdict) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_overlay =
        |layer: &&Layer| matches!(&layer.kind, LayerKind::FileSystem(found) if found.fstype == "overlay");
    let Some(target) = stack.layers.iter().find(|layer| !is_overlay(layer)) else { return findings };
    match &target.kind {
        // If discards are blocked, it doesn't matter who sends them.
        _ if matches!(verdict, Verdict::Blocked) => {}
        LayerKind::FileSystem(file_system) if is_to_be_trimmed(stack, target, file_system) => {
            findings.extend(who_trims(stack, target, file_system, setup));
        }
        LayerKind::Swap if !is_in_memory(stack) => {
            findings.extend(swap::undiscarded(target, setup));
        }
        _ => {}
    }
    findings.extend(stack.layers.iter().filter_map(|layer| until_restart(layer, setup)));
    findings.extend(removed::volumes(stack, setup));
    findings
}

/// Returns true if the layer `target`, a file system, needs fstrim or a mount option.
fn is_to_be_trimmed(stack: &Stack, target: &Layer, file_system: &FileSystem) -> bool {
    let is_zoned = target.below.iter().any(|below| stack.layers[below.layer].zoned);
    takes_fstrim(&file_system.fstype) && !file_system.writable.is_empty() && !target.read_only && !is_zoned
}

/// Returns true if swapped data stays in memory, compressed.
fn is_in_memory(stack: &Stack) -> bool {
    stack.layers.iter().any(|layer| layer.kind == LayerKind::Zram)
}

/// Returns whether fstrim.timer is on. It and trimtab's timer stop each other, and fstrim's counts only while
/// it waits for its time.
fn is_timed(setup: &Setup) -> bool {
    let is_stopped = || setup.own_units.iter().any(|unit| unit == OWN_TIMER);
    let is_on = |timer: &Timer| timer.active || timer.enabled && !is_stopped();
    setup.timer.as_ref().is_some_and(is_on) && !setup.container
}

/// Describes in a clause who trims and when, or the options of swap in /etc/fstab; `None` if neither applies to
/// `stack`.
pub(super) fn timetable(stack: &Stack, setup: &Setup) -> Option<String> {
    let target = stack.layers.first()?;
    let file_system = match &target.kind {
        LayerKind::FileSystem(file_system) if is_to_be_trimmed(stack, target, file_system) => file_system,
        LayerKind::Swap if !is_in_memory(stack) => return Some(swap_option(setup)),
        _ => return None,
    };
    let mut clauses = Vec::new();
    if let Some(timer) = setup.timer.as_ref().filter(|_| is_timed(setup)) {
        let next = timer.next.as_ref().map(|next| format!(", next {next}")).unwrap_or_default();
        let last = timer.last.as_ref().map(|last| format!(", last {last}")).unwrap_or_default();
        let passes = match by_fstrim(file_system, setup) {
            Listing::Trims => "",
            _ => " and passes it by",
        };
        clauses.push(format!("{FSTRIM_TIMER} is on{passes}{next}{last}"));
    }
    let others = trimmers(file_system, setup).into_iter().filter(|trimmer| trimmer.name != FSTRIM_TIMER);
    clauses.extend(others.map(|trimmer| format!("{} trims it", trimmer.name)));
    (!clauses.is_empty()).then(|| clauses.join("; "))
}

/// Returns true if a service or cron job trims the file system that is the layer named `name` of `stack`.
pub(super) fn has_trimmer(stack: &Stack, name: &str, setup: &Setup) -> bool {
    stack.layers.iter().any(|layer| match &layer.kind {
        LayerKind::FileSystem(found) => layer.name == name && !trimmers(found, setup).is_empty(),
        _ => false,
    })
}

/// A service or cron job that trims a file system.
pub(super) struct Trimmer {
    pub(super) name: String,
    /// The command that turns it off.
    pub(super) off: String,
    /// Whether it is trimtab's service.
    is_service: bool,
}

impl Trimmer {
    /// Whether it is trimtab's service or timer.
    pub(super) fn is_own(&self) -> bool {
        self.is_service || self.name == OWN_TIMER
    }
}

/// Returns all trimmers of `file_system`; the one that is best kept comes last.
pub(super) fn trimmers(file_system: &FileSystem, setup: &Setup) -> Vec<Trimmer> {
    let unit = |name: &str| Trimmer {
        name: name.to_owned(),
        off: format!("systemctl disable --now {name}"),
        is_service: name == OWN_SERVICE,
    };
    let by_timer = is_timed(setup) && by_fstrim(file_system, setup) == Listing::Trims;
    let by_own_timer = by_own_timer(file_system, setup) == Listing::Trims;
    let by_cron =
        setup.cron.iter().filter(|command| cron_trims(command, file_system, setup)).map(|command| Trimmer {
            name: format!("cron ({})", command.file.display()),
            off: cron_off(&command.file),
            is_service: false,
        });
    // The running service knows what it trims; a unit that is enabled only starts it.
    let is_own = |name: &&str| match *name {
        OWN_TIMER => by_own_timer,
        _ => setup.served.is_none() && !setup.is_down,
    };
    let own = own_units(setup).filter(is_own).map(unit);
    let served =
        is_served(file_system, setup).then(|| match setup.own_units.contains(&OWN_SERVICE.to_owned()) {
            true => unit(OWN_SERVICE),
            false => Trimmer {
                name: "trimtab daemon".to_owned(),
                off: "# end trimtab daemon".to_owned(),
                is_service: true,
            },
        });
    by_timer.then(|| unit(FSTRIM_TIMER)).into_iter().chain(by_cron).chain(own).chain(served).collect()
}

/// Returns the command that stops cron from trimming with `file`: it comments out a line of a table, or
/// disables a whole script, because removing a line might break it.
fn cron_off(file: &Path) -> String {
    let name = quoted(file.display());
    if file.starts_with("/etc/cron.d") || file == Path::new("/etc/crontab") {
        format!("sed -i '/fstrim\\|trimtab trim/s/^/# /' {name}")
    } else {
        format!("chmod -x {name}   # or take out of it what trims")
    }
}

/// Returns whether the running service trims `file_system`.
fn is_served(file_system: &FileSystem, setup: &Setup) -> bool {
    let is_it = |served: &ServedMount| served.is_trimmed && file_system.targets.contains(&served.mount);
    setup.served.iter().flatten().any(is_it)
}

/// Returns the running units of trimtab, none in a container; the service comes last. While fstrim.timer waits for its
/// time, trimtab's timer is stopped.
fn own_units(setup: &Setup) -> impl Iterator<Item = &str> {
    let is_stopped = |name: &str| name == OWN_TIMER && setup.timer.as_ref().is_some_and(|timer| timer.active);
    let units = setup.own_units.iter().filter(|_| !setup.container).rev().map(String::as_str);
    units.filter(move |name| !is_stopped(name))
}

/// Returns true if a command of cron may trim `file_system`.
fn cron_trims(command: &CronTrim, file_system: &FileSystem, setup: &Setup) -> bool {
    let has = |letter, name| has_option(&command.words, letter, name);
    let names_it = |word: &String| {
        let path = Path::new(word.trim_matches(['"', '\'']));
        word.contains('$') || file_system.targets.iter().any(|target| target == path)
    };
    has('a', "--all")
        || (has('A', "--fstab") || has('I', "--listed-in")) && by_lists(file_system, setup) == Listing::Trims
        || command.words.iter().any(names_it)
}

fn who_trims(stack: &Stack, target: &Layer, file_system: &FileSystem, setup: &Setup) -> Option<Finding> {
    let trimmers = trimmers(file_system, setup);
    match (is_online(file_system), trimmers.as_slice()) {
        (true, []) => online_only(stack, target, setup),
        (false, [_]) => None,
        // With discard=async, btrfs discards the rest of its free space slowly: an occasional trim completes it.
        (true, [_]) if discard_option(&file_system.options) == Some("discard=async") => None,
        // A trim sends again what was freed in pieces that were too small.
        (true, [_]) if coarse_layer(stack).is_some() => None,
        (online, [first, ..]) => Some(double_work(target, online, first, &trimmers)),
        (false, []) if is_in_memory(stack) => Some(keeps_memory(target)),
        (false, []) => Some(nobody(target, file_system, setup)),
    }
}

/// A file system that is discarded by more than one mechanism.
fn double_work(target: &Layer, online: bool, first: &Trimmer, trimmers: &[Trimmer]) -> Finding {
    let mount = quoted(&target.name);
    let frees = online.then_some("as it frees (mount option discard)".to_owned());
    let names = frees.into_iter().chain(trimmers.iter().map(|trimmer| format!("by {}", trimmer.name)));
    let names = names.collect::<Vec<_>>().join(" and ");
    let (fix, cost) = if online {
        (
            format!("mount -o remount,nodiscard {mount}   # and take discard out of /etc/fstab"),
            Some(match trimmers.last().is_some_and(|kept| kept.is_service) {
                true => "Freed blocks then wait until trimtab's service finds time for them.".to_owned(),
                false => {
                    "Freed blocks then wait for the next trim: with fstrim.timer, up to a week.".to_owned()
                }
            }),
        )
    } else {
        (first.off.clone(), None)
    };
    Finding {
        fix: Some(fix),
        cost,
        ..finding(
            "double-work",
            Severity::Note,
            target,
            format!("{mount} is discarded more than once: {names}."),
            "What comes later sends again what the drive already knows; trimtab compare shows what serves the workload best.",
            "findmnt -o TARGET,OPTIONS; systemctl list-timers; systemctl status trimtab.service",
        )
    }
}

/// A file system in compressed memory, which should free it at once.
fn keeps_memory(target: &Layer) -> Finding {
    let mount = quoted(&target.name);
    Finding {
        fix: Some(format!("mount -o remount,discard {mount}   # and discard wherever it is mounted from")),
        ..finding(
            "nobody-trims",
            Severity::Warning,
            target,
            format!(
                "Nobody trims {mount}, and it is in compressed memory (zram): deleted files still take memory."
            ),
            "A discard there takes hardly any time; a weekly trim would hold the memory for days.",
            "zramctl",
        )
    }
}

/// A file system that is never trimmed.
fn nobody(target: &Layer, file_system: &FileSystem, setup: &Setup) -> Finding {
    if is_timed(setup) {
        return passed_by(FSTRIM_TIMER, by_fstrim(file_system, setup), target, file_system);
    }
    if own_units(setup).any(|name| name == OWN_TIMER) {
        return passed_by(OWN_TIMER, by_own_timer(file_system, setup), target, file_system);
    }
    let mount = quoted(best_mount(target, file_system));
    if setup.container {
        return Finding {
            fix: Some(format!(
                "{ENABLE}   # on the host, for what is mounted there; for what only the container mounts, also there: nsenter \
                 --target PID --mount fstrim {mount}, or pct fstrim ID on Proxmox"
            )),
            ..finding(
                "timer-not-in-container",
                Severity::Note,
                target,
                format!("Nobody trims {mount} from here: fstrim.timer doesn't start in a container."),
                "The drive learns what is free only from its host. Most containers may not trim (EPERM).",
                "systemctl list-timers fstrim.timer   # on the host",
            )
        };
    }
    let (who, service) = match &setup.timer {
        Some(_) => ("Nobody trims", "fstrim.timer is off"),
        None => ("Nobody seems to trim", "there is no fstrim.timer"),
    };
    let left = if setup.served.is_some() {
        ", and trimtab's service leaves it (trimtab status says why)"
    } else if setup.is_down {
        ", and trimtab.service is enabled, but does not run (systemctl status trimtab says why)"
    } else {
        ""
    };
    Finding {
        fix: Some(match setup.timer {
            _ if setup.is_down => "systemctl start trimtab".to_owned(),
            Some(_) => ENABLE.to_owned(),
            None => format!("fstrim {mount}   # once a week, by cron; with systemd: {ENABLE}"),
        }),
        cost: Some(
            "A weekly trim sends all free space at once; trimtab compare shows what that costs.".to_owned(),
        ),
        ..finding(
            "nobody-trims",
            Severity::Warning,
            target,
            format!("{who} {mount}: it is mounted without discard, and {service}{left}."),
            "The way down is open, but nothing is ever sent along it.",
            "systemctl list-timers fstrim.timer",
        )
    }
}

/// A file system that `timer` passes by, although it trims others.
fn passed_by(timer: &str, listing: Listing, target: &Layer, file_system: &FileSystem) -> Finding {
    let mount = quoted(best_mount(target, file_system));
    let unit = timer.replace(".timer", ".service");
    let all =
        format!("systemctl edit --full {unit}   # in ExecStart --all in place of --listed-in and its files");
    let (id, message, fix) = match listing {
        Listing::Excluded => (
            "fstrim-skips",
            format!("Nobody trims {mount}: its line in /etc/fstab says X-fstrim.notrim."),
            format!("fstrim {mount}   # or take X-fstrim.notrim out of /etc/fstab"),
        ),
        Listing::ReadOnly(listed) => (
            "fstrim-read-only",
            format!(
                "{timer} passes {mount} by: /etc/fstab names it only as {}, where it is mounted read-only.",
                quoted(listed.display())
            ),
            all,
        ),
        Listing::Hidden => (
            "fstrim-hides-home",
            format!("{timer} passes {mount} by: {unit} can't see it (ProtectHome=yes)."),
            format!("systemctl edit {unit}   # [Service], and below it ProtectHome=read-only"),
        ),
        Listing::NoList => (
            "fstrim-trims-nothing",
            format!("{timer} trims nothing: {unit} goes by /etc/fstab, which has no lines."),
            all.replace("--listed-in and its files", "--fstab"),
        ),
        Listing::Absent | Listing::Trims => (
            "not-in-fstab",
            format!("{timer} passes {mount} by: it goes by /etc/fstab, which doesn't name it."),
            format!("{all}; or add {mount} to /etc/fstab"),
        ),
    };
    Finding {
        fix: Some(fix),
        ..finding(
            id,
            Severity::Warning,
            target,
            message,
            "The drive is never told what is free there.",
            "fstrim --listed-in /etc/fstab:/proc/self/mountinfo --dry-run --verbose",
        )
    }
}

/// Returns the mount point at which `file_system` can be trimmed: the one of `target` if it can be written to there.
fn best_mount<'a>(target: &'a Layer, file_system: &'a FileSystem) -> Cow<'a, str> {
    let is_writable = |writable: &PathBuf| writable == Path::new(&target.name);
    match file_system.writable.first() {
        Some(first) if !file_system.writable.iter().any(is_writable) => first.to_string_lossy(),
        _ => target.name.as_str().into(),
    }
}

/// The findings about the machine as a whole.
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
    let failed = setup.fstrim_service.iter().filter(|service| is_timed(setup) && service.result != "success");
    let failed = failed.map(|service| Finding {
        severity: Severity::Warning,
        why: "File systems that it did not reach keep what was deleted as live data on their drives."
            .to_owned(),
        ..note(
            "fstrim-fails",
            "fstrim.service".to_owned(),
            format!("fstrim.service failed when fstrim.timer last started it ({}).", service.result),
            "journalctl -u fstrim.service",
        )
    });
    words.chain(rules).chain(failed).collect()
}
