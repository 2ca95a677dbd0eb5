//! Child processes: those that end with their parent, and those that outlive it.
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

/// Has the command's process inherit no file descriptors but standard input, output and error: one that lives on would keep
/// the locks, pipes and mounts of a shell in use. Before Linux 5.11 it inherits them.
pub fn inherit_nothing(command: &mut Command) {
    const FIRST: libc::c_uint = 3;
    let mark = || {
        // SAFETY: close_range takes three numbers and no memory; with this flag it closes nothing before exec.
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes one system call; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(mark) };
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

    #[test]
    fn descriptors_of_the_parent_are_not_inherited() {
        // Dup gives a descriptor that exec keeps.
        let kept = rustix::io::dup(std::fs::File::open("/").unwrap()).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&kept).to_string();
        let sees = |inherits: bool| {
            let mut command = Command::new("test");
            command.args(["-e", &format!("/proc/self/fd/{number}")]);
            if !inherits {
                inherit_nothing(&mut command);
            }
            command.status().unwrap().success()
        };
        assert_eq!((sees(true), sees(false)), (true, false));
    }
}
