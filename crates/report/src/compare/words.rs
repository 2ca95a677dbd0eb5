//! The title, clock and pauses of a comparison in words.

use trimtab_core::document::{
    Clock, CompareDocument, DriveDescription, Engine, Filling, Run, START, StepKind,
};
use trimtab_core::policy::PolicyChoice;
use trimtab_core::profile::Profile;

use super::reads;
use super::sane::sane;
use crate::number::{compact, count, significant, times};

/// Returns the title, in one line.
pub fn title(document: &CompareDocument) -> String {
    let place = match &document.drive {
        Some(drive) => {
            let full = document.filling.filter(|filling| filling.percent > 0);
            let full = full.map_or(String::new(), |filling| format!(", {} % full", filling.percent));
            format!("an emulated {} ({}{full})", drive.profile, drive.size)
        }
        None => "a directory of this machine".to_owned(),
    };
    let writers = with_writers(document).map_or(String::new(), |writers| format!(" {writers}"));
    format!("compare: {}{writers} on {place}", document.workload.name)
}

/// Returns `with 8 writers`; none where there is one writer.
pub fn with_writers(document: &CompareDocument) -> Option<String> {
    (document.writers > 1).then(|| format!("with {} writers", document.writers))
}

/// Describes the space that the workload has, in a sentence; none where it has the whole file system.
pub fn space(document: &CompareDocument) -> Option<String> {
    let Filling { percent, room } = document.filling?;
    let room = format!("The workload uses {room} at most.");
    Some(if percent == 0 {
        room
    } else {
        format!(
            "Files that are allocated and not written take {percent} %, with pieces of free space between them. {room}"
        )
    })
}

/// Describes the writers in a sentence; none where there is one writer.
pub fn writers(document: &CompareDocument) -> Option<String> {
    let writers = document.writers;
    (writers > 1)
        .then(|| format!("{writers} at once. Each does its part of the workload in a directory of its own."))
}

/// Says that the advice is for one writer, where there could be several.
pub fn one_writer(document: &CompareDocument) -> Option<String> {
    (document.writers == 1 && document.workload.divisible)
        .then(|| "Measured with one writer: --writers N runs the workload with N at once.".to_owned())
}

/// The clock that all times are read from, in a sentence.
pub fn clock(document: &CompareDocument) -> String {
    match (&document.clock, &document.drive) {
        (Clock::Virtual { kernel, engine }, _) => virtual_clock(kernel, *engine),
        (Clock::Real { .. }, None) => {
            format!("Real clock of this machine (kernel {}).", document.environment.kernel)
        }
        (Clock::Real { speed }, Some(_)) if *speed == 1.0 => {
            format!("Real clock of this machine (kernel {}).", document.environment.kernel)
        }
        (Clock::Real { speed }, Some(_)) => format!(
            "Real clock of this machine (kernel {}), {} times real speed: times are those of the drive.",
            document.environment.kernel,
            short(*speed)
        ),
    }
}

fn virtual_clock(kernel: &str, engine: Engine) -> String {
    match engine {
        Engine::Qemu => {
            format!("Virtual time: the clock of a guest with kernel {kernel} in QEMU, which skips idle time.")
        }
        Engine::Uml { processor } => format!(
            "Virtual time, processor at fixed cost: the clock of a guest with kernel {kernel} in User Mode Linux. It \
             skips idle time, counts a fixed time for the kernel's work (ns: {processor}), and none for what programs \
             compute."
        ),
    }
}

/// The length of the pauses, for the end of a sentence: `without a pause`, `with pauses of 1 min`; none
/// for a workload that names no pauses.
pub fn pauses(document: &CompareDocument, runs: &[&Run], idle_s: f64) -> Option<String> {
    let lengths: Vec<f64> = runs.iter().map(|run| run.idle_s).collect();
    if !document.workload.has_pauses && lengths.iter().all(|length| *length == 0.0) {
        return None;
    }
    if idle_s == 0.0 {
        return Some("without a pause".to_owned());
    }
    let is_named = |length: f64| (length - idle_s).abs() <= 0.01 * idle_s;
    let named = |run: &&Run| {
        let pauses = run.steps.iter().filter(|step| step.kind == StepKind::Pause && step.name != START);
        pauses.filter(|step| is_named(step.length_s)).count()
    };
    let several = runs.iter().map(named).max().is_some_and(|pauses| pauses > 1);
    let pauses = if several { "pauses" } else { "a pause" };
    Some(format!("with {pauses} of {}", span(idle_s)))
}

/// A length of time as people choose it: `500 ms`, `20 s`, `1 min`, `1 h 30 min`.
pub fn span(seconds: f64) -> String {
    const UNITS: [(f64, &str); 4] = [(86_400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")];
    match sane(seconds) {
        None => return "an impossible length".to_owned(),
        Some(..1.0) => return format!("{} ms", short(seconds * 1e3)),
        Some(1e9..) => return format!("{} s", compact(seconds)),
        Some(_) => {}
    }
    let (mut rest, mut parts) = (seconds, Vec::new());
    for (unit, name) in UNITS {
        let whole = if name == "s" { rest } else { (rest / unit).floor() * unit };
        if whole > 0.0 {
            parts.push(format!("{} {name}", short(whole / unit)));
        }
        rest -= whole;
    }
    parts.join(" ")
}

/// A time as a sentence names it, no finer than the clock: `14.3 s`, `20 ms`, `less than 10 ms`.
pub fn time(seconds: f64, resolution_s: f64) -> String {
    if seconds < resolution_s {
        return format!("less than {}", span(resolution_s));
    }
    match seconds {
        ..1e-3 => format!("{} µs", significant(seconds * 1e6)),
        ..1.0 => format!("{:.0} ms", (seconds * 1e3).max(1.0)),
        _ => format!("{} s", compact(seconds)),
    }
}

/// A multiple of something in at most eight characters.
pub fn multiple(ratio: f64) -> String {
    match ratio {
        ..0.001 => "<0.001×".to_owned(),
        0.001..1e5 => times(ratio),
        _ => format!("{}×", compact(ratio)),
    }
}

/// How the columns of the tables are to be read.
pub fn legend(document: &CompareDocument) -> String {
    let mut steps = document.runs.iter().flat_map(|run| &run.steps);
    let sleeps = steps.any(|step| step.kind == StepKind::Activity && step.idle_s > 0.0);
    let mut legend = if sleeps {
        "Waited: the time of the command but for its sleeps, in which none of its processes runs or waits for \
                 the drive."
            .to_owned()
    } else {
        "Waited: the time of all steps but pauses.".to_owned()
    };
    if document.writers > 1 {
        legend += " A step ends when the last writer has done its part.";
    }
    let workload = &document.workload;
    if !matches!(workload.delete_steps.as_slice(), [] | [_])
        || workload.delete_steps.iter().any(|name| name != "delete")
    {
        legend += &format!(" Delete: {}.", listed(workload.delete_steps.clone()));
    }
    if let Some(write) = workload.write_step.as_ref().filter(|name| *name != "write") {
        legend += &format!(" Write: {write}.");
    }
    if let Some(interval) = document.probe_interval_s {
        legend += &format!(
            " Reads: a probe reads 4 KiB of a live file every {}, in pauses too. p99: that of the reads in steps or \
             in pauses, whichever is worse, where there are {} reads or more; max: the longest read of all.",
            span(interval),
            count(reads::LEAST)
        );
    }
    if document.drive.is_some() {
        legend += " Stale: held by the drive at the end, and no longer used.";
    }
    let starts = document.runs.iter().flat_map(|run| &run.steps).find(|step| step.name == START);
    if let Some(start) = starts {
        let drive = document.drive.as_ref().map_or(String::new(), |drive| {
            let state = if is_aged(drive) {
                "a drive that was overwritten at random and"
            } else {
                "a used drive that"
            };
            format!(" on {state} holds data everywhere,")
        });
        legend += &format!(
            " Every run starts{drive} with a pause of {} in which batched and smart trim what the file system does \
             not use.",
            span(start.length_s.round())
        );
    }
    legend
}

/// Whether a drive was overwritten at random before its first command.
fn is_aged(drive: &DriveDescription) -> bool {
    Profile::parse(&drive.profile_toml, &drive.profile).is_ok_and(|profile| profile.aging.is_some())
}

/// Returns the drive profile that the service used, if it ran.
pub fn service(document: &CompareDocument) -> Option<String> {
    use trimtab_core::policy::PolicyKind::Smart;
    if !document.runs.iter().any(|run| run.policy.kind() == Smart) {
        return None;
    }
    let is_own = |profile: &String| document.drive.as_ref().is_some_and(|drive| drive.profile == *profile);
    Some(match &document.smart_profile {
        Some(profile) if is_own(profile) => {
            "smart is the service itself, which was given the drive's own profile.".to_owned()
        }
        Some(profile) => format!(
            "smart is the service itself. As on a real machine, it sees the drive's interface but not what the \
             drive is, and begins with the profile {profile}."
        ),
        None => "smart is the service itself, which chose its drive profile.".to_owned(),
    })
}

/// All policies of a comparison, in the order they first ran.
pub fn policies(document: &CompareDocument) -> Vec<PolicyChoice> {
    let mut policies = Vec::new();
    for run in &document.runs {
        if !policies.contains(&run.policy) {
            policies.push(run.policy);
        }
    }
    policies
}

/// `a, b and c`.
pub fn listed(mut phrases: Vec<String>) -> String {
    let Some(last) = phrases.pop() else { return String::new() };
    if phrases.is_empty() { last } else { format!("{} and {last}", phrases.join(", ")) }
}

/// A figure without trailing zeros.
fn short(value: f64) -> String {
    let text = if (0.0..1e4).contains(&value) { significant(value) } else { compact(value) };
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::Bytes;
    use trimtab_core::profile::builtin_text;

    use super::*;

    #[test]
    fn spans_are_short() {
        let spans = [0.0, 0.2, 0.5, 1.0, 20.0, 60.0, 90.5, 3600.0, 5400.0, 90_061.0, -1.0];
        assert_eq!(
            spans.map(span),
            [
                "0 ms",
                "200 ms",
                "500 ms",
                "1 s",
                "20 s",
                "1 min",
                "1 min 30.5 s",
                "1 h",
                "1 h 30 min",
                "1 d 1 h 1 min 1 s",
                "an impossible length",
            ]
        );
    }

    #[test]
    fn aged_drives_are_told_from_filled_ones() {
        let drive = |aging: &str| DriveDescription {
            profile: "nvme-tlc".to_owned(),
            model: String::new(),
            size: Bytes::GIB,
            effective_spare: 0.05,
            erase_block: Bytes::MIB,
            profile_toml: format!("{}{aging}", builtin_text("nvme-tlc").unwrap()),
        };
        assert!(!is_aged(&drive("")));
        assert!(is_aged(&drive("[aging]\nrandom_writes = { value = 3.0, source = \"a test\" }\n")));
    }

    #[test]
    fn times_are_no_finer_than_the_clock() {
        let times = [0.0, 0.004, 0.0204, 14.32].map(|seconds| time(seconds, 0.01));
        assert_eq!(times, ["less than 10 ms", "less than 10 ms", "20 ms", "14.3 s"]);
    }
}
