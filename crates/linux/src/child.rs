//! Child processes that end with their parent.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::{self, Command};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Has the kernel kill the command's process when the thread that spawned it ends, however it ends.
/// The calling thread must wait for the process.
pub fn die_with_parent(command: &mut Command) {
    let parent = i32::try_from(process::id()).ok();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have ended before the kernel was asked.
        let now = getppid().map(rustix::process::Pid::as_raw_pid);
        if now == parent { Ok(()) } else { Err(std::io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls, prctl and getppid; it allocates
    // nothing and takes no lock.
    unsafe { command.pre_exec(ask) };
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn child_is_killed_when_its_parent_thread_ends() {
        let (send, receive) = mpsc::channel();
        let parent = thread::spawn(move || {
            let mut command = Command::new("sleep");
            command.arg("600").stdin(Stdio::null());
            die_with_parent(&mut command);
            send.send(command.spawn().unwrap()).unwrap();
        });
        parent.join().unwrap();
        let status = receive.recv().unwrap().wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    }
}
