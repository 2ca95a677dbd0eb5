//! `trimtab reproduce`: the published experiments, beside ours.

use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::NonEmptyStringValueParser;
use trimtab_guest::KernelChoice;
use trimtab_keeper::service::control::RUN;
use trimtab_lab::reproduce::{ExperimentName, ReproduceOptions, ReproducePlace, reproduce};
use trimtab_linux::PROCFS;
use trimtab_linux::mount::{Mount, mounts};

use crate::compare::{ClockName, EngineArgs};
use crate::outputs::Outputs;
use crate::progress::Bar;
use crate::{ended, interrupt, profile};

/// Repeats published experiments on discards and prints their figures beside the measured ones
///
/// Without a name, lists them. Each claim of the documents gets a verdict: confirmed, confirmed in direction, or
/// not confirmed, with the reason. File systems are real, on emulated drives in guests whose clock skips idle
/// time; patterns of discards run on the flash model, and so do the measurements of drives.
#[derive(clap::Args)]
pub struct Args {
    /// Experiments: nagel-tree, purdea-sizes, czerner, datalight, kernel-changes, drives
    #[arg(value_name = "NAME", conflicts_with = "all")]
    names: Vec<ExperimentName>,
    /// All of them
    #[arg(long)]
    all: bool,
    /// Drive profile in place of those of the documents' drives: a built-in name or a file that ends in .toml
    #[arg(long, value_name = "PROFILE", value_parser = NonEmptyStringValueParser::new())]
    drive: Option<String>,
    /// Run in this directory, or where this block device is mounted, by this machine's clock: nothing is mounted or
    /// formatted, so only a part of the claims can be measured
    #[arg(long, value_name = "DIR|DEV", conflicts_with = "drive")]
    on: Option<PathBuf>,
    /// Clock of the emulated drives: virtual (the guests' own, which skips idle time), or real (this machine's own
    /// kernel and clock; needs root)
    #[arg(long, value_name = "CLOCK", default_value = "virtual", conflicts_with = "on")]
    clock: ClockName,
    /// Drive seconds per wall second with --clock real [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "on")]
    speed: Option<f64>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Kernel of the guests: debian:6.12 or another version of Debian's, or the path of a vmlinuz
    #[arg(long, value_name = "KERNEL", default_value = "debian:6.12", conflicts_with = "on")]
    kernel: KernelChoice,
    /// Write the results to this file, after every comparison
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results and an HTML page to this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Replace earlier results that --json or --report would write to
    #[arg(long)]
    overwrite: bool,
    /// Where the service's sockets are
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
}

/// The wall time after which a guest counts as hung.
const LIMIT: Duration = Duration::from_secs(30 * 60);

pub fn run(args: Args) -> Result<ExitCode> {
    if args.names.is_empty() && !args.all {
        return list(&args);
    }
    let outputs =
        Outputs::new(args.json.as_deref(), args.report.as_deref(), "reproduce.json", args.overwrite)?;
    let options = ReproduceOptions {
        experiments: experiments(&args),
        place: place(&args)?,
        engine: args.engine.engine()?,
        kernel: args.kernel.clone(),
        limit: LIMIT,
        program: std::env::current_exe().context("cannot find the running executable")?,
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    };
    let document = reproduce(&options, &interrupt()?, &mut Bar::new(), &mut |document| {
        outputs.save(document, trimtab_report::reproduce::html)
    })?;
    let out = &mut io::stdout().lock();
    write!(out, "{}", trimtab_report::reproduce::text(&document, crate::colour()))?;
    if let Some(page) = outputs.page() {
        writeln!(out, "\nReport: {}", page.display())?;
    }
    Ok(ended(document.stopped.as_deref()))
}

/// The experiments that were named, each once.
fn experiments(args: &Args) -> Vec<ExperimentName> {
    if args.all {
        return ExperimentName::ALL.to_vec();
    }
    trimtab_core::distinct(args.names.iter().copied())
}

fn place(args: &Args) -> Result<ReproducePlace> {
    if let Some(on) = &args.on {
        return Ok(ReproducePlace::Directory { dir: directory(on)?, service: args.run.clone() });
    }
    let drive = args.drive.as_deref().map(profile::load).transpose()?;
    let speed = match (args.clock, args.speed) {
        (ClockName::Virtual, Some(_)) => bail!("--speed is for the real clock; add --clock real"),
        (ClockName::Virtual, None) => None,
        (ClockName::Real, speed) => {
            args.engine.refuse_with_real_clock()?;
            Some(speed.unwrap_or(1.0))
        }
    };
    Ok(ReproducePlace::Emulated { drive: drive.map(|(profile, text)| (Box::new(profile), text)), speed })
}

/// The directory `on`, or the mount point of the block device `on`.
fn directory(on: &Path) -> Result<PathBuf> {
    let Ok(file_type) = on.metadata().map(|metadata| metadata.file_type()) else { return Ok(on.to_owned()) };
    if !file_type.is_block_device() {
        return Ok(on.to_owned());
    }
    let device = on.canonicalize()?;
    let of_device = |mount: &Mount| mount.source.canonicalize().is_ok_and(|source| source == device);
    let mounted =
        mounts(Path::new(PROCFS))?.into_iter().find(|mount| of_device(mount) && !mount.is_read_only());
    let Some(mount) = mounted else {
        bail!(
            "{} is not mounted for writing; nothing of yours is formatted here: make a file system on it, mount it, \
             and give its mount point",
            on.display()
        )
    };
    Ok(mount.target)
}

/// Prints the experiments and their documents.
fn list(args: &Args) -> Result<ExitCode> {
    if args.json.is_some() || args.report.is_some() || args.drive.is_some() || args.on.is_some() {
        bail!("name an experiment, or --all for all of them; trimtab reproduce lists them");
    }
    let out = &mut io::stdout().lock();
    for name in ExperimentName::ALL {
        writeln!(out, "{name:<14} {}", name.summary())?;
        let sources = name.sources();
        let titles = sources.iter().map(|source| format!("{}, {}", source.author, source.title));
        let titles = titles.collect::<std::collections::BTreeSet<_>>();
        titles.iter().try_for_each(|title| writeln!(out, "{:<14} after {title}", ""))?;
    }
    writeln!(out, "\nRun one: trimtab reproduce NAME; all: trimtab reproduce --all --report out")?;
    Ok(ExitCode::SUCCESS)
}
