//! `trimtab doctor`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use trimtab_core::document::doctor::{Severity, Verdict};
use trimtab_doctor::{ASSUMED_ERASE_BLOCK, Examined, Plan, examine};
use trimtab_linux::file::{Draft, Output};
use trimtab_linux::stack::{Machine, Stack, capture};

use crate::{FAILED, FOUND, complain, interrupt, profile};

/// The directory in a capture whose file's name gives it none.
const CAPTURE: &str = "trimtab-capture";

/// Says whether discards reach the flash, which layer stops them, and what mends it
///
/// Looks at every layer between a mount point, file, device or swap and the hardware. Nothing is
/// written, but for --canary. Exits with 4 where something should be mended; else with 1 where a target,
/// or the proof of one, was left out, or could not be told of; else with 0: also where discards that
/// would gain nothing, as those of a rotating or read-only disk, are stopped.
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
    /// Look at the machine whose capture was unpacked into this directory instead of this one; without a
    /// PATH, at what it was captured for
    #[arg(long, value_name = "ROOT")]
    sysfs: Option<PathBuf>,
    /// Also pack what was looked at into a new file, for a bug report: names, serial numbers and addresses
    /// are replaced
    #[arg(long, value_name = "FILE.tar.gz")]
    capture: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let erase_block = match &args.drive {
        Some(name) => profile::load(name)?.0.geometry.erase_block.value,
        None => ASSUMED_ERASE_BLOCK,
    };
    let archive = args.capture.as_deref().map(Archive::create).transpose()?;
    let plan = Plan {
        machine: args.sysfs.as_deref().map_or_else(|| Ok(Machine::live()), captured)?,
        paths: args.paths,
        canary: args.canary,
        erase_block,
        invocation: std::env::args().collect(),
    };
    let examined = examine(&plan, &interrupt()?)?;
    if let Some(archive) = archive {
        archive.keep(&plan.machine, &examined.stacks)?;
    }
    let document = &examined.document;
    let mut text = match args.json {
        true => serde_json::to_string_pretty(document)? + "\n",
        false => trimtab_report::doctor::text(document, crate::colour()),
    };
    if let Some(file) = args.capture.filter(|_| !args.json) {
        let without = if args.canary { " (what the canary proved isn't in it)" } else { "" };
        text += &format!("\nCapture: {}{without}\n", file.display());
    }
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    if document.targets.is_empty() && !examined.is_incomplete {
        complain(&"nothing to look at: no file system is mounted from a block device, and no swap is active");
    }
    Ok(exit_code(&examined))
}

/// The machine whose capture was unpacked into the directory `root`.
fn captured(root: &Path) -> Result<Machine> {
    if root.is_file() {
        bail!("{} is a file; unpack it, and name the directory that it was unpacked into", root.display());
    }
    let machine = Machine::captured(root)?;
    if !machine.procfs().is_dir() {
        bail!("{} holds no capture; name the directory that one was unpacked into", root.display());
    }
    Ok(machine)
}

/// The file of a capture, which has no name until it is whole.
struct Archive<'a> {
    path: &'a Path,
    draft: Draft,
}

impl<'a> Archive<'a> {
    /// Where nothing is yet.
    fn create(path: &'a Path) -> Result<Self> {
        if path.symlink_metadata().is_ok() {
            bail!("cannot write {}: there is something of that name; name another file", path.display());
        }
        Ok(Self { path, draft: Output::open(path)?.draft()? })
    }

    /// Captures `stacks` of `machine`, in a directory that is called as the file is.
    fn keep(self, machine: &Machine, stacks: &[Stack]) -> Result<()> {
        let name = self.path.file_name().and_then(|name| name.to_str()?.split('.').next());
        let top = name.filter(|name| !name.is_empty()).unwrap_or(CAPTURE);
        capture(machine, stacks, top.as_ref(), self.draft.file())
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(self.draft.create()?)
    }
}

/// 4 where something should be mended, 1 where it can't be told whether something should, else 0.
fn exit_code(examined: &Examined) -> ExitCode {
    let Examined { document, is_incomplete, .. } = examined;
    let findings = document.targets.iter().flat_map(|target| &target.findings).chain(&document.findings);
    if findings.into_iter().any(|finding| finding.severity != Severity::Note) {
        return ExitCode::from(FOUND);
    }
    match *is_incomplete || document.targets.iter().any(|target| target.verdict == Verdict::Unknown) {
        true => ExitCode::from(FAILED),
        false => ExitCode::SUCCESS,
    }
}
