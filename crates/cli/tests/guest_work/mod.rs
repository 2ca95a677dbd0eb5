//! Work in a guest whose clock does not depend on how busy this machine is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_guest::GuestCommand;

/// A command that runs `script` in a guest with this much memory.
pub fn command(script: &str, memory: Bytes) -> GuestCommand {
    GuestCommand {
        arguments: ["sh", "-euc", script].map(str::to_owned).to_vec(),
        files_back: Vec::new(),
        memory,
        limit: Duration::from_secs(300),
    }
}

/// Stops what waits for it when it goes out of scope, also in a panic.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does the work while all processors are busy.
pub fn busy<T>(work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        work()
    })
}
