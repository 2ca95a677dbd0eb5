//! `trimtab compare`: what each discard policy costs and gains.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::builder::NonEmptyStringValueParser;
use trimtab_core::Bytes;
use trimtab_core::document::{Engine, Filling, ProcessorCosts};
use trimtab_core::policy::PolicyChoice;
use trimtab_core::profile::Profile;
use trimtab_core::units::UnitError;
use trimtab_guest::KernelChoice;
use trimtab_keeper::service::control::RUN;
use trimtab_lab::compare::{CompareOptions, Place, SmartProfile, Timing, VirtualOptions, compare};
use trimtab_lab::fs::FileSystem;
use trimtab_lab::testbed::LARGEST_KEPT;
use trimtab_lab::workload::{Maintenance, PostmarkOptions, UnknownWorkload, WorkloadOptions};

use crate::outputs::Outputs;
use crate::progress::Bar;
use crate::{ended, interrupt, profile};

/// Compares discard policies: how long each makes you wait, what others feel, and what it wears
///
/// Every run makes a file system on an emulated drive of its own, works on it with real file
/// operations, and verifies the data. Policies act beside the workload, as they do on a real
/// machine. Times are drive time: seconds by the clock of the emulated drive.
#[derive(clap::Args)]
pub struct Args {
    /// File systems to run on
    #[arg(long, value_name = "FS,...", value_delimiter = ',', default_value = "ext4", conflicts_with = "on")]
    fs: Vec<FileSystem>,
    /// Policies to compare: none, online, batched (FITRIM at the start of every pause), batched:1h
    /// (by a timer), smart (the service), and on btrfs async [default: none,online,batched,smart]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    policy: Vec<PolicyChoice>,
    /// Lengths of the workload's pauses, in drive time; every policy is run with each. Has no effect
    /// on laptop, which has pauses of its own, on builds, which has none, and on your own command
    #[arg(long, value_name = "TIME,...", value_delimiter = ',', default_value = "0s,1m", value_parser = span)]
    idle: Vec<Duration>,
    /// Drive profile that the service is given: guessed (the built-in one for a drive of that
    /// interface, as on a real machine), exact (the emulated drive's own), or a .toml file
    #[arg(long, value_name = "PROFILE", default_value = "guessed", value_parser = NonEmptyStringValueParser::new())]
    smart_profile: String,
    /// Clock of the emulated drives: virtual (a guest in QEMU whose clock skips idle time: figures repeat
    /// within 1 %, however busy this machine is, and no root is needed), or real (this machine's own
    /// kernel; needs root) [default: virtual; real with --on]
    #[arg(long, value_name = "CLOCK", conflicts_with = "on")]
    clock: Option<ClockName>,
    #[command(flatten)]
    engine: EngineArgs,
    /// Kernel of the guests in virtual time: debian:6.12 or another version of Debian's, or the path of a
    /// vmlinuz, with the directory of its modules after a colon if that is not /lib/modules/RELEASE; the
    /// drive in the guest needs Linux 6.11 or later
    #[arg(long, value_name = "KERNEL", default_value = "debian:6.12", conflicts_with = "on")]
    kernel: KernelChoice,
    /// Files or directories that your command needs in the guest
    #[arg(long, value_name = "PATH", conflicts_with = "on")]
    guest_file: Vec<PathBuf>,
    /// Wall time after which a guest counts as hung
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = span)]
    guest_limit: Duration,
    /// Drive seconds per wall second with --clock real: N makes runs N times shorter, but 1 s of processor
    /// time then counts as N s [default: 1]
    #[arg(long, value_name = "N")]
    speed: Option<f64>,
    /// Time from one read of the probe to the next, in drive time; 0s for no probe. The probe reads
    /// 4 KiB of a live file from the first step to the last: its latency is what others feel
    /// [default: 100ms, for the laptop 5s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    probe: Option<Duration>,
    /// Workload: fragment (fill, delete piecemeal, write), tree (unpack and delete sources), laptop (24
    /// hours of it), database (tables written, merged and deleted), builds (check out, compile,
    /// delete, without a pause), postmark (a mail server's small files), aged (a file system in use) or
    /// what is done to one: mkfs, fsck, resize, fitrim; a command after -- is a workload of its own
    #[arg(long, value_name = "NAME", default_value = "fragment", conflicts_with = "command")]
    workload: String,
    /// Tree to unpack and delete: a directory or a tarball [default: a kernel tree's shape]
    #[arg(long, value_name = "PATH")]
    tree: Option<PathBuf>,
    /// Files of the built-in tree [default: 36706, those of a Linux 2.6.39]
    #[arg(long, value_name = "N", conflicts_with = "tree", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tree_files: Option<u32>,
    /// Days of the workload laptop, such as 14 to see what a weekly fstrim does (batched:1w) [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=366))]
    days: Option<u32>,
    /// Parameters of PostMark, such as files=500,transactions=10000,sizes=512..10K; also
    /// subdirectories=10,read_bias=5,create_bias=5 [default: files over a quarter of the space, two
    /// transactions for each, 500 B to 10000 B, ten subdirectories, biases of 5]
    #[arg(long, value_name = "NAME=VALUE,...")]
    postmark: Option<PostmarkOptions>,
    /// Drive profile: a built-in name (see `trimtab drive profiles`) or a file that ends in .toml
    #[arg(
        long,
        alias = "drive",
        value_name = "PROFILE",
        default_value = "samsung-870-evo",
        value_parser = NonEmptyStringValueParser::new()
    )]
    profile: String,
    /// Begin each run on an aged drive: after all of it was written in sequence, it was overwritten at random three
    /// times, or as often as its profile says
    #[arg(long, conflicts_with = "on")]
    aged: bool,
    /// Do not let the kernel merge adjacent requests (nomerges = 2): each discard reaches the drive as the file system
    /// sent it
    #[arg(long, conflicts_with = "on")]
    no_merges: bool,
    /// Size of the emulated drive, or whole, for the drive that the profile describes. With --on, the most space that the
    /// workload may use
    #[arg(long, default_value = "512M")]
    size: DriveSize,
    /// Share of the file system that is full before the workload begins, of files that are allocated and not written
    /// [default: 0, and 80 above 16 GiB]
    #[arg(long, value_name = "PERCENT", conflicts_with = "on", value_parser = clap::value_parser!(u32).range(0..=95))]
    full: Option<u32>,
    /// The most space that the workload uses [default: all that is free, and 1 GiB above 16 GiB]
    #[arg(long, value_name = "SIZE", conflicts_with = "on")]
    room: Option<Bytes>,
    /// How often each policy is run [default: 1 in virtual time, where runs differ by less than 1 %; else 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Writers at once: N copies of the workload, each with an Nth of the work and of the space, in a directory of its
    /// own. Not for your own command or tree, nor for mkfs, fsck, resize and fitrim
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    writers: u32,
    /// Seed of file contents and trees
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the results to this file, after every run
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results and an HTML page to this directory
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Replace earlier results that --json or --report would write to
    #[arg(long)]
    overwrite: bool,
    /// Run in this directory, on whatever it is mounted on: nothing is mounted or formatted, and
    /// only wall time is known
    #[arg(long, value_name = "DIR", conflicts_with = "profile")]
    on: Option<PathBuf>,
    /// Where the service's sockets are
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
    /// A command to run as the workload; {dir} is replaced by the directory to work in
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The size of an emulated drive as users give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveSize {
    /// A number of bytes.
    Is(Bytes),
    /// The size of the drive that the profile describes.
    Whole,
}

impl FromStr for DriveSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "whole" { Ok(Self::Whole) } else { text.parse().map(Self::Is) }
    }
}

/// A clock that users can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ClockName {
    /// The clock of guests, which skips idle time.
    Virtual,
    /// This machine's.
    Real,
}

/// An engine that users can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum EngineName {
    /// QEMU.
    Qemu,
    /// User Mode Linux.
    Uml,
}

/// The options of the engine that runs the guests.
#[derive(clap::Args)]
pub struct EngineArgs {
    /// Program that runs the guests in virtual time: qemu, or uml (User Mode Linux, much faster: computing takes
    /// no time there, and the kernel's work a fixed one). The first run with uml builds it, which takes minutes
    #[arg(long, value_name = "ENGINE", default_value = "qemu", conflicts_with_all = ["on", "kernel"])]
    engine: EngineName,
    /// Nanoseconds of virtual time that the kernel's work takes with --engine uml: none, default, or
    /// syscall=N,fault=N,request=N,switch=N,data=N,copy=N,cache=N (the last three for each KiB)
    #[arg(long, value_name = "COSTS", conflicts_with = "on")]
    processor: Option<ProcessorCosts>,
}

impl EngineArgs {
    /// The engine that they ask for.
    ///
    /// # Errors
    /// Costs of a processor for an engine that has one of its own.
    pub fn engine(&self) -> Result<Engine> {
        match (self.engine, self.processor) {
            (EngineName::Qemu, Some(_)) => bail!("--processor is for User Mode Linux; add --engine uml"),
            (EngineName::Qemu, None) => Ok(Engine::Qemu),
            (EngineName::Uml, processor) => Ok(Engine::Uml { processor: processor.unwrap_or_default() }),
        }
    }

    /// Refuses options that the real clock has no use for.
    pub fn refuse_with_real_clock(&self) -> Result<()> {
        if self.engine == EngineName::Uml {
            bail!("--engine is for virtual time; leave out --clock real");
        }
        if self.processor.is_some() {
            bail!("--processor is for virtual time with --engine uml; leave out --clock real");
        }
        Ok(())
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let outputs = Outputs::new(args.json.as_deref(), args.report.as_deref(), "compare.json", args.overwrite)?;
    let workload = workload(&args)?;
    let probe = args.probe.unwrap_or_else(|| workload.probe_interval());
    let timing = timing(&args)?;
    let is_virtual = matches!(timing, Timing::Virtual(_));
    let options = CompareOptions {
        workload,
        place: place(&args)?,
        timing,
        smart_profile: smart_profile(&args)?,
        merges: !args.no_merges,
        policies: args.policy,
        idle: args.idle,
        runs: args.runs.unwrap_or(if is_virtual { 1 } else { 3 }),
        writers: args.writers,
        seed: args.seed,
        probe_interval: Some(probe).filter(|interval| !interval.is_zero()),
        program: std::env::current_exe().context("cannot find the running executable")?,
        command: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
    };
    let document = compare(options, &interrupt()?, &mut Bar::new(), &mut |document| {
        outputs.save(document, trimtab_report::compare::html)
    })?;
    if !document.runs.is_empty() {
        let out = &mut io::stdout().lock();
        write!(out, "{}", trimtab_report::compare::text(&document, crate::colour()))?;
        if let Some(page) = outputs.page() {
            writeln!(out, "\nReport: {}", page.display())?;
        }
    }
    Ok(ended(document.stopped.as_deref()))
}

fn workload(args: &Args) -> Result<WorkloadOptions> {
    if (args.tree.is_some() || args.tree_files.is_some()) && args.workload != "tree" {
        bail!("--tree and --tree-files go with --workload tree");
    }
    if args.days.is_some() && args.workload != "laptop" {
        bail!("--days goes with --workload laptop");
    }
    if args.postmark.is_some() && args.workload != "postmark" {
        bail!("--postmark goes with --workload postmark");
    }
    Ok(match args.workload.as_str() {
        _ if !args.command.is_empty() => WorkloadOptions::Exec { command: args.command.clone() },
        "fragment" => WorkloadOptions::Fragment,
        "tree" => WorkloadOptions::Tree { source: args.tree.clone(), files: args.tree_files },
        "laptop" => WorkloadOptions::Laptop { days: args.days.unwrap_or(1) },
        "database" => WorkloadOptions::Database,
        "builds" => WorkloadOptions::Builds,
        "postmark" => WorkloadOptions::Postmark(args.postmark.clone().unwrap_or_default()),
        "aged" => WorkloadOptions::Aged,
        "mkfs" => WorkloadOptions::Maintenance(Maintenance::Mkfs),
        "fsck" => WorkloadOptions::Maintenance(Maintenance::Fsck),
        "resize" => WorkloadOptions::Maintenance(Maintenance::Resize),
        "fitrim" => WorkloadOptions::Maintenance(Maintenance::Fitrim),
        name => return Err(UnknownWorkload { name: name.to_owned() }.into()),
    })
}

fn place(args: &Args) -> Result<Place> {
    if let Some(dir) = &args.on {
        let DriveSize::Is(room) = args.size else {
            bail!("--size whole is for emulated drives; leave out --on")
        };
        return Ok(Place::Directory { dir: dir.clone(), room, service: args.run.clone() });
    }
    let (profile, profile_toml) = profile::load_aged(&args.profile, args.aged)?;
    let size = match (args.size, &profile.geometry.capacity) {
        (DriveSize::Is(size), _) => size,
        (DriveSize::Whole, Some(capacity)) => whole(capacity.value, &profile),
        (DriveSize::Whole, None) => {
            bail!(
                "the profile {} does not say how large the whole drive is; give --size a number",
                profile.name
            )
        }
    };
    Ok(Place::Emulated {
        profile: Box::new(profile),
        profile_toml,
        size,
        filling: filling(size, args.full, args.room),
        file_systems: args.fs.clone(),
    })
}

/// Returns the part of `capacity` that an emulated drive can have: whole mapping pages, and whole blocks of 4 KiB.
fn whole(capacity: Bytes, profile: &Profile) -> Bytes {
    let multiple = profile.geometry.mapping_page.value.0.max(4096);
    Bytes(capacity.0 / multiple * multiple)
}

/// Returns how the file system of a drive of `size` is filled, and what the workload may use of it.
fn filling(size: Bytes, full: Option<u32>, room: Option<Bytes>) -> Option<Filling> {
    let is_large = size > LARGEST_KEPT;
    if !is_large && full.is_none() && room.is_none() {
        return None;
    }
    let percent = full.unwrap_or(if is_large { LARGE_IS_FULL } else { 0 });
    let free = Bytes(size.0 / 100 * u64::from(100 - percent));
    let usual = if is_large { LARGE_ROOM } else { Bytes(free.0 / 10 * 9) };
    Some(Filling { percent, room: room.unwrap_or(usual) })
}

/// How full a large file system is unless the user says otherwise, in percent.
const LARGE_IS_FULL: u32 = 80;
/// The space that a workload uses of a large drive unless the user says otherwise.
const LARGE_ROOM: Bytes = Bytes::GIB;

fn timing(args: &Args) -> Result<Timing> {
    let clock = args.clock.unwrap_or(if args.on.is_some() { ClockName::Real } else { ClockName::Virtual });
    Ok(match (clock, args.speed) {
        (ClockName::Virtual, Some(_)) => bail!("--speed is for the real clock; add --clock real"),
        (ClockName::Virtual, None) => Timing::Virtual(VirtualOptions {
            engine: args.engine.engine()?,
            kernel: args.kernel.clone(),
            files: args.guest_file.clone(),
            limit: args.guest_limit,
        }),
        (ClockName::Real, Some(_)) if args.on.is_some() => {
            bail!("--speed is for emulated drives; leave out --on")
        }
        (ClockName::Real, speed) => {
            args.engine.refuse_with_real_clock()?;
            Timing::Real { speed: speed.unwrap_or(1.0) }
        }
    })
}

fn smart_profile(args: &Args) -> Result<SmartProfile> {
    Ok(match args.smart_profile.as_str() {
        "guessed" => SmartProfile::Guessed,
        "exact" if args.on.is_some() => {
            bail!("--smart-profile exact is for an emulated drive; leave out --on")
        }
        "exact" => SmartProfile::Exact,
        name => {
            let (profile, toml) = profile::load(name)
                .context("--smart-profile is guessed, exact, a built-in profile or a .toml file")?;
            SmartProfile::Given(profile.name, toml)
        }
    })
}

/// A length of time that a run can take.
fn span(text: &str) -> Result<Duration> {
    let length = humantime::parse_duration(text)?;
    if length > LONGEST {
        bail!("{text} is longer than {}", humantime::format_duration(LONGEST));
    }
    Ok(length)
}

/// The longest time that an option accepts.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

#[cfg(test)]
mod tests {
    use trimtab_core::Bytes;
    use trimtab_core::profile::Profile;

    use super::whole;

    #[test]
    fn a_whole_drive_ends_with_its_last_mapping_page() {
        let mut profile = Profile::named("samsung-870-evo").unwrap();
        let sold = Bytes(1_000_204_886_016);
        assert_eq!(whole(sold, &profile), sold);
        profile.geometry.mapping_page.value = Bytes(64 << 10);
        assert_eq!(whole(sold, &profile), Bytes(1_000_204_861_440));
        profile.geometry.mapping_page.value = Bytes(512);
        assert_eq!(whole(sold + Bytes(512), &profile), sold);
    }
}
