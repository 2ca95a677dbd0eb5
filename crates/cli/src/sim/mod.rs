//! `trimtab sim`.

mod decisions;
mod replay;
mod synthetic;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

/// Replays a trace on modelled drives under each discard policy, or runs a synthetic workload
///
/// With a trace, as `trimtab record` writes it: what would each policy do to the speed and the life of
/// these drives? Requests come with the think times between them; discards are the trace's own or
/// made from what was freed. Without one, the model is filled once, the workload runs until it has
/// settled, and is then measured in 20 windows. Needs no root and touches no device.
#[derive(clap::Args)]
pub struct Args {
    /// The trace to replay
    trace: Option<PathBuf>,
    /// Write the results as JSON to this file; without FILE or with -, print JSON instead of tables
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Replace earlier results that --json or --report would write to
    #[arg(long)]
    overwrite: bool,
    /// Seed of every draw: of a synthetic workload; with a trace, of aged drives, of blocks that wear out, and of
    /// garbage collection that draws its victims [default: 1 without a trace, 0 with one]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Make the decisions of this log again, as `trimtab daemon --decisions` writes it, and explain them; ends
    /// with 1 if this version decides otherwise
    #[arg(long, value_name = "FILE", exclusive = true)]
    decisions: Option<PathBuf>,
    #[command(flatten)]
    replay: replay::ReplayArgs,
    #[command(flatten)]
    synthetic: synthetic::SyntheticArgs,
}

pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(log) = &args.decisions {
        return decisions::run(log);
    }
    match &args.trace {
        Some(trace) => replay::run(trace, args.replay, args.seed, args.json.as_deref(), args.overwrite),
        None => synthetic::run(&args.synthetic, args.seed, args.json.as_deref(), args.overwrite),
    }
}
