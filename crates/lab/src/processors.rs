//! The processors of this machine.

use std::thread;

/// How many processors this program may use; one if the kernel doesn't say.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
