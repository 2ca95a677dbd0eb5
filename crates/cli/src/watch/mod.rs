//! `trimtab watch`: shows current discards, frees, writes and reads, and the processes behind them.

mod figures;
mod lines;
mod screen;
mod summary;

use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use trimtab_core::interrupt::Interrupt;
use trimtab_linux::file::Output;
use trimtab_observe::foreground::{CommandError, Foreground, exit_code};
use trimtab_observe::watch::{CommandReport, Report, Session, SettledReport};

use crate::{complain, interrupt};
use lines::Lines;

/// Shows current discards, frees, writes and reads, and the processes behind them
///
/// On a terminal it fills the screen, elsewhere it prints a line per interval. With a command it is silent
/// until the command ends, and then prints a summary.
#[derive(clap::Args)]
pub struct Args {
    /// Devices, mount points or files whose disks are watched [default: all disks]
    #[arg(value_name = "DEV|MOUNT")]
    targets: Vec<PathBuf>,
    /// Time between two reports [default: 1s; with a command, only a summary at the end]
    #[arg(long, value_name = "TIME", value_parser = positive)]
    interval: Option<Duration>,
    /// End after this time [default: with Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = positive, conflicts_with = "command")]
    duration: Option<Duration>,
    /// Print every report as a JSON object on its own line
    #[arg(long)]
    json: bool,
    /// Write reports to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// After the command, sync file systems until no discard has come for this long; btrfs with
    /// discard=async delays its discards by two minutes
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = positive, requires = "command")]
    settle: Duration,
    /// Don't sync file systems before and after the command, and don't wait for late discards
    #[arg(long, requires = "command", conflicts_with = "settle")]
    no_sync: bool,
    /// Watch while this command runs
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How long to wait for events before checking the user, the command and the time again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The default time between two reports.
const INTERVAL: Duration = Duration::from_secs(1);

pub fn run(args: Args) -> Result<ExitCode> {
    let interrupt = interrupt()?;
    let output = args.output.as_deref().map(Output::open).transpose()?;
    let mut session = Session::start(&args.targets)?;
    let mut out = Out::new(&args, output)?;
    for gap in &session.header().gaps {
        complain(gap);
    }
    if !args.command.is_empty() {
        return with_command(&args, session, &interrupt, &mut out);
    }
    let interval = args.interval.unwrap_or(INTERVAL);
    let over = |session: &Session| {
        interrupt.is_set() || args.duration.is_some_and(|duration| session.elapsed() >= duration)
    };
    if out.is_screen {
        screen::run(&mut session, interval, over)?;
    } else {
        let mut next = interval;
        while !over(&session) && !out.closed {
            session.follow(POLL_INTERVAL.min(next.saturating_sub(session.elapsed())))?;
            out.interval(&mut session, interval, &mut next)?;
        }
    }
    out.report(&session.finish()?)?;
    Ok(ExitCode::SUCCESS)
}

/// Watches while a command runs, and passes its exit code on.
fn with_command(args: &Args, mut session: Session, interrupt: &Interrupt, out: &mut Out) -> Result<ExitCode> {
    if !args.no_sync {
        // Activity before the command must not count.
        session.settle(args.settle, interrupt)?;
        session.restart();
    }
    interrupt.check()?;
    let started = Instant::now();
    let mut command = Foreground::start(&args.command)?;
    let mut next = args.interval.unwrap_or(Duration::MAX);
    let mut follow = || {
        loop {
            if let Some(status) = command.poll(interrupt)? {
                return anyhow::Ok(status);
            }
            session.follow(POLL_INTERVAL)?;
            out.interval(&mut session, args.interval.unwrap_or(INTERVAL), &mut next)?;
        }
    };
    let status = match follow() {
        Ok(status) => status,
        Err(error) if matches!(error.downcast_ref(), Some(CommandError::LeftRunning { .. })) => {
            out.report(&session.finish()?)?;
            return Err(error);
        }
        Err(error) => {
            // The terminal belongs to the command until it ends.
            drop(session);
            command.wait(interrupt)?;
            return Err(error);
        }
    };
    let wall_s = started.elapsed().as_secs_f64();
    let settles = !args.no_sync && !interrupt.is_set();
    let settled = settles.then(|| session.settle(args.settle, interrupt)).transpose()?;
    let mut summary = session.finish()?;
    summary.command = Some(CommandReport {
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        exit_code: exit_code(status),
        wall_s,
        settled: settled.map(|settled| SettledReport {
            synced: settled.synced.iter().map(|path| path.display().to_string()).collect(),
            wall_s: settled.took.as_secs_f64(),
            unsettled: settled.unsettled,
        }),
    });
    out.report(&summary)?;
    Ok(ExitCode::from(exit_code(status)))
}

fn positive(text: &str) -> Result<Duration> {
    let time = humantime::parse_duration(text)?;
    ensure!(time >= Duration::from_millis(10), "at least 10ms");
    Ok(time)
}

/// The destination and format of reports.
struct Out {
    to: Box<dyn Write>,
    json: bool,
    lines: Lines,
    /// Whether the output is a terminal that the screen can use.
    is_screen: bool,
    /// Whether the reader has closed the pipe.
    closed: bool,
}

impl Out {
    fn new(args: &Args, output: Option<Output>) -> Result<Self> {
        let to: Box<dyn Write> = match output {
            Some(output) => {
                let draft = output.draft()?;
                let file = draft.file().try_clone().context("cannot write the report")?;
                draft.replace()?;
                Box::new(file)
            }
            // As with record, stdout belongs to the command.
            None if !args.command.is_empty() && !args.json => Box::new(io::stderr()),
            None => Box::new(io::stdout()),
        };
        let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
        let is_screen = terminal && !args.json && args.output.is_none();
        Ok(Self { to, json: args.json, lines: Lines::default(), is_screen, closed: false })
    }

    /// Writes the report of the interval that ends at `next`, if it is over.
    fn interval(&mut self, session: &mut Session, interval: Duration, next: &mut Duration) -> Result<()> {
        if session.elapsed() < *next {
            return Ok(());
        }
        // Missed intervals are part of this one.
        while *next <= session.elapsed() {
            *next += interval;
        }
        let report = session.interval();
        let text = if self.json { json(&report)? } else { self.lines.of(&report) };
        self.write(&text)
    }

    /// Writes the summary.
    fn report(&mut self, summary: &Report) -> Result<()> {
        let text = if self.json { json(summary)? } else { summary::text(summary) };
        self.write(&text)
    }

    fn write(&mut self, text: &str) -> Result<()> {
        if self.closed {
            return Ok(());
        }
        match self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.closed = true,
            outcome => outcome.context("cannot write the report")?,
        }
        Ok(())
    }
}

fn json(report: &Report) -> Result<String> {
    Ok(serde_json::to_string(report)? + "\n")
}
