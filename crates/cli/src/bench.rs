//! `trimtab bench`: what a drive does with a discard.

mod dry_run;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use trimtab_bench::plan::Sizes;
use trimtab_bench::profile::profile;
use trimtab_bench::{BenchOptions, bench};
use trimtab_core::document::bench::{BenchDevice, BenchDocument, BenchPlan, Part, Pattern};
use trimtab_core::erase::Operation;
use trimtab_core::{Bytes, Extent, distinct};
use trimtab_drive::{Clock, Drive, Listed};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::claim::{self, Overrides};
use trimtab_linux::file::Output;
use trimtab_report::Document;

use crate::outputs::Outputs;
use crate::progress::BenchBar;
use crate::{UNSUPPORTED, complain, failed, interrupt, one_of, power_cycle};

/// Measures a spare drive: how long discards take, whether they work, and what they cost and give
///
/// Everything on DEV is lost. It is refused while it is mounted, used as swap, held by another
/// device, partitioned, or holds anything that is known, and whenever that is in doubt; also while
/// anything that shares its bytes is in use, or a process has any of it open for writing. Only whole drives and emulated
/// ones are accepted without --allow-part.
#[derive(clap::Args)]
#[command(after_long_help = UNDETECTED)]
pub struct Args {
    /// Block device to measure, such as /dev/nvme1n1
    #[arg(value_name = "DEV")]
    device: PathBuf,
    /// DEV once more: all that it holds may be destroyed
    #[arg(long, value_name = "DEV", required_unless_present = "dry_run")]
    destroy_data: Option<PathBuf>,
    /// Check everything and print what would be written and discarded, and how long it takes
    #[arg(long)]
    dry_run: bool,
    /// Keep to these bytes of the device, such as 1G..3G [default: all of it]
    #[arg(long, value_name = "START..END")]
    range: Option<Extent>,
    /// Parts to run [default: all; with --quick all but degradation and background]
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_parser = one_of(Part::ALL, Part::name))]
    part: Vec<Part>,
    /// Sizes of the latency sweep: halving (2G..512), in equal steps (64K..1M+64K) or a list
    /// [default: 2G, or what the range holds, down to the logical block]
    #[arg(long, value_name = "SIZES")]
    sizes: Option<Sizes>,
    /// Where the discards of the sweep go [default: all; with --quick sequential]
    #[arg(long, value_name = "PATTERN,...", value_delimiter = ',', value_parser = one_of(Pattern::ALL, Pattern::name))]
    pattern: Vec<Pattern>,
    /// How many discards of the sweep are in flight [default: 1,8,32; with --quick 1]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=32))]
    depth: Vec<u32>,
    /// Commands of the sweep: discard, zeroout (BLKZEROOUT), secure (BLKSECDISCARD)
    #[arg(long, value_name = "OP,...", value_delimiter = ',', default_value = "discard", value_parser = one_of(Operation::ALL, Operation::name))]
    operation: Vec<Operation>,
    /// A run of less than a minute: fewer sizes, one pattern, no degradation or background
    #[arg(long)]
    quick: bool,
    /// About how long the whole run may take [default: 15m; with --quick 45s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Seed of patterns and places
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results to this file, after every cell [default without --report:
    /// trimtab-bench-NAME-DATE.json]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results and an HTML page to this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Replace the results of an earlier run that --json or --report would write to
    #[arg(long)]
    overwrite_results: bool,
    /// Write the drive profile that was measured to this file, for `trimtab compare --profile`
    #[arg(long, value_name = "FILE.toml")]
    profile_out: Option<PathBuf>,
    /// Write and discard areas now and remember them in FILE. If FILE exists, check the areas after a power
    /// cycle instead, and with --resume add that to an earlier run's results
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "report", "profile_out"])]
    across_power_cycle: Option<PathBuf>,
    /// Continue the run whose results are in this file, and write to it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["range", "part", "sizes", "pattern", "depth", "quick", "seed", "json", "operation"])]
    resume: Option<PathBuf>,
    /// Lose the file systems, LVM, md, LUKS and the like whose signatures are on DEV
    #[arg(long)]
    overwrite_signatures: bool,
    /// Lose the partition table of DEV and all partitions in it
    #[arg(long)]
    overwrite_partitions: bool,
    /// Allow a DEV that is no whole drive: a partition, a volume, a file behind a loop device. What uses the rest of the
    /// drive is slowed. By this you vouch that nothing else relies on bytes of DEV, which can't be proven (see below)
    #[arg(long)]
    allow_part: bool,
}

/// The uses of a device that [`claim`] cannot find.
const UNDETECTED: &str = include_str!("bench/undetected.txt").trim_ascii_end();

/// The name of the results in the directory of a report.
const DOCUMENT: &str = "bench.json";

/// The default length of a run.
const FULL: Duration = Duration::from_secs(15 * 60);
const QUICK: Duration = Duration::from_secs(45);

/// The fewest sizes that a profile needs.
const LEAST_SIZES: usize = 3;

/// The parts that a quick run has.
const QUICK_PARTS: [Part; 3] = [Part::Latency, Part::Verify, Part::Interference];

pub fn run(args: Args) -> Result<ExitCode> {
    if let Some(named) = args.destroy_data.as_ref().filter(|named| **named != args.device) {
        bail!("--destroy-data names {}, not {}; nothing was touched", named.display(), args.device.display());
    }
    let overrides = Overrides {
        signatures: args.overwrite_signatures,
        partitions: args.overwrite_partitions,
        part: args.allow_part,
    };
    if args.dry_run {
        return dry_run::run(&args, &overrides);
    }
    let claim = claim::claim(&args.device, &overrides)?;
    let target = claim.device;
    let device = target.block().describe()?;
    if let Some(reason) = no_discards(&device) {
        complain(&reason);
        return Ok(ExitCode::from(UNSUPPORTED));
    }
    let options = options(&args, device)?;
    let plan = checked_plan(&options, target.block())?;
    let lost = losses(claim.lost, claim.unseen);
    let announce = || lost.iter().for_each(complain);
    if let Some(file) = &args.across_power_cycle {
        let earlier = args.resume.as_deref().zip(options.resumed);
        announce();
        return print(&power_cycle::run(&target, &options.device, plan.range, file, earlier)?);
    }
    let profile_out = args.profile_out.as_deref().map(Output::open).transpose()?;
    check_profile(&args, &plan)?;
    let is_unnamed = args.resume.is_none() && args.json.is_none() && args.report.is_none();
    let default = is_unnamed.then(|| default_name(&args.device));
    let results = check_results(&args, default.as_deref());
    let json = args.resume.or(args.json).or(default);
    let outputs = Outputs::new(json.as_deref(), args.report.as_deref(), DOCUMENT, true)?;
    results?;
    announce();
    let save = &mut |document: &BenchDocument| {
        outputs.save(document, |document| trimtab_report::page(&[trimtab_report::bench::section(document)]))
    };
    let document = bench(&target, options, &interrupt()?, &mut BenchBar::new(), save)?;
    let mut text = trimtab_report::bench::text(&document, crate::colour());
    text += &format!("\nResults: {}\n", outputs.document().display());
    if let Some(page) = outputs.page() {
        text += &format!("Report: {}\n", page.display());
    }
    print(&text)?;
    if let Some(reason) = &document.stopped {
        complain(&format_args!("{reason}; continue with --resume {}", outputs.document().display()));
        return Ok(failed());
    }
    if let Some(output) = &profile_out {
        let (_, toml) = profile(&document)?;
        output.replace(toml.as_bytes()).context("cannot write the profile")?;
        print(&format!("Profile: {}\n", output.path().display()))?;
        if document.degradation.is_empty() {
            complain(
                &"how fast the drive writes was not measured, so the profile's rates are typical ones; see --part",
            );
        }
    }
    if document.measured_nothing() {
        complain(&"nothing could be measured; the results name what is missing");
        return Ok(ExitCode::from(UNSUPPORTED));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns what would be lost, and how much of that is not known.
fn losses(mut lost: Vec<String>, unseen: usize) -> Vec<String> {
    if unseen > 0 {
        let processes = if unseen == 1 { "1 process has" } else { &format!("{unseen} processes have") };
        lost.push(format!("not known: what {processes} open; the kernel does not show it here"));
    }
    lost
}

fn options(args: &Args, device: BenchDevice) -> Result<BenchOptions> {
    let resumed = args.resume.as_deref().map(read).transpose()?;
    Ok(BenchOptions {
        plan: plan_of(args, &device, resumed.as_ref()),
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
        device,
        resumed,
    })
}

/// Returns the plan, if it can be carried out on `block`.
fn checked_plan(options: &BenchOptions, block: &BlockDevice) -> Result<BenchPlan> {
    let plan = options.check()?;
    if plan.parts.iter().any(|part| *part != Part::Verify) && is_on_model_clock(block) {
        bail!(
            "{} is an emulated drive on the model's clock, which answers at once whatever a command costs; create it \
             with --clock real, or measure --part verify alone",
            options.device.path
        );
    }
    Ok(plan)
}

/// Checks that `plan` measures enough for a profile, if one is asked for.
fn check_profile(args: &Args, plan: &BenchPlan) -> Result<()> {
    let is_too_little = !plan.parts.contains(&Part::Latency) || plan.sizes.len() < LEAST_SIZES;
    if args.profile_out.is_some() && is_too_little {
        bail!("a profile needs the latency of at least {LEAST_SIZES} sizes; see --part and --sizes");
    }
    Ok(())
}

/// Checks that no results of an earlier run would be replaced unasked.
fn check_results(args: &Args, default: Option<&Path>) -> Result<()> {
    let earlier = Outputs::earlier(args.json.as_deref().or(default), args.report.as_deref(), DOCUMENT);
    let Some(earlier) = earlier.filter(|_| !args.overwrite_results) else { return Ok(()) };
    let (goes_on, earlier) = (!args.quick && read(&earlier).is_ok(), earlier.display());
    let resume = if goes_on { format!("--resume {earlier} goes on with it, ") } else { String::new() };
    bail!(
        "{earlier} exists; {resume}--overwrite-results replaces it, --json or --report can name another place"
    );
}

/// Returns whether `block` is an emulated drive whose commands take no time.
fn is_on_model_clock(block: &BlockDevice) -> bool {
    let disk = block.whole().path();
    let is_it = |drive: &Listed| drive.device.as_deref() == Some(disk.as_path());
    let drive = trimtab_drive::list().unwrap_or_default().into_iter().find(is_it);
    let clock = drive.and_then(|drive| Some(Drive::open(&drive.name).ok()?.stats().ok()?.clock));
    clock == Some(Clock::Model)
}

/// Returns why the device can't be measured, if its limits allow no discards.
fn no_discards(device: &BenchDevice) -> Option<String> {
    let (path, maximum) = (&device.path, device.discard_max_hardware);
    if device.discard_max > Bytes::ZERO {
        return None;
    }
    Some(if maximum == Bytes::ZERO {
        format!(
            "{path} takes no discards: its discard_max_hw_bytes is 0, so the driver, or a layer below it, offers none; \
             trimtab can measure nothing there"
        )
    } else {
        format!(
            "{path} is sent no discards: its discard_max_bytes was set to 0 while the hardware takes {maximum}; \
             raise queue/discard_max_bytes in sysfs, or attach the device anew if the kernel refuses that"
        )
    })
}

fn plan_of(args: &Args, device: &BenchDevice, earlier: Option<&BenchDocument>) -> BenchPlan {
    let block = device.logical_block;
    let range = args.range.unwrap_or(Extent::new(Bytes::ZERO, device.size));
    let sizes = match &args.sizes {
        Some(sizes) => sizes.list(block),
        None => {
            let mut sizes = if args.quick { Sizes::quick(block) } else { Sizes::FULL }.list(block);
            sizes.retain(|size| *size <= range.len());
            sizes
        }
    };
    let default_time = if args.quick { QUICK } else { FULL };
    let time = args.time.map(|time| time.as_secs_f64()).or(earlier.map(|earlier| earlier.plan.budget_wall_s));
    BenchPlan {
        range,
        parts: match args.across_power_cycle {
            Some(_) => vec![Part::Verify],
            None => given_or(&args.part, if args.quick { &QUICK_PARTS } else { &Part::ALL }),
        },
        sizes,
        patterns: given_or(&args.pattern, if args.quick { &[Pattern::Sequential] } else { &Pattern::ALL }),
        depths: given_or(&args.depth, if args.quick { &[1] } else { &[1, 8, 32] }),
        operations: given_or(&args.operation, &[Operation::Discard]),
        budget_wall_s: time.unwrap_or(default_time.as_secs_f64()),
        verify_delay_wall_s: if args.quick { 1.0 } else { 10.0 },
        seed: args.seed,
    }
}

/// Returns the user's values, each once; or the default.
fn given_or<T: Copy + PartialEq>(given: &[T], default: &[T]) -> Vec<T> {
    distinct(if given.is_empty() { default } else { given }.iter().copied())
}

fn read(path: &Path) -> Result<BenchDocument> {
    let json = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    match Document::parse(&json).with_context(|| path.display().to_string())? {
        Document::Bench(document) => Ok(*document),
        _ => bail!("{} holds no results of a bench", path.display()),
    }
}

/// A name that no earlier run has.
fn default_name(device: &Path) -> PathBuf {
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let date: String = now.chars().filter(char::is_ascii_alphanumeric).collect();
    PathBuf::from(format!("trimtab-bench-{name}-{date}.json"))
}

fn print(text: &str) -> Result<ExitCode> {
    io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    Ok(ExitCode::SUCCESS)
}
