//! `trimtab trim`.

mod pending;
mod watch;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use clap::ArgGroup;
use trimtab_core::document::trim::{Outcome, Sent, Target as Report};
use trimtab_core::document::{TRIM_SCHEMA, TrimDocument};
use trimtab_core::interrupt::Interrupt;
use trimtab_core::policy::Goals;
use trimtab_core::{Bytes, Extent};
use trimtab_keeper::service::control::RUN;
use trimtab_keeper::trim::{
    Announced, End, Journal, Listing, PreparedTrim, Ran, RefusedError, Request, Scope, Target, listed,
    mounted,
};
use trimtab_linux::PROCFS;
use trimtab_linux::environment::environment;
use trimtab_linux::stack::Machine;
use trimtab_linux::trim::{EVERYTHING, TrimError};

use crate::{FAILED, complain, failed, interrupt, pause, profile};
use pending::Pending;
use watch::Watch;

/// The exit code if no file system could be trimmed; the same as fstrim's.
const ALL_FAILED: u8 = 32;
/// The exit code if only some file systems could be trimmed.
const SOME_FAILED: u8 = 64;
/// How long a file system is left alone after --cancel.
const AFTER_CANCEL: Duration = Duration::from_secs(60);
/// The file that `--fstab` reads.
const FSTAB: &str = "/etc/fstab";
/// The reason of a trim that did not reach the end.
const STOPPED: &str = "interrupted; the same command without --full resumes here";

/// Trims mounted file systems: tells their drives which blocks are free
///
/// Accepts fstrim's options and returns its exit codes: 0 if all were trimmed, 1 if the only one failed, 32
/// if all of several failed, and 64 if some did. Slows down while others use the drive, and uses its full
/// speed otherwise. The same command resumes an interrupted trim.
///
/// Called as fstrim, by a link of that name such as the packages' /usr/lib/trimtab/fstrim, the program takes the
/// options of util-linux's fstrim, prints its messages and returns its exit codes.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("lists").args(["all", "fstab", "listed_in"]).multiple(true))]
pub struct Args {
    /// Mount points of the file systems
    #[arg(value_name = "MOUNT", required_unless_present_any = ["all", "fstab", "listed_in"])]
    mounts: Vec<PathBuf>,
    /// Trim all mounted file systems on devices that support discards
    #[arg(short, long, conflicts_with_all = ["mounts", "fstab", "listed_in"])]
    all: bool,
    /// Trim those of them in /etc/fstab, except lines with X-fstrim.notrim
    #[arg(short = 'A', long, conflicts_with_all = ["mounts", "listed_in"])]
    fstab: bool,
    /// Trim those of them in the first of these files that has any lines, in the format of fstab or mountinfo
    #[arg(short = 'I', long, value_name = "FILE:...", conflicts_with = "mounts")]
    listed_in: Option<String>,
    /// With -a, -A or -I, only file systems of these types, such as ext4,xfs, or all but them: noext4,xfs
    #[arg(short, long, value_name = "TYPE,...", requires = "lists")]
    types: Option<String>,
    /// Start at this byte of the file system
    #[arg(short, long, value_name = "SIZE", default_value = "0")]
    offset: Bytes,
    /// Trim this many bytes from there on; the default is to the end
    #[arg(short, long, value_name = "SIZE")]
    length: Option<Bytes>,
    /// Skip free extents shorter than this. Default: the length that skips at most 1 % of the free bytes, but
    /// no more than 1 MiB
    #[arg(short, long, value_name = "SIZE")]
    minimum: Option<Bytes>,
    /// Print what would be trimmed, and with --profile the predicted time, without trimming
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Also print the free space and how the drive was shared
    #[arg(short, long)]
    verbose: bool,
    /// Print only errors
    #[arg(short, long, conflicts_with_all = ["verbose", "json"])]
    quiet: bool,
    /// Ignore file systems that do not support trims
    #[arg(long)]
    quiet_unsupported: bool,
    /// Trim all free space, including what was trimmed before. btrfs repeats its chunks only: space outside of them
    /// is trimmed once until it is mounted anew
    #[arg(long)]
    full: bool,
    /// The highest increase in the mean latency of others' reads and writes
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "1ms")]
    max_latency_added: Duration,
    /// The highest share of time, in percent, that trims may use on a busy drive; below 1, the 99th
    /// percentile of others' latency is unaffected
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0.5")]
    max_busy: f64,
    /// Instead of a trim, end those of these mount points that are under way, also the service's, and start none for a minute;
    /// for scripts that unmount
    #[arg(long, requires = "mounts", conflicts_with_all = ["lists", "dry_run", "json"])]
    cancel: bool,
    /// Trim only while nobody else uses the drive
    #[arg(long)]
    idle_only: bool,
    /// Trim as fast as fstrim, regardless of others
    #[arg(long, conflicts_with_all = ["max_latency_added", "max_busy", "idle_only"])]
    unpaced: bool,
    /// The drive's profile, by name or file, to predict the time of a dry run and of the first slices
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Print JSON (schema trimtab/trim/1)
    #[arg(long)]
    json: bool,
    /// The directory of the service's sockets
    #[arg(long, value_name = "DIRECTORY", default_value = RUN, hide = true)]
    run: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    if args.cancel {
        for mount in &args.mounts {
            let said = pause::pause(&args.run, Some(mount), AFTER_CANCEL)?;
            if !args.quiet {
                println!("{said}");
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let machine = Machine::live();
    let request = request(&args)?;
    let paths = paths(&args, &machine)?;
    let interrupt = interrupt()?;
    let mut document = TrimDocument {
        schema: TRIM_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().collect(),
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        environment: environment(Path::new(PROCFS))?,
        dry_run: args.dry_run,
        targets: Vec::new(),
    };
    let job = Job {
        machine: &machine,
        request: &request,
        run: &args.run,
        is_service_silent: &AtomicBool::new(false),
        dry_run: args.dry_run,
        shows_progress: !args.quiet,
        interrupt: &interrupt,
    };
    if paths.is_empty() && args.verbose {
        complain(&"no mounted file system is selected: nothing is trimmed");
    }
    for (index, path) in paths.iter().enumerate() {
        if interrupt.is_set() {
            let left = &paths[index..];
            complain(&format_args!("interrupted before {} was started", left[0].display()));
            document
                .targets
                .extend(left.iter().map(|path| Report { outcome: Outcome::Stopped, ..report(path) }));
            break;
        }
        document.targets.extend(in_thread(|| trim(&args, &job, path)));
    }
    let says_why = !args.quiet && !args.quiet_unsupported;
    if args.mounts.is_empty() && !paths.is_empty() && document.targets.is_empty() && says_why {
        let count = paths.len();
        complain(&format_args!(
            "nothing trimmed: none of {count} file systems takes trims (-v says why, and trimtab doctor more)"
        ));
    }
    let text = if args.json {
        serde_json::to_string_pretty(&document)? + "\n"
    } else if args.quiet {
        String::new()
    } else {
        trimtab_report::trim::text(&document, args.verbose)
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")?;
    if interrupt.is_set() && document.targets.iter().any(|target| target.outcome == Outcome::Stopped) {
        return Ok(failed());
    }
    Ok(exit_code(&document.targets, args.mounts.len() == 1, args.quiet_unsupported))
}

/// Runs `work` in a thread of its own, and waits for it. The kernel delivers a signal to the main thread even
/// if that is blocked in an uninterruptible call; the signal would only be handled once the drive answers.
pub fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn percent(text: &str) -> Result<f64> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let Ok(percent) = number.parse::<f64>() else { bail!("write it like 0.5") };
    ensure!(percent > 0.0 && percent <= 100.0, "more than 0, and at most 100");
    Ok(percent)
}

fn request(args: &Args) -> Result<Request> {
    let end = match args.length {
        Some(Bytes(0)) => bail!("--length 0 is nothing to trim"),
        Some(length) => Bytes(args.offset.0.saturating_add(length.0)),
        None => EVERYTHING.end,
    };
    let goals = Goals {
        max_latency_added: args.max_latency_added,
        max_busy_share: args.max_busy / 100.0,
        idle_only: args.idle_only,
        ..Goals::default()
    };
    Ok(Request {
        range: Extent::new(args.offset, end),
        minimum: args.minimum,
        scope: Scope::Everything,
        full: args.full,
        goals: (!args.unpaced).then_some(goals),
        profile: args.profile.as_deref().map(profile::load).transpose()?.map(|(profile, _)| profile),
    })
}

/// Returns the selected mount points.
fn paths(args: &Args, machine: &Machine) -> Result<Vec<PathBuf>> {
    let listing = match (&args.listed_in, args.fstab, args.all) {
        (Some(lists), ..) => {
            let lists: Vec<_> = lists.split(':').filter(|list| !list.is_empty()).map(PathBuf::from).collect();
            listed(machine, &lists)?
        }
        (None, true, _) => listed(machine, &[PathBuf::from(FSTAB)])?,
        (None, false, true) => Listing { mounts: mounted(machine)?, ..Listing::default() },
        (None, false, false) => return Ok(args.mounts.clone()),
    };
    let listing = match &args.types {
        Some(types) => listing.of_types(machine, types)?,
        None => listing,
    };
    for (mount, reason) in listing.passed_over.iter().filter(|_| args.verbose) {
        complain(&format_args!("passed over: {}: {reason}", mount.display()));
    }
    Ok(listing.mounts)
}

/// Returns the report of a target before it is examined.
fn report(path: &Path) -> Report {
    let target = path.display().to_string();
    Report { target, outcome: Outcome::Failed, reason: None, plan: None, sent: None }
}

/// Trims the file system mounted at `path`, and prints errors at once. Returns `None` if it is one of many and
/// does not support trims.
fn trim(args: &Args, job: &Job, path: &Path) -> Option<Report> {
    let mut report = report(path);
    let is_one_of_many = args.mounts.is_empty();
    if let Err(error) = job.attempt(path, &mut report) {
        if is_one_of_many && error.downcast_ref().is_some_and(RefusedError::is_unsupported) {
            if args.verbose {
                complain(&format_args!("passed over: {error:#}"));
            }
            return None;
        }
        let is_unsupported = is_unsupported(&error);
        report.outcome = if is_unsupported { Outcome::Unsupported } else { Outcome::Failed };
        if !(is_unsupported && args.quiet_unsupported) {
            complain(&format_args!("{error:#}"));
        }
        report.reason = Some(format!("{error:#}"));
    } else if report.outcome == Outcome::Stopped {
        complain(&format_args!("{}: {STOPPED}", report.target));
        report.reason = Some(STOPPED.to_owned());
    }
    Some(report)
}

/// Returns whether the file system or its device does not support trims.
pub fn is_unsupported(error: &anyhow::Error) -> bool {
    error.downcast_ref().is_some_and(RefusedError::is_unsupported)
        || matches!(error.downcast_ref(), Some(TrimError::Unsupported { .. }))
}

/// The parameters of a trim that all its file systems share.
pub struct Job<'a> {
    pub machine: &'a Machine,
    pub request: &'a Request,
    /// The directory of the service's sockets.
    pub run: &'a Path,
    /// Whether the service did not answer for an earlier file system.
    pub is_service_silent: &'a AtomicBool,
    /// Only plan.
    pub dry_run: bool,
    pub shows_progress: bool,
    pub interrupt: &'a Interrupt,
}

impl Job<'_> {
    /// Trims the file system mounted at `path`; `report` says how far it got, also after an error.
    pub fn attempt(&self, path: &Path, report: &mut Report) -> Result<()> {
        let mut watch = Watch::new(path, self.shows_progress, self.interrupt.clone());
        let target = Target::open(self.machine, path)?;
        report.target = target.mount().display().to_string();
        // A pause that begins later finds the trim. Without the rights to announce it, the trim fails anyway.
        let announced = if self.dry_run { None } else { Announced::new(self.run, target.mount()).ok() };
        if !self.dry_run {
            let paused = pause::check(self.run, target.mount_points());
            paused.with_context(|| target.mount().display().to_string())?;
        }
        // A trim of all free space includes the pending extents.
        let is_whole = self.request.range == EVERYTHING;
        let pending = if is_whole { self.take_pending(target.mount()) } else { None };
        if self.interrupt.is_set() {
            report.outcome = Outcome::Stopped;
            return Ok(());
        }
        watch.heard();
        let only = pending.as_ref().filter(|_| !self.request.full);
        let scope = only.map(|pending| Scope::Pending(pending.extents().clone()));
        let request = &Request { scope: scope.unwrap_or(Scope::Everything), ..self.request.clone() };
        if self.dry_run {
            let last = Journal::peek(target.id());
            let prepared = PreparedTrim::new(&target, request, last.as_ref())?;
            report.plan = Some(prepared.document(&target, request));
            report.outcome = Outcome::Planned;
            return Ok(());
        }
        let mut journal = Journal::open(target.id(), target.mount())?;
        let prepared = PreparedTrim::new(&target, request, journal.last())?;
        report.plan = Some(prepared.document(&target, request));
        watch.plans(prepared.left());
        let spared = pending.as_ref().map(|pending| prepared.skipped(pending.extents())).unwrap_or_default();
        let ran = prepared.run(
            &target,
            request,
            Some(&mut journal),
            announced.as_ref(),
            self.interrupt,
            &mut watch,
        )?;
        let reached = if matches!(ran.end, End::Done) { EVERYTHING.end } else { watch.has_reached() };
        pending.into_iter().for_each(|pending| pending.trimmed(reached, &spared));
        drop(watch);
        report.sent = Some(sent(&ran, &target));
        report.outcome = match ran.end {
            End::Done => Outcome::Done,
            End::Stopped => Outcome::Stopped,
            End::Refused(error) => return Err(error.into()),
            End::Lost(error) => return Err(error.into()),
        };
        Ok(())
    }

    /// Leases the service's pending extents of the file system mounted at `mount`. Says so if it does not answer, and does
    /// not wait for it again.
    fn take_pending(&self, mount: &Path) -> Option<Pending> {
        if self.is_service_silent.load(Ordering::Relaxed) {
            return None;
        }
        Pending::take(self.run, mount, self.interrupt).unwrap_or_else(|error| {
            self.is_service_silent.store(true, Ordering::Relaxed);
            complain(&format_args!("{}: {error}; trimming without it", mount.display()));
            None
        })
    }
}

fn sent(ran: &Ran, target: &Target) -> Sent {
    Sent {
        slices: ran.slices,
        discards: ran.discards,
        bytes: ran.bytes,
        reported_bytes: ran.reported,
        uncounted: target.uncounted(),
        others_discards: ran.others_discards,
        others_bytes: ran.others_bytes,
        held_wall_s: ran.held.as_secs_f64(),
        wall_s: ran.took.as_secs_f64(),
        latency_added_wall_s: ran.latency_added.as_secs_f64(),
    }
}

/// Returns the exit code that fstrim would.
fn exit_code(targets: &[Report], is_single: bool, quiet_unsupported: bool) -> ExitCode {
    let is_well = |target: &&Report| match target.outcome {
        Outcome::Planned | Outcome::Done => true,
        Outcome::Unsupported => quiet_unsupported,
        Outcome::Stopped | Outcome::Failed => false,
    };
    let well = targets.iter().filter(is_well).count();
    ExitCode::from(match targets.len() - well {
        0 => return ExitCode::SUCCESS,
        _ if is_single => FAILED,
        failed if failed == targets.len() => ALL_FAILED,
        _ => SOME_FAILED,
    })
}
