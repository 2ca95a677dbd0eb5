//! `trimtab drive`.

use std::process::ExitCode;

/// Creates and inspects emulated SSDs that are real block devices
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: Args) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
