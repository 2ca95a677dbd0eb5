//! `trimtab compare`.

use std::process::ExitCode;

/// Compares discard policies on a real file system and an emulated drive
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_: Args) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
