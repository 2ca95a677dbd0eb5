//! The `trimtab` binary: parses arguments, calls one library door a verb, prints, and exits.

mod compare;
mod drive;
mod report;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measures, explains and steers discards (TRIM, UNMAP, deallocate).
#[derive(Parser)]
#[command(name = "trimtab", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Compare(compare::Args),
    Drive(drive::Args),
    Report(report::Args),
    Sim(sim::Args),
}

/// Failed.
const FAILED: u8 = 1;

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Compare(args) => compare::run(args),
        Verb::Drive(args) => drive::run(args),
        Verb::Report(args) => report::run(args),
        Verb::Sim(args) => sim::run(args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("trimtab: {error:#}");
        ExitCode::from(FAILED)
    })
}
