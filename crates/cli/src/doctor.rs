//! `trimtab doctor`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use trimtab_core::document::DoctorDocument;
use trimtab_core::document::doctor::{Severity, Verdict};
use trimtab_lab::doctor::{ASSUMED_ERASE_BLOCK, Plan, examine};
use trimtab_linux::stack::{Machine, capture};

use crate::{FAILED, FOUND, interrupt, profile};

/// Says whether discards reach the flash, which layer stops them, and what mends it
///
/// Looks at every layer between a mount point, file, device or swap and the hardware. Nothing is
/// written, but for --canary. Exits with 0 where all discards reach the bottom, 4 where something should
/// be mended, and 1 where that could not be told.
#[derive(clap::Args)]
pub struct Args {
    /// Mount points, files, devices or swap; without any, all that is mounted or swapped to
    #[arg(value_name = "PATH|DEV")]
    paths: Vec<PathBuf>,
    /// Look at all that is mounted or swapped to, as without a PATH
    #[arg(long, conflicts_with = "paths")]
    all: bool,
    /// Prove it: write a file, delete it, trim just that, and see what arrives at every layer; needs root
    /// and free space, and leaves nothing behind
    #[arg(long, conflicts_with = "sysfs")]
    canary: bool,
    /// Print JSON (schema trimtab/doctor/1)
    #[arg(long)]
    json: bool,
    /// The drive whose erase block the start of the data is set against: a profile's name or file;
    /// without one, 4 MiB are assumed
    #[arg(long, value_name = "PROFILE")]
    drive: Option<String>,
    /// Look at the machine that was captured into this directory instead of this one
    #[arg(long, value_name = "ROOT")]
    sysfs: Option<PathBuf>,
    /// Also pack what was looked at, for a bug report: names, serial numbers and addresses are replaced
    #[arg(long, value_name = "FILE.tar.gz")]
    capture: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let erase_block = match &args.drive {
        Some(name) => profile::load(name)?.0.geometry.erase_block.value,
        None => ASSUMED_ERASE_BLOCK,
    };
    let plan = Plan {
        machine: args.sysfs.as_deref().map_or_else(|| Ok(Machine::live()), Machine::captured)?,
        paths: args.paths,
        canary: args.canary,
        erase_block,
        invocation: std::env::args().collect(),
    };
    let (document, stacks) = examine(&plan, &interrupt()?)?;
    if let Some(path) = &args.capture {
        capture(&plan.machine, &stacks, path)?;
    }
    let text = match args.json {
        true => serde_json::to_string_pretty(&document)? + "\n",
        false => trimtab_report::doctor::text(&document, crate::colour()),
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    Ok(exit_code(&document))
}

/// 4 where something should be mended, 1 where it can't be told whether something should, else 0.
fn exit_code(document: &DoctorDocument) -> ExitCode {
    let findings = document.targets.iter().flat_map(|target| &target.findings).chain(&document.findings);
    if findings.into_iter().any(|finding| finding.severity != Severity::Note) {
        return ExitCode::from(FOUND);
    }
    match document.targets.iter().any(|target| target.verdict == Verdict::Unknown) {
        true => ExitCode::from(FAILED),
        false => ExitCode::SUCCESS,
    }
}
