//! Progress on stderr.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use trimtab_bench::BenchProgress;
use trimtab_core::policy::PolicyChoice;
use trimtab_lab::progress::Progress;
use trimtab_sim::simulate::SimulateProgress;
use trimtab_sim::sweep::{SweepProgress, SweepState};

/// A bar with the time left on a terminal; a line for each run elsewhere.
pub struct Bar {
    bar: ProgressBar,
    /// Runs that have started; some run side by side.
    started: u64,
    run: String,
}

impl Bar {
    /// A bar that doesn't know its length yet.
    pub fn new() -> Self {
        Self { bar: ProgressBar::new(0), started: 0, run: String::new() }
    }
}

impl Progress for Bar {
    fn note(&mut self, text: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "{text}");
        });
    }

    fn planned(&mut self, runs: usize) {
        self.bar.set_length(runs as u64);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} runs, {left}  {msg}");
        let style = style.expect("the template is well-formed").with_key("left", time_left);
        self.bar.set_style(style);
        tick(&self.bar);
    }

    fn run_started(&mut self, fs: &str, policy: PolicyChoice, idle: Duration, run: u32) {
        self.run = format!("{fs} {policy}, pauses of {}, run {run}", humantime::format_duration(idle));
        self.started += 1;
        say(&format!("{}/{} {}", self.started, self.bar.length().unwrap_or_default(), self.run));
    }

    fn step(&mut self, name: &str) {
        self.bar.set_message(format!("{}: {name}", self.run));
    }

    fn run_finished(&mut self) {
        self.bar.inc(1);
    }
}

/// Draws `bar` again and again, where it is drawn at all: in a guest, each time would end the processor's sleep.
fn tick(bar: &ProgressBar) {
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
}

/// A bar of the time that a bench takes on a terminal; a line for each step elsewhere.
pub struct BenchBar {
    bar: ProgressBar,
    begun: Instant,
}

impl BenchBar {
    /// A bar that doesn't know its length yet.
    pub fn new() -> Self {
        let style = ProgressStyle::with_template("{bar:24} {elapsed} of about {length}  {msg}");
        let style = style.expect("the template is well-formed");
        let style = style.with_key("length", |state: &ProgressState, out: &mut dyn fmt::Write| {
            let length = Duration::from_millis(state.len().unwrap_or_default());
            let _ = write!(out, "{:#}", HumanDuration(length));
        });
        let bar = ProgressBar::new(0).with_style(style);
        tick(&bar);
        Self { bar, begun: Instant::now() }
    }
}

impl BenchProgress for BenchBar {
    fn at(&mut self, what: &str, left: Duration) {
        let elapsed = self.begun.elapsed();
        self.bar.set_length((elapsed + left).as_millis() as u64);
        self.bar.set_position(elapsed.as_millis() as u64);
        self.bar.set_message(what.to_owned());
        say(&format!("{:#} left: {what}", HumanDuration(left)));
    }
}

impl Drop for BenchBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A bar of the events that are replayed, on a terminal only: a simulation is soon over.
pub struct ReplayBar(ProgressBar);

impl ReplayBar {
    /// A bar that doesn't know its length yet.
    pub fn new() -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{bar:24} {msg}, {human_pos} events, {per_sec}");
        bar.set_style(style.expect("the template is well-formed"));
        Self(bar)
    }
}

impl SimulateProgress for ReplayBar {
    fn surveying(&mut self, events: u64) {
        self.0.set_message("looking through the trace");
        self.0.set_position(events);
    }

    fn replaying(&mut self, done: usize, replays: usize, replayed: u64, events: u64) {
        self.0.set_length(events.max(replayed));
        self.0.set_message(format!("{done} of {replays} replays done"));
        self.0.set_position(replayed);
    }
}

impl Drop for ReplayBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A bar of the cells of a sweep with the time left; a line every ten seconds elsewhere.
pub struct SweepBar {
    bar: ProgressBar,
    said: Option<Instant>,
}

impl SweepBar {
    /// The time between two lines.
    const PAUSE: Duration = Duration::from_secs(10);

    /// A bar that doesn't know its length yet.
    pub fn new() -> Self {
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} cells, {msg}");
        Self { bar: ProgressBar::new(0).with_style(style.expect("the template is well-formed")), said: None }
    }
}

impl SweepProgress for SweepBar {
    fn at(&mut self, state: &SweepState) {
        let done = state.found + state.computed;
        let left = state.left.map_or_else(
            || "time left not known yet".to_owned(),
            |left| format!("{:#} left", HumanDuration(left)),
        );
        self.bar.set_length(state.cells as u64);
        self.bar.set_position(done as u64);
        self.bar.set_message(format!("{left}, {} events", state.events));
        if self.said.is_none_or(|said| said.elapsed() >= Self::PAUSE) || done == state.cells {
            self.said = Some(Instant::now());
            let damaged =
                if state.damaged > 0 { format!(", {} damaged", state.damaged) } else { String::new() };
            say(&format!(
                "{done}/{} cells, {} of an earlier sweep{damaged}, {} failed: {left}",
                state.cells, state.found, state.failed
            ));
        }
    }
}

impl Drop for SweepBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Prints a line if no bar is drawn.
fn say(line: &str) {
    if !io::stderr().is_terminal() {
        // Nobody listening is no reason to stop.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// Writes the time left, which the first run tells.
fn time_left(state: &ProgressState, out: &mut dyn fmt::Write) {
    let _ = match state.pos() {
        0 => write!(out, "time left not known yet"),
        _ => write!(out, "{:#} left", HumanDuration(state.eta())),
    };
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
