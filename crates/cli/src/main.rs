//! The `trimtab` binary: parses arguments, calls one library function for each verb, prints, and exits.

mod apart;
mod bench;
mod compare;
mod daemon;
mod doctor;
mod drive;
mod fstrim;
mod generate;
mod outputs;
mod pause;
mod power_cycle;
mod profile;
mod progress;
mod record;
mod report;
mod reproduce;
mod sim;
mod status;
mod sweep;
mod tallies;
mod trace;
mod trim;
mod watch;

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::{Context, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use trimtab_core::interrupt::Interrupt;
use trimtab_linux::PROCFS;
use trimtab_linux::namespace::{check_is_other, enter_mounts_of};
use trimtab_observe::foreground::CommandError;
use trimtab_observe::record::RecordError;

/// Measures, explains and steers discards (TRIM, UNMAP, deallocate)
#[derive(Parser)]
#[command(name = "trimtab", version, propagate_version = true)]
struct Cli {
    /// See the mounts and files that this process sees: in a container with the host's processes, 1 is the host
    #[arg(long, value_name = "PID", global = true)]
    mounts_of: Option<u32>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Bench(Box<bench::Args>),
    Compare(Box<compare::Args>),
    Daemon(daemon::Args),
    Doctor(doctor::Args),
    Drive(drive::Args),
    Generate(generate::Args),
    Pause(pause::Args),
    Record(record::Args),
    Report(report::Args),
    Reproduce(reproduce::Args),
    Resume(pause::ResumeArgs),
    Sim(sim::Args),
    Status(status::Args),
    Sweep(Box<sweep::Args>),
    Trace(trace::Args),
    Trim(Box<trim::Args>),
    Watch(watch::Args),
}

/// This program, also where its file has been replaced or is out of sight.
const PROGRAM: &str = "/proc/self/exe";
/// The exit code of a command that failed.
const FAILED: u8 = 1;
/// The exit code of an invalid command line.
const USAGE: u8 = 2;
/// The exit code if the device does not support the operation.
const UNSUPPORTED: u8 = 3;
/// The exit code if the command to record or watch does not exist, as in a shell.
const NOT_FOUND: u8 = 127;
/// The exit code of what a signal stopped, less the signal's number, as in a shell: 130 after Ctrl-C.
const STOPPED: i32 = 128;
/// The last signal that asked to stop; zero before there was one.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// The exit code of a doctor that found what should be mended.
const FOUND: u8 = 4;

fn main() -> ExitCode {
    if trimtab_guest::is_init() {
        trimtab_guest::run_as_init();
    }
    if fstrim::is_called() {
        return fstrim::run();
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    finished(enter(&cli).and_then(|done| match done {
        Some(code) => Ok(code),
        None => run(cli.verb),
    }))
}

/// Enters the requested mount namespace, which the kernel allows only before there are threads. Returns the exit code if a
/// child ran the verb there.
fn enter(cli: &Cli) -> Result<Option<ExitCode>> {
    let Some(process) = cli.mounts_of else { return Ok(None) };
    check_is_other(Path::new(PROCFS), process)?;
    if matches!(cli.verb, Verb::Daemon(_)) && !apart::is_inside() {
        return apart::run().map(Some);
    }
    enter_mounts_of(Path::new(PROCFS), process)?;
    Ok(None)
}

fn run(verb: Verb) -> Result<ExitCode> {
    // A service removes what an earlier one left.
    if !matches!(verb, Verb::Daemon(_)) {
        trace::guard_instances();
    }
    match verb {
        Verb::Bench(args) => bench::run(*args),
        Verb::Compare(args) => compare::run(*args),
        Verb::Daemon(args) => daemon::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Drive(args) => drive::run(args),
        Verb::Generate(args) => generate::run(args),
        Verb::Pause(args) => pause::run(args),
        Verb::Record(args) => record::run(args),
        Verb::Report(args) => report::run(args),
        Verb::Reproduce(args) => reproduce::run(args),
        Verb::Resume(args) => pause::resume(args),
        Verb::Sim(args) => sim::run(args),
        Verb::Status(args) => status::run(args),
        Verb::Sweep(args) => sweep::run(*args),
        Verb::Trace(args) => trace::run(args),
        Verb::Trim(args) => trim::run(*args),
        Verb::Watch(args) => watch::run(args),
    }
}

/// Returns the exit code of a verb, and prints its error.
fn finished(outcome: Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        if has_kind(&error, io::ErrorKind::BrokenPipe) && reader_is_gone() {
            return ExitCode::SUCCESS;
        }
        complain(&format_args!("{error:#}"));
        let is_missing = is_of_command(&error) && has_kind(&error, io::ErrorKind::NotFound);
        if is_missing { ExitCode::from(NOT_FOUND) } else { failed() }
    })
}

/// Returns the exit code of a command that failed: 128 and the signal's number if one asked it to stop.
fn failed() -> ExitCode {
    let code = match SIGNAL.load(Ordering::SeqCst) {
        0 => None,
        signal => u8::try_from(STOPPED + signal).ok(),
    };
    ExitCode::from(code.unwrap_or(FAILED))
}

/// Whether an error of the system with this kind is the cause of `error`.
fn has_kind(error: &anyhow::Error, kind: io::ErrorKind) -> bool {
    error.chain().any(|cause| cause.downcast_ref().is_some_and(|cause: &io::Error| cause.kind() == kind))
}

/// Whether a command to record or watch could not be started.
fn is_of_command(error: &anyhow::Error) -> bool {
    let recorded = error.downcast_ref().and_then(|error| match error {
        RecordError::Command(error) => Some(error),
        _ => None,
    });
    matches!(recorded.or(error.downcast_ref()), Some(CommandError::Spawn { .. }))
}

/// Whether stdout is a pipe that nobody reads from any more, such as one into `head`.
fn reader_is_gone() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::OUT)];
    poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

/// Prints the requested help or version, or the error in the arguments, in one line.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // A reader that has seen enough of the help is no failure.
        let _ = write!(io::stdout(), "{}", error.render());
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = write!(io::stderr(), "{}", error.render());
        return ExitCode::from(USAGE);
    }
    let text = error.render().to_string();
    let message = text.strip_prefix("error: ").unwrap_or(&text);
    let words = message.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim);
    let words: Vec<_> = words
        .filter(|line| !line.is_empty() && !line.starts_with("For more") && !line.starts_with("tip:"))
        .collect();
    complain(&format_args!("{} (see --help)", words.join(" ")));
    ExitCode::from(USAGE)
}

/// Prints an error to stderr, in one line whatever names are in it. Does nothing if stderr is closed.
fn complain(what: &impl Display) {
    let _ = writeln!(io::stderr(), "trimtab: {}", trimtab_report::printable(what.to_string().trim_end()));
}

/// Returns the exit code of an experiment that ended, or was stopped for a reason, which is printed.
fn ended(stopped: Option<&str>) -> ExitCode {
    let Some(reason) = stopped else { return ExitCode::SUCCESS };
    complain(&reason);
    failed()
}

/// Returns true if stdout gets colours: it is a terminal, and `NO_COLOR` is not set.
fn colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// One of the items that users call by name.
fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let find = move |given: String| all.into_iter().find(|item| name(*item) == given);
    PossibleValuesParser::new(all.map(name)).map(move |given| find(given).expect("clap knows the names"))
}

/// Returns the interrupt that SIGINT, SIGTERM and SIGHUP set from now on. The third signal ends the program
/// at once, without cleaning up.
fn interrupt() -> Result<Interrupt> {
    let interrupt = Interrupt::default();
    let asked = interrupt.clone();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot catch signals")?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            SIGNAL.store(signal, Ordering::SeqCst);
            if asked.ask() == 3 {
                signal_hook::low_level::exit(STOPPED + signal);
            }
        }
    });
    Ok(interrupt)
}
