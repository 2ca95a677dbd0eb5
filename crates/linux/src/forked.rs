//! Functions that run in a process of their own, so that they can be ended in the middle of a system call.
//!
//! A thread can't be ended alone: the kernel's long calls, such as FITRIM, look for a signal that kills the whole process.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, set_parent_process_death_signal, waitpid,
};

/// Signals that this process may catch, and that are to end the child.
const ENDING: [i32; 5] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE];

/// How often it is looked whether a child that was killed has ended, before that is left to the next [`Forked::start`].
const REAPS: u32 = 5;
const REAP_INTERVAL: Duration = Duration::from_micros(500);

/// Children that were ended and have not been reaped, as the kernel finishes a call of theirs.
static ENDED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A process that runs a function. Dropping it ends the process.
#[derive(Debug)]
pub struct Forked {
    stream: UnixStream,
    ender: Ender,
}

/// Ends a [`Forked`] process from any thread. One that belongs to no process does nothing.
#[derive(Debug, Clone, Default)]
pub struct Ender(Arc<Mutex<Running>>);

/// The enders of several processes.
#[derive(Debug, Clone, Default)]
pub struct Enders(Arc<Mutex<Vec<Ender>>>);

impl Enders {
    /// Returns a new one, which is forgotten when its user drops it.
    pub fn add(&self) -> Ender {
        let ender = Ender::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|ender| Arc::strong_count(&ender.0) > 1);
        all.push(ender.clone());
        ender
    }

    /// Ends all processes that run.
    pub fn end_all(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Ender::end);
    }
}

#[derive(Debug, Default)]
struct Running {
    process: Option<Pid>,
    /// A file that the processes keep open.
    kept: Option<Arc<File>>,
}

impl Ender {
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the process, if one runs. It ends when the kernel has finished the discard, or the like, that it waits for.
    pub fn end(&self) {
        if let Some(process) = self.lock().process {
            // It is not reaped while its number is here, so the number is still its own.
            _ = kill_process(process, Signal::KILL);
        }
    }

    /// Has all processes that are started from now on keep `file` open, and with it its lock.
    pub fn keep_open(&self, file: Arc<File>) {
        self.lock().kept = Some(file);
    }

    /// Returns whether a process runs.
    pub fn is_running(&self) -> bool {
        self.lock().process.is_some()
    }
}

impl Forked {
    /// Runs `work` in a child process, which has a stream to this one and no other open file but the one of
    /// [`Ender::keep_open`]. The kernel ends the child with the thread that calls this. `ender` can end it from then on.
    ///
    /// `work` must not use what another thread of this process may hold locked, such as standard output.
    ///
    /// # Errors
    /// The kernel's error if there can be no child.
    pub fn start(ender: &Ender, work: impl FnOnce(UnixStream)) -> io::Result<Self> {
        reap_ended();
        let (stream, inside) = UnixStream::pair()?;
        let parent = getpid();
        let mut running = ender.lock();
        let kept = running.kept.as_ref().map(|file| file.as_raw_fd());
        // SAFETY: fork(2) takes nothing. The child runs only the code below, on the one thread that it has: the C library
        // makes its allocator usable there, and `work` takes no other lock (see above). It leaves with `_exit`.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let ran = catch_unwind(AssertUnwindSafe(|| {
                    if prepare(parent, inside.as_raw_fd(), kept) {
                        work(inside);
                    }
                }));
                // SAFETY: `_exit` takes a number, and ends the process without running what the parent registered.
                unsafe { libc::_exit(i32::from(ran.is_err())) }
            }
            process => {
                running.process = Pid::from_raw(process);
                drop(running);
                Ok(Self { stream, ender: ender.clone() })
            }
        }
    }

    /// Kills the child, as [`Ender::end`] does.
    pub fn end(&self) {
        self.ender.end();
    }

    /// Kills the child, which can't end yet because the kernel does not let it. Returns the stream to it, which
    /// [`has_closed`] once it has ended.
    pub fn abandon(self) -> io::Result<UnixStream> {
        let process = self.ender.lock().process.take();
        process.inspect(|process| _ = kill_process(*process, Signal::KILL));
        ended().extend(process);
        self.stream.try_clone()
    }

    /// Returns the stream to the child. It ends when the child does.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Waits until the child has sent something or has ended, until one of `others` has an exceptional condition, or until
    /// `deadline`.
    pub fn wait(&self, others: &[BorrowedFd<'_>], deadline: Option<Instant>) -> Woken {
        loop {
            let mut awaited = vec![PollFd::new(&self.stream, PollFlags::IN)];
            awaited.extend(others.iter().map(|other| PollFd::from_borrowed_fd(*other, PollFlags::PRI)));
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec::try_from(left).unwrap_or_default());
            match poll(&mut awaited, left.as_ref()) {
                Ok(0) => return Woken::Late,
                Ok(_) if !awaited[0].revents().is_empty() => return Woken::Answer,
                Ok(_) => return Woken::Other,
                Err(rustix::io::Errno::INTR) => {}
                // Nothing can be awaited any more: the next read says why.
                Err(_) => return Woken::Answer,
            }
        }
    }

    /// Receives `N` bytes from the child; `None` if it has ended, or ended in between.
    pub fn receive<const N: usize>(&self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (&self.stream).read_exact(&mut bytes).ok()?;
        Some(bytes)
    }
}

/// Why [`Forked::wait`] returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The child sent something, or ended.
    Answer,
    /// Another file has an exceptional condition.
    Other,
    /// The deadline has passed.
    Late,
}

impl Drop for Forked {
    fn drop(&mut self) {
        let mut running = self.ender.lock();
        if let Some(process) = running.process.take() {
            _ = kill_process(process, Signal::KILL);
            // One that is in no long call ends at once.
            for _ in 0..REAPS {
                if has_ended(process) {
                    return;
                }
                std::thread::sleep(REAP_INTERVAL);
            }
            ended().push(process);
        }
    }
}

/// Runs `work` in a child process, and returns its bytes; `None` if the child has not answered after `limit`. It then runs
/// on by itself, and ends with the thread that called this: as soon as the kernel lets it, while that thread ends at once.
///
/// # Errors
/// The kernel's error if there can be no child, or if it ended without an answer.
pub fn run(limit: Option<Duration>, work: impl FnOnce() -> Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let send = |mut stream: UnixStream| {
        let answer = work();
        let length = (answer.len() as u64).to_le_bytes();
        _ = stream.write_all(&length).and_then(|()| stream.write_all(&answer));
    };
    let child = Forked::start(&Ender::default(), send)?;
    match child.wait(&[], limit.map(|limit| Instant::now() + limit)) {
        Woken::Late => {
            // Not ended: what it does is to be done when the kernel lets it.
            ended().extend(child.ender.lock().process.take());
            Ok(None)
        }
        _ => {
            let length = child.receive().map(u64::from_le_bytes).ok_or(io::ErrorKind::BrokenPipe)?;
            let mut answer = vec![0; length as usize];
            (&mut child.stream()).read_exact(&mut answer)?;
            Ok(Some(answer))
        }
    }
}

/// Runs `work` in a child process as [`run`] does, for calls that may hang: a thread in one would keep this process from ending.
///
/// # Errors
/// The error of `work`, by its number; [`io::ErrorKind::TimedOut`] after `limit`; the errors of [`run`].
pub fn attempt(limit: Option<Duration>, work: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    let answer = run(limit, || match work() {
        Ok(bytes) => [&0_i32.to_le_bytes()[..], &bytes].concat(),
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO).to_le_bytes().into(),
    })?;
    let answer = answer.ok_or(io::ErrorKind::TimedOut)?;
    let (errno, bytes) = answer.split_first_chunk().ok_or(io::ErrorKind::BrokenPipe)?;
    match i32::from_le_bytes(*errno) {
        0 => Ok(bytes.to_vec()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Returns whether the other end of `stream` is closed.
pub fn has_closed(stream: &UnixStream) -> bool {
    let mut awaited = [PollFd::new(stream, PollFlags::IN)];
    let found = poll(&mut awaited, Some(&Timespec::default()));
    found.is_err() || awaited[0].revents().contains(PollFlags::HUP)
}

/// Makes a forked process independent of what it inherited. Returns false if its parent has ended.
fn prepare(parent: Pid, stream: RawFd, kept: Option<RawFd>) -> bool {
    let ends_with_parent = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    for signal in ENDING {
        // SAFETY: signal(2) takes a signal and what to do, here what the system does by default.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    close_others(&mut [stream, kept.unwrap_or(stream)]);
    ends_with_parent && getppid() == Some(parent)
}

/// Closes all files but standard input, output and error and `kept`: a child that hangs must hold no lock and no socket.
fn close_others(kept: &mut [RawFd]) {
    kept.sort_unstable();
    let close = |first: u32, last: u32| {
        // SAFETY: close_range(2) takes two numbers and flags. No file of the child but `kept` is used after this.
        first > last || unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0
    };
    let mut first = 3;
    let mut are_closed = true;
    for kept in kept.iter().map(|kept| u32::try_from(*kept).unwrap_or(u32::MAX)) {
        are_closed &= close(first, kept.saturating_sub(1));
        first = kept.saturating_add(1).max(first);
    }
    if !(are_closed && close(first, u32::MAX)) {
        // Before Linux 5.9.
        for file in (3..1024).filter(|file| !kept.contains(file)) {
            // SAFETY: as above.
            unsafe { libc::close(file) };
        }
    }
}

fn ended() -> MutexGuard<'static, Vec<Pid>> {
    ENDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether `process` has ended, after reaping it.
fn has_ended(process: Pid) -> bool {
    !matches!(waitpid(Some(process), WaitOptions::NOHANG), Ok(None))
}

fn reap_ended() {
    ended().retain(|process| !has_ended(*process));
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn child_answers_and_holds_no_other_file() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let child = Forked::start(&Ender::default(), |mut stream| {
            let text = vec![7_u8; 3];
            stream.write_all(&text).unwrap();
            thread::sleep(Duration::from_secs(600));
        });
        let child = child.unwrap();
        assert_eq!(child.receive(), Some([7; 3]));
        drop(theirs);
        assert_eq!(ours.read(&mut [0]).unwrap(), 0, "the child does not hold the other end");
    }

    #[test]
    fn child_keeps_the_file_of_its_ender_open() {
        let [(mut ours, theirs), (mut other, closed)] = [(); 2].map(|()| UnixStream::pair().unwrap());
        let ender = Ender::default();
        ender.keep_open(Arc::new(File::from(std::os::fd::OwnedFd::from(theirs))));
        let child = Forked::start(&ender, |mut stream| {
            stream.write_all(&[7]).unwrap();
            thread::sleep(Duration::from_secs(600));
        });
        let child = child.unwrap();
        assert_eq!(child.receive(), Some([7]));
        drop((ender, closed));
        assert_eq!(other.read(&mut [0]).unwrap(), 0, "the child does not hold this one");
        let files =
            std::fs::read_dir(format!("/proc/{}/fd", child.ender.lock().process.unwrap().as_raw_nonzero()))
                .unwrap();
        assert_eq!(files.count(), 5, "standard files, the stream, and that");
        drop(child);
        assert_eq!(ours.read(&mut [0]).unwrap(), 0, "it is closed with the child");
    }

    #[test]
    fn child_is_ended_from_another_thread() {
        let ender = Ender::default();
        ender.end();
        assert!(!ender.is_running());
        let child = Forked::start(&ender, |_| thread::sleep(Duration::from_secs(600))).unwrap();
        assert!(ender.is_running());
        let other = ender.clone();
        thread::spawn(move || other.end()).join().unwrap();
        assert_eq!(child.wait(&[], None), Woken::Answer);
        assert_eq!(child.receive::<1>(), None);
        drop(child);
        assert!(!ender.is_running());
    }

    #[test]
    fn work_that_takes_too_long_is_not_awaited() {
        let begun = Instant::now();
        let late = run(Some(Duration::from_millis(20)), || {
            thread::sleep(Duration::from_secs(600));
            vec![1]
        });
        assert_eq!(late.unwrap(), None);
        assert!(begun.elapsed() < Duration::from_secs(60));
        assert_eq!(run(Some(Duration::from_secs(60)), || vec![1, 2]).unwrap(), Some(vec![1, 2]));
        assert_eq!(run(Some(Duration::from_secs(60)), Vec::new).unwrap(), Some(Vec::new()));
    }

    #[test]
    fn attempt_returns_bytes_or_the_error() {
        let whole = vec![7; 100_000];
        assert_eq!(attempt(None, || Ok(whole.clone())).unwrap(), whole);
        assert!(attempt(None, || Ok(Vec::new())).unwrap().is_empty());
        let full = attempt(None, || Err(io::Error::from_raw_os_error(libc::ENOSPC)));
        assert_eq!(full.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        let late = attempt(Some(Duration::from_millis(20)), || {
            thread::sleep(Duration::from_secs(600));
            Ok(Vec::new())
        });
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn abandoned_child_closes_its_stream_when_it_ends() {
        let ender = Ender::default();
        let child = Forked::start(&ender, |_| thread::sleep(Duration::from_secs(600))).unwrap();
        assert!(!has_closed(child.stream()));
        let stream = child.abandon().unwrap();
        assert!(!ender.is_running());
        let deadline = Instant::now() + Duration::from_secs(60);
        while !has_closed(&stream) {
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn panic_in_the_child_is_an_error() {
        let failed = run(Some(Duration::from_secs(60)), || -> Vec<u8> { panic!("on purpose") });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
