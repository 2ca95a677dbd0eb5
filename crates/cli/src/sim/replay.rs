//! `trimtab sim TRACE`.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::builder::NonEmptyStringValueParser;
use trimtab_core::Bytes;
use trimtab_core::document::sim::{Clocks, Passes, PolicyClock, Tiling};
use trimtab_core::policy::SimPolicy;
use trimtab_sim::simulate::{SimulateOptions, simulate};

use crate::outputs::Outputs;
use crate::progress::ReplayBar;
use crate::{ended, interrupt, one_of, profile};

/// With a trace
#[derive(clap::Args)]
#[group(id = "replay", requires = "trace")]
#[command(next_help_heading = "With a trace")]
pub struct ReplayArgs {
    /// Drive profiles: built-in names (see `trimtab drive profiles`) or files that end in .toml
    #[arg(
        long,
        alias = "drive",
        value_name = "PROFILE,...",
        value_delimiter = ',',
        default_value = "samsung-870-evo",
        value_parser = NonEmptyStringValueParser::new()
    )]
    profile: Vec<String>,
    /// Policies: none, online (the trace's own discards, or what is freed at once), batched (at the end of a
    /// pass), batched:1h (whenever the trace is an hour on), smart (when it is worth it and the drive has
    /// time); and ideal, which is no policy but the bound: a drive that knows of every free at once, at no
    /// cost [default: those that the trace can tell]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    policy: Vec<SimPolicy>,
    /// Size of the drives [default: the traced device's]
    #[arg(long, conflicts_with = "scale_to")]
    size: Option<Bytes>,
    /// Scale addresses, and with them volumes, to drives of this size
    #[arg(long, value_name = "SIZE")]
    scale_to: Option<Bytes>,
    /// Replay N copies of the trace side by side, each with space of its own, on a drive N times as large. With
    /// interleave they write all at once, each N times slower; with slice one at a time, in turns. Each copy
    /// begins an Nth of the trace later than the one before
    #[arg(long, value_name = "N[:interleave|:slice]", conflicts_with_all = ["scale_to", "size"])]
    tiles: Option<Tiling>,
    /// The device of the trace to replay [default: the only one that is written]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Replay the trace so often, each pass on the drive as the last one left it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: u32,
    /// Repeat until write amplification is steady (SNIA PTS), at most 100 times
    #[arg(long, conflicts_with = "repeat")]
    until_steady: bool,
    /// Program and erase cycles that a block lasts, for the lifetime, which needs a trace of a day
    /// or more [default: those of the profile, or else 3000, an assumption]
    #[arg(long, value_name = "CYCLES", value_parser = clap::value_parser!(u32).range(1..))]
    endurance: Option<u32>,
    /// Let the host think this many times as long between requests as in the trace: 0 leaves no pauses
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, allow_negative_numbers = true)]
    think_scale: f64,
    /// The clock that policies go by, as batched:1h does: the trace's, or the simulated drive's, with its waits
    #[arg(long, value_name = "CLOCK", default_value = "trace", value_parser = one_of(PolicyClock::ALL, PolicyClock::name))]
    policy_clock: PolicyClock,
    /// Begin with empty drives, instead of used ones that were written all over
    #[arg(long)]
    new: bool,
    /// Begin with aged drives: after all was written in sequence, it was overwritten at random three times, or as
    /// often as the profile says
    #[arg(long, conflicts_with = "new")]
    aged: bool,
    /// Write the results and an HTML page to this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

pub fn run(
    trace: &Path,
    args: ReplayArgs,
    seed: Option<u64>,
    json: Option<&Path>,
    overwrite: bool,
) -> Result<ExitCode> {
    let printed = json == Some(Path::new("-"));
    let file = json.filter(|_| !printed);
    if let Some(file) = file
        && file.canonicalize().is_ok_and(|file| trace.canonicalize().is_ok_and(|trace| trace == file))
    {
        bail!("--json {} would overwrite the trace", file.display());
    }
    let most = Clocks::MOST_THINK_SCALE;
    if !(0.0..=most).contains(&args.think_scale) {
        bail!("--think-scale {} is not between 0 and {most}", args.think_scale);
    }
    let load = |name: &String| profile::load_aged(name, args.aged);
    let drives = args.profile.iter().map(load).collect::<Result<Vec<_>>>()?;
    let mut names = HashSet::new();
    if let Some((twice, _)) = drives.iter().find(|(profile, _)| !names.insert(&profile.name)) {
        bail!("two of the drives are called {}; each needs a name of its own", twice.name);
    }
    let outputs = Outputs::new(file, args.report.as_deref(), "sim.json", overwrite)?;
    let options = SimulateOptions {
        trace: trace.to_owned(),
        format: None,
        drives,
        policies: args.policy,
        size: args.size,
        device: args.device,
        scale_to: args.scale_to,
        tiling: args.tiles,
        passes: Passes::new(args.repeat, args.until_steady),
        preconditioned: !args.new,
        endurance: args.endurance,
        clocks: Clocks { think_scale: args.think_scale, policy: args.policy_clock },
        seed: seed.unwrap_or(0),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    };
    let document = simulate(options, &interrupt()?, &mut ReplayBar::new(), &mut |document| {
        outputs.save(document, trimtab_report::sim::html)
    })?;
    let out = &mut io::stdout().lock();
    if printed {
        serde_json::to_writer_pretty(&mut *out, &document)?;
        writeln!(out)?;
    } else if !document.runs.is_empty() {
        write!(out, "{}", trimtab_report::sim::text(&document, crate::colour()))?;
        if let Some(page) = outputs.page() {
            writeln!(out, "\nReport: {}", page.display())?;
        }
    }
    Ok(ended(document.stopped.as_deref()))
}
