//! `trimtab sim` without a trace: a synthetic workload.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use trimtab_core::Bytes;
use trimtab_core::profile::GcPolicy;
use trimtab_ftl::Workload;
use trimtab_ftl::synthetic::{SyntheticOptions, SyntheticOutcome};
use trimtab_linux::environment::available_memory;
use trimtab_linux::{CGROUPS, PROCFS};

use crate::outputs::Outputs;
use crate::{USAGE, complain};

/// Without a trace
#[derive(clap::Args)]
#[group(id = "synthetic", conflicts_with_all = ["trace", "replay"])]
#[command(next_help_heading = "Without a trace")]
pub struct SyntheticArgs {
    /// The host's pattern: uniform, sequential, hotcold:R/F (a fraction R of the writes to a
    /// fraction F of the space) or trim:Q (a fraction Q of the requests are trims)
    #[arg(long, value_name = "WORKLOAD", default_value = "uniform")]
    workload: Workload,
    /// Erase blocks in all; one is reserve, and one a stream and one for garbage collection are open
    #[arg(long, value_name = "N", default_value_t = 2048)]
    blocks: u32,
    /// Mapping pages in an erase block
    #[arg(long, value_name = "P", default_value_t = 256)]
    pages_per_block: u32,
    /// Effective spare factor S = 1 - U / T: U logical pages, T pages beside reserve and open blocks
    #[arg(long, value_name = "S", default_value_t = 0.127)]
    spare: f64,
    /// Garbage collection: greedy, fifo, d-choices:D or cost-benefit
    #[arg(long, value_name = "POLICY", default_value_t = GcPolicy::Greedy)]
    gc: GcPolicy,
    /// Open blocks for the host: 2 keep hot writes apart from cold ones (hotcold only)
    #[arg(long, value_name = "N", default_value_t = 1)]
    streams: u32,
    /// How often the measured part writes as many pages as the drive has
    #[arg(long, value_name = "K", default_value_t = 10.0)]
    drive_writes: f64,
}

/// Runs a synthetic workload, and prints what came out, as JSON or for a reader.
pub fn run(
    args: &SyntheticArgs,
    seed: Option<u64>,
    json: Option<&Path>,
    overwrite: bool,
) -> anyhow::Result<ExitCode> {
    let file = json.filter(|file| *file != Path::new("-"));
    let outputs = Outputs::new(file, None, "", overwrite)?;
    let options = SyntheticOptions {
        workload: args.workload,
        blocks: args.blocks,
        pages_per_block: args.pages_per_block,
        spare: args.spare,
        gc: args.gc,
        streams: args.streams,
        drive_writes: args.drive_writes,
        seed: seed.unwrap_or(1),
    };
    let available = available_memory(Path::new(PROCFS), Path::new(CGROUPS))?;
    if let Some(reason) = too_little(available, options.memory()) {
        complain(&reason);
        return Ok(ExitCode::from(USAGE));
    }
    let outcome = match options.run() {
        Ok(outcome) => outcome,
        Err(error) => {
            complain(&error);
            return Ok(ExitCode::from(USAGE));
        }
    };
    let mut out = io::stdout().lock();
    outputs.save(&outcome, |_| String::new())?;
    if json.is_some() && file.is_none() {
        serde_json::to_writer_pretty(&mut out, &outcome)?;
        writeln!(out)?;
    } else {
        print(&mut out, &outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Closed forms leave out the few erase blocks that are open or in reserve, which hardly count among this many.
const MANY_BLOCKS: u32 = 256;

/// Returns the error for a model that needs more memory than is available; `None` if it fits.
fn too_little(available: Bytes, needed: Bytes) -> Option<String> {
    let reason = format!(
        "these erase blocks need {needed} of memory, but {available} are available; use fewer --blocks"
    );
    (needed > available).then_some(reason)
}

fn print(out: &mut impl Write, outcome: &SyntheticOutcome) -> io::Result<()> {
    let options = &outcome.options;
    let predicted = outcome.predicted_waf.map_or_else(
        || "no closed form".to_owned(),
        |predicted| {
            let of = if options.blocks < MANY_BLOCKS { " of a drive with many blocks" } else { "" };
            format!(
                "closed form{of} {predicted:.3}, off by {:+.2} %",
                (outcome.waf / predicted - 1.0) * 100.0
            )
        },
    );
    let steady = if outcome.steady { "yes" } else { "no: raise --drive-writes" };
    let wear = &outcome.erase_spread;
    writeln!(
        out,
        "{}, {} garbage collection, {} erase blocks of {} pages, seed {}\n\n\
         Model\n\
         \x20 write amplification   {:.3} ({predicted})\n\
         \x20 steady state          {steady} (SNIA PTS, last 5 of {} windows)\n\
         \x20 effective spare S     {:.4}\n\
         \x20 host pages written    {} ({} drive writes of {} pages)\n\
         \x20 host pages trimmed    {}\n\
         \x20 flash pages written   {}\n\
         \x20 erases                {}\n\
         \x20 erases of a block     {} to {}, mean {:.1}, deviation {:.1} (since new)\n\n\
         Wall\n\
         \x20 speed                 {:.1} million host pages/s\n\
         \x20 memory                {:.2} bytes a flash page",
        options.workload,
        options.gc,
        options.blocks,
        options.pages_per_block,
        options.seed,
        outcome.waf,
        outcome.waf_windows.len(),
        outcome.effective_spare,
        outcome.host_pages,
        options.drive_writes,
        outcome.logical_pages,
        outcome.trimmed_pages,
        outcome.flash_pages,
        outcome.erases,
        wear.min,
        wear.max,
        wear.mean,
        wear.deviation,
        outcome.host_pages_per_second / 1e6,
        outcome.bytes_per_page,
    )
}
