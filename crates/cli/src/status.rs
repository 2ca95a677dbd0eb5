//! `trimtab status`.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use trimtab_keeper::service::control::{self, ControlError, RUN};
use trimtab_keeper::service::{Config, metrics, survey};
use trimtab_linux::file::Output;

use crate::complain;

/// Shows how the service manages each file system: policy, pending bytes, last trim, and why it is off
///
/// Needs no privileges. Exits with 1 if the service is not running, or does not answer within 5 seconds.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON (schema trimtab/status/2)
    #[arg(long)]
    json: bool,
    /// Write metrics to this file, whose name ends in .prom, for the textfile collector of node_exporter
    ///
    /// The file is replaced at once, so that a reader never sees a part of it. Where the service is not running, or does not answer,
    /// it says so and has the figures that the kernel keeps: as root also how full thin pools are.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    textfile: Option<PathBuf>,
    /// The directory of the service's sockets
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(file) = &args.textfile {
        return write_metrics(&args.run, file);
    }
    let status = control::status(Path::new(&args.run))?;
    let text = if args.json {
        serde_json::to_string_pretty(&status)? + "\n"
    } else {
        trimtab_report::status::text(&status, crate::colour())
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    Ok(ExitCode::SUCCESS)
}

/// Replaces `file` with the metrics of the service whose sockets are in `run`, or of this machine if none
/// runs.
fn write_metrics(run: &Path, file: &Path) -> Result<ExitCode> {
    if file.extension() != Some(OsStr::new("prom")) {
        bail!("{}: node_exporter reads only files that end in .prom; name it so", file.display());
    }
    let output = Output::open(file)?;
    let text = match control::status(run) {
        Ok(status) => metrics::render(&status, true),
        Err(error @ (ControlError::NotRunning | ControlError::Silent { .. })) => {
            if matches!(error, ControlError::Silent { .. }) {
                complain(&format_args!("{error}; {} has what the kernel knows without it", file.display()));
            }
            metrics::render(&survey(&Config::find(None)?.unwrap_or_default())?, false)
        }
        Err(error) => return Err(error.into()),
    };
    output.replace(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
