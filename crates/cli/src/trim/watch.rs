//! Shows the progress of a running trim.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use trimtab_core::Bytes;
use trimtab_core::interrupt::Interrupt;
use trimtab_keeper::trim::{Doing, Watcher};

use crate::complain;

/// How long a slice may take before the user is told about the delay.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an interrupted trim may take to end before the user is told the reason.
const END_TIMEOUT: Duration = Duration::from_millis(500);
/// How often the interrupt is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Shows a progress bar on a terminal, and a message if the kernel doesn't answer.
pub struct Watch {
    bar: Option<ProgressBar>,
    interrupt: Interrupt,
    total: Bytes,
    reached: Bytes,
    activity: Arc<Activity>,
}

/// Counts activity, for the thread that reports delays.
#[derive(Default)]
struct Activity {
    state: Mutex<ActivityState>,
    changed: Condvar,
}

#[derive(Default)]
struct ActivityState {
    count: u64,
    is_over: bool,
}

impl Watch {
    /// Starts to watch the trim of the file system mounted at `mount`; shows a bar if `shows` is set.
    pub fn new(mount: &Path, shows: bool, interrupt: Interrupt) -> Self {
        let bar = (shows && io::stderr().is_terminal()).then(|| {
            let template = "{prefix} {bar:24} {msg}, {left}";
            let style = ProgressStyle::with_template(template).expect("the template is well-formed");
            let bar = ProgressBar::new(0).with_style(style.with_key("left", time_left));
            bar.set_prefix(mount.display().to_string());
            bar.set_message("looking for free space");
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        let activity = Arc::new(Activity::default());
        let (heard, name, drawn) = (activity.clone(), mount.display().to_string(), bar.clone());
        let asked = interrupt.clone();
        thread::spawn(move || {
            heard.watch(&asked, ANSWER_TIMEOUT, |missed| {
                let told = missed.message(&name);
                match &drawn {
                    Some(bar) => bar.suspend(|| complain(&told)),
                    None => complain(&told),
                }
            });
        });
        Self { bar, interrupt, total: Bytes::ZERO, reached: Bytes::ZERO, activity }
    }

    /// Sets the number of bytes to trim.
    pub fn plans(&mut self, total: Bytes) {
        self.total = total;
        self.bar.iter().for_each(|bar| bar.set_length(total.0));
    }

    /// Notes activity: the time without an answer begins anew.
    pub fn heard(&self) {
        self.activity.record();
    }

    /// Returns the address before which everything is trimmed.
    pub fn has_reached(&self) -> Bytes {
        self.reached
    }
}

impl Watcher for Watch {
    fn at(&mut self, doing: Doing, left: Bytes) -> bool {
        self.activity.record();
        if let Some(bar) = &self.bar {
            let done = self.total.saturating_sub(left);
            bar.set_position(done.0);
            let waiting = if doing == Doing::Waiting { " (others use the drive)" } else { "" };
            bar.set_message(format!("{done} of {}{waiting}", self.total));
        }
        !self.interrupt.is_set()
    }

    fn reached(&mut self, address: Bytes) {
        self.reached = address;
        self.activity.record();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.activity.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.activity.changed.notify_all();
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

impl Activity {
    fn record(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).count += 1;
        self.changed.notify_all();
    }

    /// Calls `tell` once whenever there is no activity for `timeout`, and once if an interrupt does not end
    /// the trim soon. Returns when the trim is over.
    fn watch(&self, interrupt: &Interrupt, timeout: Duration, mut tell: impl FnMut(Missed)) {
        let (mut seen, mut since) = (0, Instant::now());
        let (mut is_told, mut interrupted, mut is_told_why) = (false, None, false);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.is_over {
            if state.count != seen {
                (seen, since, is_told) = (state.count, Instant::now(), false);
            }
            if interrupt.is_set() {
                interrupted.get_or_insert_with(Instant::now);
            }
            let missed = if !is_told && since.elapsed() >= timeout {
                is_told = true;
                Some(Missed::Answer)
            } else if !is_told_why && interrupted.is_some_and(|at: Instant| at.elapsed() >= END_TIMEOUT) {
                is_told_why = true;
                Some(Missed::End)
            } else {
                None
            };
            if let Some(missed) = missed {
                drop(state);
                tell(missed);
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout_while(state, POLL_INTERVAL, |state| !state.is_over);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A delay that the user is told about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missed {
    /// The kernel does not answer.
    Answer,
    /// An interrupted trim does not end.
    End,
}

impl Missed {
    /// Returns the message for the file system mounted at `mount`.
    fn message(self, mount: &str) -> String {
        match self {
            Self::Answer => format!(
                "{mount} has not answered for {} s: its drive is slow to discard, or it is frozen \
                 (fsfreeze --unfreeze {mount})",
                ANSWER_TIMEOUT.as_secs()
            ),
            Self::End => format!(
                "{mount}: interrupted; ends when the drive completes the discards in progress, which the kernel \
                 cannot cancel"
            ),
        }
    }
}

/// Writes the estimated time left.
fn time_left(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    let _ = match state.pos() {
        0 => write!(out, "estimating time left"),
        _ => write!(out, "{:#} left", HumanDuration(state.eta())),
    };
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Watches the activity in a thread, and sends all reports.
    fn watched(signs: &Arc<Activity>, interrupt: &Interrupt, timeout: Duration, told: Sender<Missed>) {
        let (signs, interrupt) = (signs.clone(), interrupt.clone());
        thread::spawn(move || signs.watch(&interrupt, timeout, |missed| _ = told.send(missed)));
    }

    fn end(signs: &Activity) {
        signs.state.lock().unwrap().is_over = true;
        signs.changed.notify_all();
    }

    #[test]
    fn missing_answer_is_reported_once_until_there_is_activity() {
        let (signs, (sender, told)) = (Arc::new(Activity::default()), channel());
        watched(&signs, &Interrupt::never(), Duration::from_millis(1), sender);
        assert_eq!(told.recv(), Ok(Missed::Answer));
        assert!(told.recv_timeout(POLL_INTERVAL * 6).is_err(), "it is not repeated");
        signs.record();
        assert_eq!(told.recv(), Ok(Missed::Answer));
        end(&signs);
        assert_eq!(told.iter().count(), 0);
    }

    #[test]
    fn interrupt_that_does_not_end_the_trim_is_reported_once() {
        let (signs, interrupt, (sender, told)) =
            (Arc::new(Activity::default()), Interrupt::default(), channel());
        watched(&signs, &interrupt, Duration::MAX, sender);
        interrupt.ask();
        assert_eq!(told.recv(), Ok(Missed::End));
        interrupt.ask();
        signs.record();
        assert!(told.recv_timeout(POLL_INTERVAL * 6).is_err(), "it is not repeated");
        end(&signs);
        assert_eq!(told.iter().count(), 0);
    }
}
