//! `trimtab sim`.

use std::process::ExitCode;

/// Runs a synthetic workload on the flash model
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: Args) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
