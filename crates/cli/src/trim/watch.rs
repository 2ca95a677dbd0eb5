//! What a user sees of a trim that is at work.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use trimtab_core::Bytes;
use trimtab_keeper::trim::{Doing, Watcher};
use trimtab_lab::interrupt::Interrupt;

use crate::complain;

/// How long the kernel may take for a slice until the user is told that it does.
const PATIENCE: Duration = Duration::from_secs(10);

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
        thread::spawn(move || {
            while heard.miss() {
                let told = format!(
                    "{name} has not answered for {} s: its drive is slow to discard, or it is frozen \
                     (fsfreeze --unfreeze {name})",
                    PATIENCE.as_secs()
                );
                match &drawn {
                    Some(bar) => bar.suspend(|| complain(&told)),
                    None => complain(&told),
                }
            }
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

    /// Waits until there was no sign for too long, and since it was told there was one; false where it is over.
    fn miss(&self) -> bool {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let before = life.signs;
            let quiet = |life: &mut Life| life.signs == before && !life.is_over;
            let waited = self.changed.wait_timeout_while(life, PATIENCE, quiet);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if now.is_over || timeout.timed_out() {
                return !now.is_over;
            }
            life = now;
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
