//! Decides whether a panic ends the server or the flash model alone.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::process;

/// The exit code of a Rust program that panics.
const PANICKED: i32 = 101;

thread_local! {
    /// Whether this thread runs something whose panic ends nothing else.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Something panicked, with this message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Panicked {
    pub(crate) message: String,
}

/// Has a panic in any thread end the process, and with it the drive, unless it is [`contained`]: its
/// host gets errors, where one thread less could leave it waiting for ever.
pub(crate) fn end_process() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        if !CONTAINED.get() {
            process::exit(PANICKED);
        }
    }));
}

/// Runs `work`, whose panic ends nothing else. What it was changing may be half changed then, and must
/// not be used again.
///
/// # Errors
/// [`Panicked`] if it panics.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    CONTAINED.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(false);
    outcome.map_err(|payload| Panicked { message: message(payload.as_ref()) })
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}
