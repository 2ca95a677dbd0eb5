//! What a user sees of a trim that is at work.

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

/// How long the kernel may take for a slice until the user is told that it does.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an interrupted trim may take to end until the user is told why it does not.
const GRACE: Duration = Duration::from_millis(500);
/// How often it is looked whether the user has interrupted it.
const GLANCE: Duration = Duration::from_millis(50);

/// A bar on a terminal, and a word where the kernel doesn't answer.
pub struct Watch {
    bar: Option<ProgressBar>,
    interrupt: Interrupt,
    total: Bytes,
    reached: Bytes,
    signs: Arc<Signs>,
}

/// Signs of life, for the thread that misses them.
#[derive(Default)]
struct Signs {
    life: Mutex<Life>,
    changed: Condvar,
}

#[derive(Default)]
struct Life {
    signs: u64,
    is_over: bool,
}

impl Watch {
    /// Of the trim of what is mounted at `mount`; `shows` a bar.
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
        let signs = Arc::new(Signs::default());
        let (heard, name, drawn) = (signs.clone(), mount.display().to_string(), bar.clone());
        let asked = interrupt.clone();
        thread::spawn(move || {
            heard.watch(&asked, PATIENCE, |missed| {
                let told = missed.told(&name);
                match &drawn {
                    Some(bar) => bar.suspend(|| complain(&told)),
                    None => complain(&told),
                }
            });
        });
        Self { bar, interrupt, total: Bytes::ZERO, reached: Bytes::ZERO, signs }
    }

    /// There are `total` bytes to be trimmed.
    pub fn plans(&mut self, total: Bytes) {
        self.total = total;
        self.bar.iter().for_each(|bar| bar.set_length(total.0));
    }

    /// All before this address is trimmed.
    pub fn has_reached(&self) -> Bytes {
        self.reached
    }
}

impl Watcher for Watch {
    fn at(&mut self, doing: Doing, left: Bytes) -> bool {
        self.signs.give();
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
        self.signs.give();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.signs.life.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
        self.signs.changed.notify_all();
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

impl Signs {
    fn give(&self) {
        self.life.lock().unwrap_or_else(PoisonError::into_inner).signs += 1;
        self.changed.notify_all();
    }

    /// Calls `tell` once each time that there is no sign for as long as `patience`, and once where an interrupt
    /// does not end it soon; returns when it is over.
    fn watch(&self, interrupt: &Interrupt, patience: Duration, mut tell: impl FnMut(Missed)) {
        let (mut seen, mut since) = (0, Instant::now());
        let (mut is_told, mut interrupted, mut is_told_why) = (false, None, false);
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        while !life.is_over {
            if life.signs != seen {
                (seen, since, is_told) = (life.signs, Instant::now(), false);
            }
            if interrupt.is_set() {
                interrupted.get_or_insert_with(Instant::now);
            }
            let missed = if !is_told && since.elapsed() >= patience {
                is_told = true;
                Some(Missed::Answer)
            } else if !is_told_why && interrupted.is_some_and(|at: Instant| at.elapsed() >= GRACE) {
                is_told_why = true;
                Some(Missed::End)
            } else {
                None
            };
            if let Some(missed) = missed {
                drop(life);
                tell(missed);
                life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout_while(life, GLANCE, |life| !life.is_over);
            life = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// What the user waits for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missed {
    /// The kernel's answer.
    Answer,
    /// The end of an interrupted trim.
    End,
}

impl Missed {
    /// What the user is told of the file system mounted at `mount`.
    fn told(self, mount: &str) -> String {
        match self {
            Self::Answer => format!(
                "{mount} has not answered for {} s: its drive is slow to discard, or it is frozen \
                 (fsfreeze --unfreeze {mount})",
                PATIENCE.as_secs()
            ),
            Self::End => format!(
                "{mount}: interrupted, and ends when its drive has answered the discards in progress, which the \
                 kernel cannot cancel"
            ),
        }
    }
}

/// Writes the time left, as far as the first slices tell.
fn time_left(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    let _ = match state.pos() {
        0 => write!(out, "time left not known yet"),
        _ => write!(out, "{:#} left", HumanDuration(state.eta())),
    };
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// What is told of these signs, until they are over.
    fn watched(signs: &Arc<Signs>, interrupt: &Interrupt, patience: Duration, told: Sender<Missed>) {
        let (signs, interrupt) = (signs.clone(), interrupt.clone());
        thread::spawn(move || signs.watch(&interrupt, patience, |missed| _ = told.send(missed)));
    }

    fn end(signs: &Signs) {
        signs.life.lock().unwrap().is_over = true;
        signs.changed.notify_all();
    }

    #[test]
    fn a_missing_answer_is_told_once_until_there_is_a_sign() {
        let (signs, (sender, told)) = (Arc::new(Signs::default()), channel());
        watched(&signs, &Interrupt::never(), Duration::from_millis(1), sender);
        assert_eq!(told.recv(), Ok(Missed::Answer));
        assert!(told.recv_timeout(GLANCE * 6).is_err(), "it is not repeated");
        signs.give();
        assert_eq!(told.recv(), Ok(Missed::Answer));
        end(&signs);
        assert_eq!(told.iter().count(), 0);
    }

    #[test]
    fn an_interrupt_that_does_not_end_it_is_told_once() {
        let (signs, interrupt, (sender, told)) =
            (Arc::new(Signs::default()), Interrupt::default(), channel());
        watched(&signs, &interrupt, Duration::MAX, sender);
        interrupt.ask();
        assert_eq!(told.recv(), Ok(Missed::End));
        interrupt.ask();
        signs.give();
        assert!(told.recv_timeout(GLANCE * 6).is_err(), "it is not repeated");
        end(&signs);
        assert_eq!(told.iter().count(), 0);
    }
}
