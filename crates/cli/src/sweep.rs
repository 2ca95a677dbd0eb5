//! `trimtab sweep`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use trimtab_core::Bytes;
use trimtab_core::document::sim::PolicyClock;
use trimtab_core::document::sweep::SweepDocument;
use trimtab_core::policy::SimPolicy;
use trimtab_core::profile::GcPolicy;
use trimtab_ftl::Workload;
use trimtab_sim::sweep::{DriveState, Grid, Shard, SweepOptions, SweepPlan, sweep};

use crate::outputs::Outputs;
use crate::progress::SweepBar;
use crate::{ended, interrupt, one_of};

/// Replays every trace on every drive under every policy, with all combinations of the options
///
/// A grid in a TOML file, or the options here, which replace its keys, name the values. Every combination is a cell with
/// a file of its own in the output directory: an interrupted sweep resumes, a repeated one computes nothing. The
/// table sweep.parquet has one row a cell. Needs no root and touches no device.
#[derive(clap::Args)]
pub struct Args {
    /// The grid, a TOML file
    grid: Option<PathBuf>,
    /// The directory of the results
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Compute only this part of the cells, such as 1/8: the first of eight
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Compute this many cells at a time [default: one a processor, as far as the memory reaches]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    jobs: Option<u32>,
    /// Traces
    #[arg(long, value_name = "FILE,...", value_delimiter = ',')]
    trace: Vec<PathBuf>,
    /// Drive profiles: built-in names or files that end in .toml
    #[arg(long, value_name = "PROFILE,...", value_delimiter = ',')]
    profile: Vec<String>,
    /// Policies, as of sim [default: none,online,batched,smart,ideal]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    policy: Vec<SimPolicy>,
    /// Over-provisioning of the drives, as a fraction: 0.07 is 7 % [default: as in each profile]
    #[arg(long, value_name = "OP,...", value_delimiter = ',')]
    over_provisioning: Vec<f64>,
    /// Multiples of the recorded think times
    #[arg(long, value_name = "FACTOR,...", value_delimiter = ',')]
    think_scale: Vec<f64>,
    /// The drives at the beginning: new, used or aged
    #[arg(long, value_name = "STATE,...", value_delimiter = ',', value_parser = one_of(DriveState::ALL, DriveState::name))]
    state: Vec<DriveState>,
    /// Seeds of every draw
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    seed: Vec<u64>,
    /// The clock that policies go by
    #[arg(long, value_name = "CLOCK", value_parser = one_of(PolicyClock::ALL, PolicyClock::name))]
    policy_clock: Option<PolicyClock>,
    /// Size of the drives [default: the traced device's]
    #[arg(long, conflicts_with = "scale_to")]
    size: Option<Bytes>,
    /// Scale addresses to drives of this size
    #[arg(long, value_name = "SIZE")]
    scale_to: Option<Bytes>,
    /// Replay each trace so often
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: Option<u32>,
    /// Synthetic workloads, as of sim
    #[arg(long, value_name = "WORKLOAD,...", value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Effective spare factors of the synthetic workloads' flash
    #[arg(long, value_name = "S,...", value_delimiter = ',')]
    spare: Vec<f64>,
    /// Garbage collectors of the synthetic workloads' flash
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    gc: Vec<GcPolicy>,
    /// Erase blocks of the synthetic workloads' flash
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    /// Write the rows as JSON to this file; without FILE or with -, print JSON instead of a summary
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Write the rows and an HTML page to this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Replace earlier results that --json or --report would write to
    #[arg(long)]
    overwrite: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let plan = SweepPlan::of(&grid(&args)?, &mut || true)?;
    let printed = args.json.as_deref() == Some(Path::new("-"));
    let outputs = Outputs::new(
        args.json.as_deref().filter(|_| !printed),
        args.report.as_deref(),
        "sweep.json",
        args.overwrite,
    )?;
    let options = SweepOptions {
        directory: args.output.clone(),
        shard: args.shard,
        workers: args.jobs.map(|jobs| jobs as usize),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    };
    let document = sweep(&plan, &options, &interrupt()?, &mut SweepBar::new())?;
    if document.stopped.is_none() {
        outputs.save(&document, trimtab_report::sweep::html)?;
    }
    let out = &mut io::stdout().lock();
    if printed {
        serde_json::to_writer_pretty(&mut *out, &document)?;
        writeln!(out)?;
    } else {
        print(out, &document, &args)?;
    }
    let has_failures = document.rows.iter().any(|row| row.error.is_some());
    Ok(if document.stopped.is_none() && has_failures {
        ExitCode::FAILURE
    } else {
        ended(document.stopped.as_deref())
    })
}

/// The grid of the file, with the keys that the options replace.
fn grid(args: &Args) -> Result<Grid> {
    let mut grid = match &args.grid {
        Some(path) => Grid::read(path)?,
        None => Grid::default(),
    };
    replace(&mut grid.traces, &args.trace);
    replace(&mut grid.profiles, &args.profile);
    replace(&mut grid.policies, &args.policy);
    replace(&mut grid.over_provisioning, &args.over_provisioning);
    replace(&mut grid.think_scale, &args.think_scale);
    replace(&mut grid.states, &args.state);
    replace(&mut grid.seeds, &args.seed);
    replace(&mut grid.workloads, &args.workload);
    replace(&mut grid.spare, &args.spare);
    replace(&mut grid.gc, &args.gc);
    grid.policy_clock = args.policy_clock.unwrap_or(grid.policy_clock);
    if args.size.is_some() || args.scale_to.is_some() {
        (grid.size, grid.scale_to) = (args.size, args.scale_to);
    }
    if args.repeat.is_some() {
        (grid.passes, grid.until_steady) = (args.repeat, false);
    }
    grid.blocks = args.blocks.or(grid.blocks);
    grid.check(&args.grid.as_ref().map_or("the grid".to_owned(), |path| path.display().to_string()))?;
    Ok(grid)
}

fn replace<T: Clone>(values: &mut Vec<T>, given: &[T]) {
    if !given.is_empty() {
        given.clone_into(values);
    }
}

fn print(out: &mut impl Write, document: &SweepDocument, args: &Args) -> io::Result<()> {
    let failed: Vec<_> = document
        .rows
        .iter()
        .filter_map(|row| Some((row.error.as_ref()?, row.cell.trace.as_deref())))
        .collect();
    writeln!(out, "{} of {} cells have results", document.rows.len() - failed.len(), document.cells)?;
    if let Some((reason, trace)) = failed.first() {
        let trace = trace.map_or_else(String::new, |trace| format!(", of {trace}"));
        let first = format!("{} failed; the first{trace}: {reason}", failed.len());
        writeln!(out, "{}", trimtab_report::printable(&first))?;
    }
    let table = args.output.join("sweep.parquet");
    if args.shard.is_none() || document.rows.len() == document.cells {
        writeln!(out, "Table: {}", table.display())?;
    }
    match &args.report {
        Some(_) if document.stopped.is_some() => writeln!(out, "Report: not written, as cells are missing")?,
        Some(report) => writeln!(out, "Report: {}", report.join("index.html").display())?,
        None => {}
    }
    Ok(())
}
