//! `trimtab generate`: the manual pages and shell completions that packages install.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
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
    let mut command = shown(Cli::command());
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut command, "trimtab", &completions)
            .with_context(|| format!("cannot write to {}", completions.display()))?;
    }
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    clap_mangen::generate_to(with_usage(command), &manual)
        .with_context(|| format!("cannot write to {}", manual.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns `command` without its hidden verbs, which bash would complete.
fn shown(command: Command) -> Command {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("trimtab")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .args(command.get_arguments().cloned())
        .subcommands(verbs.collect::<Vec<_>>())
}

/// Makes the synopses of the manual pages the usage that `--help` prints. clap_mangen's own leave out the names of values,
/// and that an argument may be repeated.
fn with_usage(mut command: Command) -> Command {
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    command.override_usage(usage).mut_subcommands(with_usage)
}
