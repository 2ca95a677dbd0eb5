//! `trimtab report`.

use std::process::ExitCode;

/// Makes tables and reports again from result files
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: Args) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
