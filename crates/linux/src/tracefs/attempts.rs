//! Notices that somebody unmounts or freezes a file system, before the kernel has decided whether that is possible.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use trimtab_core::Bytes;

use super::error::TracefsError;
use super::frees::FreesOptions;
use super::instance::Instance;

/// The kernel's functions that unmount. A kernel has one of them: from Linux 5.9 on, and before.
const UNMOUNT: [&str; 2] = ["path_umount", "ksys_umount"];
/// The kernel's function that freezes.
const FREEZE: &str = "freeze_super";
/// A page for each processor: one call is enough to know of.
const BUFFER: Bytes = Bytes(4 << 10);

/// Watches for calls that unmount or freeze a file system, any one: the kernel does not tell which. It costs nothing while there
/// are none, as only the code of these functions is changed; tracepoints of system calls would cost every call of every process.
/// Dropping it removes its tracefs instance.
#[derive(Debug)]
pub struct Attempts {
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Attempts {
    /// Starts to watch. `noticed` is called from another thread, during the call or soon after it.
    ///
    /// # Errors
    /// [`TracefsError::Set`] if the kernel has no function tracer or does not allow it; any other. Nothing is left behind.
    pub fn watch(options: &FreesOptions, noticed: impl Fn() + Send + 'static) -> Result<Self, TracefsError> {
        let FreesOptions { tracefs, sysfs, procfs, .. } = options;
        let instance = Instance::create(tracefs, sysfs, procfs, BUFFER)?;
        let filter = |function| instance.set("set_ftrace_filter", function);
        filter(UNMOUNT[0]).or_else(|_| filter(UNMOUNT[1]))?;
        // Without it, what freezes is noticed before the next trim.
        _ = instance.append("set_ftrace_filter", FREEZE);
        instance.set("current_tracer", "function")?;
        let calls = instance.open("trace_pipe")?;
        instance.set("tracing_on", "1")?;
        let failed = |source| TracefsError::Thread { source };
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let watch = move || {
            report(&calls, &stopped, noticed);
            // An instance that is still open can't be removed.
            drop(calls);
            _ = instance.set("current_tracer", "nop");
        };
        let thread = thread::Builder::new().spawn(watch).map_err(failed)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Attempts {
    fn drop(&mut self) {
        drop(self.stop.take());
        _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Calls `noticed` for each call, or several at once, until the other end of `stopped` is closed.
fn report(calls: &File, stopped: &UnixStream, noticed: impl Fn()) {
    let mut text = [0; 4096];
    loop {
        let mut awaited = [PollFd::new(calls, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut awaited, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) if awaited[1].revents().is_empty() => {}
            _ => return,
        }
        match (&*calls).read(&mut text) {
            Ok(1..) => noticed(),
            // Another processor's event may have woken this, which is read next time.
            Ok(0) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
