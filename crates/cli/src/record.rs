//! `trimtab record`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use trimtab_core::Bytes;
use trimtab_core::trace::{EventKind, Summary, TraceHeader};
use trimtab_linux::file::Output;
use trimtab_linux::tracefs::RecordOptions;
use trimtab_observe::foreground::exit_code;
use trimtab_observe::record::{RecordPlan, Recorded, record};
use trimtab_report::printable;

use crate::tallies::{self, Row, counted};
use crate::{FAILED, complain, interrupt};

/// Records what the kernel reads, writes, discards and frees into a trace file
///
/// Ends when the command has ended and its writes and frees are on the device, when the time is over, or
/// with Ctrl-C. The trace is Parquet, for `trimtab sim`, `trimtab trace` and any reader of Parquet. Needs
/// root.
#[derive(clap::Args)]
pub struct Args {
    /// Devices, mount points or any files, whose disks are recorded as a whole; without any, all disks,
    /// also those that appear later
    #[arg(value_name = "DEV|MOUNT")]
    targets: Vec<PathBuf>,
    /// A further target
    #[arg(short, long = "device", value_name = "DEV|MOUNT")]
    devices: Vec<PathBuf>,
    /// The trace file
    #[arg(short, long, value_name = "FILE", default_value = "trace.parquet")]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,
    /// Record for this long
    #[arg(long, value_name = "TIME")]
    duration: Option<humantime::Duration>,
    /// Record only these kinds of events: read, write, discard, flush, write-zeroes, secure-erase, free,
    /// allocate and unused (the free space at the start); the kernel doesn't report other kinds
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    kinds: Vec<EventKind>,
    /// The size of the kernel's buffer for each processor
    #[arg(long, value_name = "SIZE", default_value_t = RecordOptions::default().buffer)]
    buffer: Bytes,
    /// End with the command, without waiting until its writes and frees are on the device
    #[arg(long, requires = "command")]
    no_sync: bool,
    /// Replace the names of processes, devices and mount points by hashes with a random key that is not kept,
    /// and leave the command line out; addresses, sizes, times, drive models and the kernel's version stay
    #[arg(long)]
    anonymise: bool,
    /// Record while this command runs
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub fn run(args: Args) -> Result<ExitCode> {
    if args.output == Path::new("-") {
        bail!("a trace goes to a file, not to stdout; name one with -o");
    }
    let out = Output::open(&args.output)?;
    if out.exists()? && !args.overwrite {
        bail!("{} exists; --overwrite replaces it, -o names another", args.output.display());
    }
    let defaults = RecordOptions::default();
    let kinds = if args.kinds.is_empty() { defaults.kinds.clone() } else { args.kinds };
    let plan = RecordPlan {
        targets: [args.targets, args.devices].concat(),
        recording: RecordOptions { kinds, buffer: args.buffer, ..defaults },
        out,
        overwrite: args.overwrite,
        duration: args.duration.map(Duration::from),
        command: args.command,
        settle: !args.no_sync,
        anonymise: args.anonymise,
        invocation: std::env::args().collect(),
    };
    let interrupt = interrupt()?;
    // The terminal belongs to the command.
    let bar = if plan.command.is_empty() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{elapsed} {msg}")?);
    let hint = if plan.duration.is_none() { "; Ctrl-C ends the trace" } else { "" };
    let mut progress = |header: &TraceHeader, summary: &Summary, _: Duration| {
        let lost = if header.lost > 0 { format!(", {} LOST", header.lost) } else { String::new() };
        let (all, discards) = (counted(summary.total(), "event"), summary.of(EventKind::Discard));
        let discards = format!("{} of {}", counted(discards.count, "discard"), discards.bytes);
        bar.set_message(format!("{all}, {discards}{lost}{hint}"));
    };
    let recorded = record(&plan, &interrupt, &mut progress)?;
    bar.finish_and_clear();
    // A closed stderr is no reason to fail.
    let _ = print(&plan, &recorded);
    let code = recorded.status.map_or(ExitCode::SUCCESS, |status| ExitCode::from(exit_code(status)));
    match recorded.stopped {
        Some(reason) => {
            complain(&format_args!("{:#}; the trace ends there", anyhow::Error::from(reason)));
            Ok(ExitCode::from(FAILED))
        }
        None => Ok(code),
    }
}

/// Prints a summary to stderr; stdout belongs to the command.
fn print(plan: &RecordPlan, recorded: &Recorded) -> io::Result<()> {
    let Recorded { header, summary, settled, .. } = recorded;
    let mut err = io::stderr().lock();
    tallies::print(&Row::all(header, summary), &mut err)?;
    if header.lost > 0 {
        writeln!(err, "{} lost: give a larger --buffer, or fewer --kinds", counted(header.lost, "event"))?;
    }
    for gap in &header.gaps {
        writeln!(err, "not recorded: {}", printable(gap))?;
    }
    if settled.as_ref().is_some_and(|settled| settled.unsettled) {
        writeln!(err, "the devices were still busy after the command: its last discards may be missing")?;
    }
    writeln!(err, "Trace: {}", printable(&plan.out.path().display().to_string()))
}
