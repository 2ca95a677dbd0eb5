//! `trimtab status`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use trimtab_keeper::service::control::{self, RUN};

/// Says how the service tends each file system: policy, what is pending, last trim, and what is off and why
///
/// Everyone may ask. Exits with 1 where the service doesn't run.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON (schema trimtab/status/1)
    #[arg(long)]
    json: bool,
    /// Where the service's sockets are
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let status = control::status(Path::new(&args.run))?;
    let text = match args.json {
        true => serde_json::to_string_pretty(&status)? + "\n",
        false => trimtab_report::status::text(&status, crate::colour()),
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    Ok(ExitCode::SUCCESS)
}
