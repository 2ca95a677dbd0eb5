//! `trimtab drive`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use trimtab_core::Bytes;
use trimtab_core::profile;
use trimtab_core::stats::LatencySummary;
use trimtab_drive::{Clock, CreateOptions, Drive, DriveState, DriveStats, Listed, PathTimes, Room};

/// Creates and inspects emulated SSDs that are real block devices
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Create(CreateArgs),
    /// Lists the drives
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Shows what a drive did: commands, wear and latencies, in model time
    Stats {
        /// The drive's name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Removes a drive and its data
    Rm {
        /// The drive's name
        name: String,
    },
    /// Lists the drive profiles that come with trimtab, or prints one
    Profiles {
        /// Print this profile, to copy and change it
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    #[command(hide = true)]
    Serve {
        name: String,
        /// The process that serves the drive, which then is taken down
        #[arg(long, value_name = "PID")]
        release: Option<i32>,
    },
}

/// Creates a drive and prints its block device
#[derive(clap::Args)]
struct CreateArgs {
    /// Its name: letters, digits, dashes and underscores, the first no dash
    name: String,
    /// A built-in profile's name, or the path of a profile, ending in .toml
    #[arg(long)]
    profile: String,
    /// Its size, such as 8G
    #[arg(long)]
    size: Bytes,
    /// Make it a used drive: all of its flash has been written before (SNIA preconditioning)
    #[arg(long)]
    preconditioned: bool,
    /// Make it a used drive that was then overwritten at random three times, or as often as its profile says
    #[arg(long)]
    aged: bool,
    /// Whose time counts: model time, at full speed, or real time, each reply held until it is due
    #[arg(long, value_enum, default_value_t = ClockName::Model)]
    clock: ClockName,
    /// Run real time this many times faster
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    speed: f64,
    /// Keep the data in this sparse file instead of memory; `drive rm` deletes it if it is still there
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Allow a drive that is larger than memory, or than the disk of its file: room is taken as data is written, and
    /// writes fail when there is none left
    #[arg(long)]
    sparse: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum ClockName {
    Model,
    Real,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let out = &mut io::stdout().lock();
    if let Verb::Create(_) | Verb::Stats { .. } | Verb::Rm { .. } = args.verb {
        tell_of_dead()?;
    }
    match args.verb {
        Verb::Create(args) => create(args, out)?,
        Verb::Ls { json } => ls(json, out)?,
        Verb::Stats { name, json } => {
            let stats = Drive::open(&name)?.stats()?;
            if json { print_json(&stats, out)? } else { print_stats(&stats, out)? }
        }
        Verb::Rm { name } => trimtab_drive::remove(&name)?,
        Verb::Profiles { name, json } => profiles(name.as_deref(), json, out)?,
        Verb::Serve { name, release: None } => trimtab_drive::serve(&name)?,
        Verb::Serve { name, release: Some(server) } => trimtab_drive::release(&name, server)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Cleans up after servers that were killed, and says so: what was mounted from their drives is
/// gone.
pub fn tell_of_dead() -> anyhow::Result<()> {
    for drive in trimtab_drive::list()? {
        if drive.state == DriveState::Dead {
            let name = drive.name;
            writeln!(
                io::stderr(),
                "trimtab: the server of drive {name} was killed: unmounted and removed it"
            )?;
        }
    }
    Ok(())
}

fn create(args: CreateArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let clock = match args.clock {
        ClockName::Real => Clock::Real { speed: args.speed },
        ClockName::Model if args.speed == 1.0 => Clock::Model,
        ClockName::Model => anyhow::bail!("--speed is for real time; add --clock real"),
    };
    let drive = Drive::create(&CreateOptions {
        name: args.name,
        profile: crate::profile::load_aged(&args.profile, args.aged)?.0,
        size: args.size,
        preconditioned: args.preconditioned || args.aged,
        clock,
        data: args.data,
        server: std::env::current_exe().context("cannot find trimtab's own executable")?,
        owned: false,
        room: if args.sparse { Room::Sparse } else { Room::Checked },
    })?;
    Ok(writeln!(out, "{}", drive.device().display())?)
}

/// A drive as `ls` shows it.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    drive: Listed,
    /// Its profile, size and clock; none where it has no block device.
    #[serde(flatten)]
    about: Option<About>,
    /// Why the server says nothing.
    error: Option<String>,
}

#[derive(Serialize)]
struct About {
    profile: String,
    size: Bytes,
    clock: Clock,
}

impl Row {
    fn of(drive: Listed) -> Self {
        let is_running = drive.state == DriveState::Running && drive.device.is_some();
        let stats = is_running.then(|| Drive::open(&drive.name).and_then(|drive| drive.stats()));
        let (about, error) = match stats {
            Some(Ok(DriveStats { profile, size, clock, .. })) => (Some(About { profile, size, clock }), None),
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, None),
        };
        Self { drive, about, error }
    }
}

fn ls(json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let rows: Vec<_> = trimtab_drive::list()?.into_iter().map(Row::of).collect();
    if json {
        return print_json(&rows, out);
    }
    for Row { drive, about, error } in rows {
        match (drive.state, drive.device) {
            (DriveState::Running, Some(device)) => {
                let about = about
                    .map(|about| format!("{}, {}, clock {}", about.profile, about.size, clock(about.clock)));
                let about = about.or(error).unwrap_or_default();
                writeln!(out, "{:<32} {:<12} {about}", drive.name, device.display().to_string())?;
            }
            (DriveState::Running, None) => {
                writeln!(out, "{:<32} running, without a block device", drive.name)?;
            }
            (DriveState::Dead, _) => {
                writeln!(out, "{:<32} dead: its server was killed; cleaned up", drive.name)?;
            }
        }
    }
    Ok(())
}

fn profiles(name: Option<&str>, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    if let Some(name) = name {
        let (profile, text) = crate::profile::load(name)?;
        return if json { print_json(&profile, out) } else { Ok(out.write_all(text.as_bytes())?) };
    }
    let profiles = profile::builtin()?;
    if json {
        return print_json(&profiles, out);
    }
    for profile in profiles {
        writeln!(out, "{:<24} {}", profile.name, profile.model)?;
    }
    Ok(())
}

fn print_json(value: &impl serde::Serialize, out: &mut impl Write) -> anyhow::Result<()> {
    Ok(writeln!(out, "{}", serde_json::to_string_pretty(value)?)?)
}

fn print_stats(stats: &DriveStats, out: &mut impl Write) -> io::Result<()> {
    let mut row = |label: &str, value: String| writeln!(out, "{label:<20} {value}");
    let counters = &stats.counters;
    row("device", stats.device.display().to_string())?;
    row("profile", format!("{} ({})", stats.profile, stats.model))?;
    row("size", format!("{}, {} held by its data", stats.size, stats.data_held))?;
    row("clock", clock(stats.clock))?;
    if let Clock::Real { .. } = stats.clock {
        let PathTimes { transfer, discard } = stats.path;
        let microseconds = |way: Duration| format!("{:.0} us", way.as_secs_f64() * 1e6);
        let (transfer, discard) = (microseconds(transfer), microseconds(discard));
        row("path", format!("{transfer} of wall time for reads and writes, {discard} for discards"))?;
    }
    row("model time", counters.model_ns.to_string())?;
    row("effective spare", format!("{:.4}", stats.effective_spare))?;
    let waf = counters.waf().map_or("none yet".to_owned(), |waf| format!("{waf:.3}"));
    row("write amplification", waf)?;
    let spread = stats.erase_spread;
    row(
        "erases",
        format!(
            "{} of {}; a block {} to {}, mean {:.2}",
            counters.erases, stats.erase_block, spread.min, spread.max, spread.mean
        ),
    )?;
    let commands = |count: u64, bytes: Bytes, latency: LatencySummary| {
        format!(
            "{count} ({bytes}); latency p50 {}, p99 {}, max {}",
            latency.p50_ns, latency.p99_ns, latency.max_ns
        )
    };
    row("reads", commands(counters.reads, counters.read_bytes, stats.latency.read))?;
    row("writes", commands(counters.writes, counters.write_bytes, stats.latency.write))?;
    row("discards", commands(counters.discards, counters.discard_bytes, stats.latency.discard))?;
    row("flushes", counters.flushes.to_string())?;
    row("discards took", counters.discard_busy_ns.to_string())?;
    let limits = stats.limits;
    row(
        "discard limits",
        format!("granularity {}, at most {}", limits.discard_granularity, limits.discard_max),
    )?;
    row("queue", format!("{} requests", limits.requests))?;
    row("server", format!("process {}", stats.server))
}

fn clock(clock: Clock) -> String {
    match clock {
        Clock::Model => "model".to_owned(),
        Clock::Real { speed } => format!("real, {speed} times as fast"),
    }
}
