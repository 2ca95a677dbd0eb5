//! `trimtab status`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use trimtab_keeper::service::control::{self, RUN};

/// Shows how the service manages each file system: policy, pending bytes, last trim, and why it is off
///
/// Needs no privileges. Exits with 1 if the service is not running.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON (schema trimtab/status/2)
    #[arg(long)]
    json: bool,
    /// The directory of the service's sockets
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let status = control::status(Path::new(&args.run))?;
    let text = if args.json {
        serde_json::to_string_pretty(&status)? + "\n"
    } else {
        trimtab_report::status::text(&status, crate::colour())
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    Ok(ExitCode::SUCCESS)
}
