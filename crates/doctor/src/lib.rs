//! Examines a storage stack: finds out whether discards reach the flash below a mount point or device, and
//! which layer stops them.
//!
//! [`examine`] takes the facts that [`trimtab_linux::stack`] gathers, judges every layer from the bottom up,
//! and names a fix for each finding; [`verdict_on`] judges one mount, for the service. Both only read. The
//! [`canary`] tests a verdict with a file that is written, deleted and trimmed.

mod alignment;
mod announced;
pub mod canary;
mod complete;
mod crypttab;
mod device;
mod file_system;
mod findings;
mod judge;
mod listing;
mod lossy;
mod maker;
mod mapper;
mod opinion;
mod raid;
mod removed;
mod service;
mod swap;
#[cfg(test)]
mod tests;
mod units;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use trimtab_core::Bytes;
use trimtab_core::document::DoctorDocument;
use trimtab_core::document::doctor::{Canary, DOCTOR_SCHEMA, Target};
use trimtab_core::error::chain;
use trimtab_core::verdict::{Severity, Verdict};
use trimtab_linux::PROCFS;
use trimtab_linux::environment::{EnvironmentError, environment};
use trimtab_linux::mount::Mount;
use trimtab_linux::stack::{self, LayerKind, Machine, ServedMount, Setup, Stack, StackError};

use self::canary::CanaryError;
use self::file_system::Still;
use trimtab_core::interrupt::{Interrupt, Interrupted};

/// The erase block size that is assumed without a profile: a size of today's drives.
pub const ASSUMED_ERASE_BLOCK: Bytes = Bytes(4 << 20);

/// The options of an examination.
#[derive(Debug, Clone)]
pub struct ExamineOptions {
    /// This machine, or a captured one.
    pub machine: Machine,
    /// Mount points, files, devices and swap; empty for all mounted file systems and active swap.
    pub paths: Vec<PathBuf>,
    /// The program that tests the verdict with a canary; see [`canary::apart::send`]. None for no test.
    pub canary: Option<PathBuf>,
    /// The erase block size for checking the alignment of the data.
    pub erase_block: Bytes,
    /// The file systems that the running service knows; `None` if none runs, or on a captured machine.
    pub served: Option<Vec<ServedMount>>,
    /// Whether the service was asked, and none runs.
    pub is_down: bool,
    /// Facts that the caller could not find out, a sentence each.
    pub left_out: Vec<String>,
    /// The command line, for the document.
    pub invocation: Vec<String>,
}

/// Why an examination failed as a whole.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// A path has no stack, or the mounts can't be listed.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The user asked to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// The machine can't be described.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

/// The storage below one mount, and whether discards reach its lowest layer.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedMount {
    /// The layers.
    pub stack: Stack,
    /// Whether discards reach the lowest of them.
    pub verdict: Verdict,
    /// The verdict's reason, in a sentence.
    pub reason: String,
}

/// Judges the storage below `mount` of this machine, without a look at the mounted file system itself.
///
/// # Errors
/// [`StackError`] where its stack can't be found.
pub fn verdict_on(mount: Mount) -> Result<JudgedMount, StackError> {
    let stack = Stack::of_mount(&Machine::live(), mount)?;
    let judged = judge::judge(&stack);
    Ok(JudgedMount { verdict: judged.verdict, reason: judged.reason, stack })
}

/// The result of an examination.
#[derive(Debug)]
pub struct Examined {
    /// The printed document.
    pub document: DoctorDocument,
    /// The examined stacks.
    pub stacks: Vec<Stack>,
    /// The settings of the machine.
    pub setup: Setup,
    /// Whether a target or its canary was skipped.
    pub is_incomplete: bool,
}

/// Examines what `plan` asks for.
///
/// # Errors
/// [`DoctorError`]. Unless a single path was requested, a target without a stack is skipped with a sentence. So
/// is an impossible canary.
pub fn examine(plan: &ExamineOptions, interrupt: &Interrupt) -> Result<Examined, DoctorError> {
    let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let machine = &plan.machine;
    let environment = if machine.is_live() { Some(environment(Path::new(PROCFS))?) } else { None };
    let is_alone = plan.paths.len() == 1;
    let all = if plan.paths.is_empty() { stack::targets(machine)? } else { Vec::new() };
    let mut left_out = Vec::new();
    let (mut asked, mut stacks) = (Vec::new(), Vec::new());
    for path in plan.paths.iter().chain(&all) {
        match Stack::of(machine, path) {
            Ok(stack) => {
                asked.push(path);
                stacks.push(stack);
            }
            Err(error) if is_alone => return Err(error.into()),
            Err(error) => left_out.push(format!("{}: {}", path.display(), chain(&error))),
        }
    }
    let mut is_incomplete = !left_out.is_empty();
    let mut setup = Setup::of(machine, &stacks);
    setup.served = plan.served.clone().or(setup.served);
    setup.is_down |= plan.is_down && setup.own_units.iter().any(|unit| unit == service::OWN_SERVICE);
    left_out.extend(plan.left_out.iter().cloned());
    left_out.extend(setup.left_out.iter().cloned());
    for layer in stacks.iter().flat_map(|stack| &stack.layers) {
        let hidden = hidden(layer).filter(|hidden| !left_out.contains(hidden));
        left_out.extend(hidden);
    }
    let mut targets = Vec::new();
    for (asked, stack) in asked.iter().zip(&stacks) {
        interrupt.check()?;
        let mut target = diagnose(stack, &setup, plan.erase_block);
        target.asked = asked.display().to_string();
        if let Some(program) = &plan.canary {
            match canary::apart::send(program, asked, stack, interrupt) {
                Ok(canary) => {
                    is_incomplete |= canary.verdict == Verdict::Unknown;
                    prove(&mut target, canary);
                }
                Err(CanaryError::Interrupted(interrupted)) => return Err(interrupted.into()),
                Err(error) => {
                    // Swap has no file system: that is no failure unless the user named it.
                    is_incomplete |=
                        !plan.paths.is_empty() || !matches!(error, CanaryError::NoFileSystem { .. });
                    left_out.push(format!("no proof: {}", chain(&error)));
                }
            }
        }
        targets.push(target);
    }
    let document = DoctorDocument {
        schema: DOCTOR_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: plan.invocation.clone(),
        started,
        environment,
        verdict: targets.iter().map(|target| target.verdict).max(),
        targets,
        findings: service::of_the_machine(&setup),
        left_out,
    };
    Ok(Examined { document, stacks, setup, is_incomplete })
}

/// Returns a sentence on a loop device whose file this process may not examine.
fn hidden(layer: &stack::Layer) -> Option<String> {
    match &layer.kind {
        LayerKind::Loop { file } if layer.below.is_empty() => Some(format!(
            "cannot look at what is below {}: its file {} is out of reach; run as root, where it was attached",
            layer.name,
            file.display()
        )),
        _ => None,
    }
}

/// Judges one target from the facts.
fn diagnose(stack: &Stack, setup: &Setup, erase_block: Bytes) -> Target {
    let mut judged = judge::judge(stack);
    if let (Some(top), Some(timetable)) = (judged.layers.first_mut(), service::timetable(stack, setup)) {
        top.reason = format!("{}; {timetable}", top.reason);
    }
    judged.findings.extend(service::findings(stack, setup, judged.verdict));
    judged.findings.extend(alignment::findings(stack, erase_block));
    judged.findings.retain(|finding| !judged.aside.contains(&finding.layer));
    for finding in &mut judged.findings {
        complete::reload_above(finding, stack);
        complete::name_who_forced(finding, setup);
    }
    for finding in judged.findings.iter_mut().filter(|finding| finding.id == findings::mapped::LUKS) {
        crypttab::compare_with_crypttab(finding, stack, setup);
    }
    lossy::warn(&mut judged.findings, stack, setup);
    let top = stack.layers.first();
    match top.and_then(file_system::still) {
        Some(Still::ForGood) => judged.findings.clear(),
        Some(Still::NowReadOnly) => {
            judged.findings.iter_mut().for_each(|finding| finding.severity = Severity::Note);
        }
        None => {}
    }
    if top.is_some_and(|top| top.kind == LayerKind::Swap) {
        judged.findings.iter_mut().for_each(|finding| swap::adapt(finding, stack));
    }
    // Where the file system below is trimmed anyway, holes only arrive later.
    for finding in judged.findings.iter_mut().filter(|finding| finding.id == findings::NESTED) {
        if service::has_trimmer(stack, &finding.layer, setup) {
            finding.severity = Severity::Note;
        }
    }
    judged.findings.sort_by_key(|finding| finding.severity);
    let target = top.map(stack::Layer::path).unwrap_or_default();
    Target {
        asked: target.clone(),
        target,
        fs: top.and_then(|top| match &top.kind {
            LayerKind::FileSystem(file_system) => Some(file_system.fstype.clone()),
            LayerKind::Swap => Some("swap".to_owned()),
            _ => None,
        }),
        verdict: judged.verdict,
        reason: judged.reason,
        layers: judged.layers,
        findings: judged.findings,
        canary: None,
    }
}

/// Combines the canary with the verdict from the facts. One large file that arrives doesn't prove that small or
/// delayed discards do, so it never improves a partial verdict.
fn prove(target: &mut Target, canary: Canary) {
    let counts = match canary.verdict {
        Verdict::Unknown => false,
        Verdict::Reaches => target.verdict != Verdict::Partial,
        Verdict::Blocked | Verdict::Partial => true,
    };
    if counts && canary.verdict != target.verdict {
        if target.verdict != Verdict::Unknown {
            target.findings.push(findings::disproved(target, &canary));
            target.findings.sort_by_key(|finding| finding.severity);
        }
        target.verdict = canary.verdict;
        target.reason.clone_from(&canary.reason);
    }
    if canary.verdict == Verdict::Reaches {
        // It takes the command.
        target.findings.retain(|finding| finding.id != findings::USB_WRITE_SAME);
    }
    if target.verdict == Verdict::Blocked {
        // More discards would not arrive either.
        target.findings.retain(|finding| !service::ON_SENDERS.contains(&finding.id.as_str()));
    }
    target.canary = Some(canary);
}
