//! `trimtab doctor`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use trimtab_core::document::status::{FileSystemStatus, State};
use trimtab_core::error::chain;
use trimtab_core::verdict::{Severity, Verdict};
use trimtab_doctor::canary::apart;
use trimtab_doctor::{ASSUMED_ERASE_BLOCK, ExamineOptions, Examined, examine};
use trimtab_keeper::service::control::{self, ControlError, RUN};
use trimtab_linux::file::{Draft, Output};
use trimtab_linux::stack::{Machine, ServedMount, capture};

use crate::{FAILED, FOUND, PROGRAM, complain, interrupt, profile};

/// The name of the directory in a capture if the file's name yields none.
const CAPTURE: &str = "trimtab-capture";

/// Shows whether discards reach the flash, which layer stops them, and how to fix it
///
/// Examines every layer between a mount point, file, device or swap and the hardware. Nothing is written
/// unless --canary is given. Exits with 4 if something should be fixed; else with 1 if a target or its
/// canary was skipped or inconclusive; else with 0, even if discards are stopped that would gain nothing,
/// such as those of a rotating or read-only disk.
#[derive(clap::Args)]
pub struct Args {
    /// Mount points, files, devices or swap; without any, all mounted file systems and active swap
    #[arg(value_name = "PATH|DEV")]
    paths: Vec<PathBuf>,
    /// Examine all mounted file systems and active swap, as without a PATH
    #[arg(long, conflicts_with = "paths")]
    all: bool,
    /// Test it: write a file, delete it, trim only its space, and see what arrives at every layer; needs
    /// root and free space, and leaves nothing behind. Without a target, does so on every mounted file system. Says so if a
    /// file system does not answer for 10 seconds
    #[arg(long, conflicts_with = "sysfs")]
    canary: bool,
    /// Send the canary of another process of this program
    #[arg(long, hide = true, value_name = "PATH", exclusive = true)]
    canary_process: Option<PathBuf>,
    /// Print JSON (schema trimtab/doctor/1)
    #[arg(long)]
    json: bool,
    /// The drive whose erase block size is used to check the alignment of the data: a profile's name or
    /// file; without one, 4 MiB are assumed
    #[arg(long, alias = "drive", value_name = "PROFILE")]
    profile: Option<String>,
    /// Examine a captured machine, unpacked into this directory, instead of this one; without a PATH, the
    /// targets of the capture
    #[arg(long, value_name = "ROOT")]
    sysfs: Option<PathBuf>,
    /// Also pack the examined data into a new file, for a bug report: names, serial numbers and addresses are
    /// replaced
    #[arg(long, value_name = "FILE.tar.gz")]
    capture: Option<PathBuf>,
    /// The directory of the service's sockets
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(path) = &args.canary_process {
        let interrupt = interrupt()?;
        apart::outlive_parent(&interrupt);
        apart::serve(path, std::io::stdout(), &interrupt);
        return Ok(ExitCode::SUCCESS);
    }
    let erase_block = match &args.profile {
        Some(name) => profile::load(name)?.0.geometry.erase_block.value,
        None => ASSUMED_ERASE_BLOCK,
    };
    let archive = args.capture.as_deref().map(Archive::create).transpose()?;
    let machine = args.sysfs.as_deref().map_or_else(|| Ok(Machine::live()), captured)?;
    let Service { served, is_down, left_out } =
        if machine.is_live() { Service::ask(&args.run) } else { Service::default() };
    let plan = ExamineOptions {
        machine,
        paths: args.paths,
        canary: args.canary.then(|| PathBuf::from(PROGRAM)),
        erase_block,
        served,
        is_down,
        left_out,
        invocation: std::env::args().collect(),
    };
    let examined = examine(&plan, &interrupt()?)?;
    if let Some(archive) = archive {
        archive.keep(&plan.machine, &examined)?;
    }
    let document = &examined.document;
    let mut text = if args.json {
        serde_json::to_string_pretty(document)? + "\n"
    } else {
        trimtab_report::doctor::text(document, crate::colour())
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

/// The answer of trimtab's service.
#[derive(Default)]
struct Service {
    /// The file systems that it knows.
    served: Option<Vec<ServedMount>>,
    /// Whether none runs.
    is_down: bool,
    /// A sentence if it doesn't answer.
    left_out: Vec<String>,
}

impl Service {
    /// Asks the service whose sockets are in `run` which file systems it trims.
    fn ask(run: &Path) -> Self {
        let mount = |found: FileSystemStatus| ServedMount {
            mount: PathBuf::from(found.mount),
            is_trimmed: !matches!(found.state, State::Off | State::Steered),
        };
        match control::status(run) {
            Ok(status) => {
                let served = status.file_systems.into_iter().map(mount).collect();
                Self { served: Some(served), ..Self::default() }
            }
            Err(ControlError::NotRunning) => Self { is_down: true, ..Self::default() },
            Err(error) => Self { left_out: vec![chain(&error)], ..Self::default() },
        }
    }
}

/// Opens the machine whose capture was unpacked into the directory `root`.
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

/// The file of a capture, which gets its name when it is complete.
struct Archive<'a> {
    path: &'a Path,
    draft: Draft,
}

impl<'a> Archive<'a> {
    /// Starts a capture at `path`, which must not exist.
    fn create(path: &'a Path) -> Result<Self> {
        if path.symlink_metadata().is_ok() {
            bail!("cannot write {}: there is something of that name; name another file", path.display());
        }
        Ok(Self { path, draft: Output::open(path)?.draft()? })
    }

    /// Captures what was `examined` of `machine`, in a directory named like the file.
    fn keep(self, machine: &Machine, examined: &Examined) -> Result<()> {
        let name = self.path.file_name().and_then(|name| name.to_str()?.split('.').next());
        let top = name.filter(|name| !name.is_empty()).unwrap_or(CAPTURE);
        capture(machine, &examined.stacks, &examined.setup, top.as_ref(), self.draft.file())
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(self.draft.create()?)
    }
}

/// Returns 4 if something should be fixed, 1 if that is unknown, else 0.
fn exit_code(examined: &Examined) -> ExitCode {
    let Examined { document, is_incomplete, .. } = examined;
    let findings = document.targets.iter().flat_map(|target| &target.findings).chain(&document.findings);
    if findings.into_iter().any(|finding| finding.severity != Severity::Note) {
        return ExitCode::from(FOUND);
    }
    if *is_incomplete || document.targets.iter().any(|target| target.verdict == Verdict::Unknown) {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    }
}
