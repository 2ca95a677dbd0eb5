//! `trimtab generate`: the manual pages and shell completions that packages install.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::{Shell, generate_to};

use crate::Cli;

/// Writes the manual pages and the shell completions into a directory
#[derive(clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// The directory; it is made if there is none
    directory: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let [manual, completions] = ["man", "completions"].map(|name| args.directory.join(name));
    for directory in [&manual, &completions] {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let mut command = Cli::command();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, "trimtab", &completions)
            .with_context(|| format!("cannot write to {}", completions.display()))?;
    }
    clap_mangen::generate_to(Cli::command(), &manual)
        .with_context(|| format!("cannot write to {}", manual.display()))?;
    Ok(ExitCode::SUCCESS)
}
