//! The process that serves a drive.

mod engine;
mod file;
mod held;
mod lazy;
mod memory_left;
mod model;
mod ordering;
mod panics;
mod store;

use std::fs::File;
use std::io::{self, BufReader};
use std::mem::ManuallyDrop;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{self, Command};
use std::sync::{Arc, OnceLock};
use std::thread;

use fuser::Session;
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};
use trimtab_core::Nanos;

use crate::DriveError;
use crate::directory::{DriveDirectory, Registry};
use crate::protocol::{
    Clock, DriveFigures, DriveStats, PathTimes, QueueLimits, Reply, Request, Spec, receive, send,
};
use engine::{Engine, EngineError, ModelFailed};
use file::DriveFile;

/// The highest priority of a process that isn't a real-time one.
const FIRST: i32 = -20;

/// Returns the processor time that this process has used.
fn processor_time() -> Nanos {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Nanos(used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64)
}

/// Serves the drive `name` until its file system is unmounted. What to serve comes over the socket
/// that is this process's standard input; [`Drive::create`](crate::Drive::create) is at its other
/// end.
///
/// # Errors
/// [`DriveError`] where the drive can't be served; its creator is told as well.
pub fn serve(name: &str) -> Result<(), DriveError> {
    let directory = DriveDirectory::named(name)?;
    let no_answer = |source| DriveError::NoAnswer { name: name.to_owned(), source };
    leave_terminal();
    panics::end_process();
    let creator = creator().map_err(no_answer)?;
    let mut lines = BufReader::new(creator.try_clone().map_err(no_answer)?);
    let spec: Spec = receive(&mut lines).map_err(no_answer)?;
    if let Clock::Real { .. } = spec.clock {
        // Where that is refused, replies are late on a busy machine.
        let _ = rustix::process::setpriority_process(None, FIRST);
    }
    let server = match Server::new(directory, spec) {
        Ok(server) => server,
        Err(error) => {
            let reason = error.to_string();
            let _ = send(&creator, &Reply::Refused { reason: reason.clone() });
            return Err(DriveError::Refused { reason });
        }
    };
    server.run(creator, lines).map_err(no_answer)
}

/// Takes down the drive `name`, whose creator has died, with what is mounted from it. Run by the
/// drive's server, the process `server`; does nothing where that has ended, since the name may be another
/// drive's by now.
///
/// # Errors
/// [`DriveError`] for what could not be taken down.
pub fn release(name: &str, server: i32) -> Result<(), DriveError> {
    let _registry = Registry::lock()?;
    // A process whose parent ends gets another one.
    let is_alive = rustix::process::getppid() == Pid::from_raw(server);
    if is_alive { DriveDirectory::named(name)?.release() } else { Ok(()) }
}

/// Away from the terminal's signals, and marked as one that memory reclaim must not wait for by
/// writing to the very device it serves. Neither failing stops it from serving.
fn leave_terminal() {
    let _ = rustix::process::setsid();
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

fn creator() -> io::Result<UnixStream> {
    Ok(UnixStream::from(rustix::io::dup(rustix::stdio::stdin())?))
}

/// The facts that the creator knows once it has set up the block device.
struct Attachment {
    device: PathBuf,
    limits: QueueLimits,
    path: PathTimes,
}

/// Why a server can't start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("cannot lock the drive's directory: {0}")]
    Lock(io::Error),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("cannot remember the data file: {0}")]
    DataFile(io::Error),
    #[error("cannot make the control socket: {0}")]
    Socket(io::Error),
    #[error("cannot mount the drive's FUSE file system: {0}")]
    Mount(io::Error),
}

/// A drive ready to be served.
struct Server {
    directory: DriveDirectory,
    spec: Spec,
    engine: Arc<Engine>,
    session: Session<DriveFile>,
    control: UnixListener,
    /// Marks the drive as served. Never dropped: until the process has ended, it may take the drive of this
    /// name down.
    _alive: ManuallyDrop<File>,
}

impl Server {
    fn new(directory: DriveDirectory, spec: Spec) -> Result<Self, StartError> {
        let alive = directory.hold().map_err(StartError::Lock)?;
        let engine = Arc::new(Engine::new(&spec)?);
        if let Some(data) = &spec.data {
            let remembered = engine.data_identity().and_then(|identity| directory.link_data(data, identity));
            remembered.map_err(StartError::DataFile)?;
        }
        let control = UnixListener::bind(directory.socket()).map_err(StartError::Socket)?;
        let session =
            file::mount(&directory.mount(), Arc::clone(&engine), &spec).map_err(StartError::Mount)?;
        Ok(Self { directory, spec, engine, session, control, _alive: ManuallyDrop::new(alive) })
    }

    fn run(self, creator: UnixStream, lines: BufReader<UnixStream>) -> io::Result<()> {
        let Self { directory, spec, engine, session, control, _alive } = self;
        send(&creator, &Reply::Ready)?;
        let owned = spec.owned;
        let figures = Arc::new(Figures { directory, spec, engine, attachment: OnceLock::new() });
        thread::spawn({
            let figures = Arc::clone(&figures);
            move || figures.answer_all(&control)
        });
        thread::spawn(move || {
            let started = figures.follow(&creator, lines);
            if owned || !started {
                take_down(figures.directory.name());
            }
        });
        session.run()
    }
}

/// Has another process take the drive down: unmounting from within would wait for itself, were the
/// server killed meanwhile. The executable may have been replaced since; this names it all the same.
fn take_down(name: &str) {
    let server = process::id().to_string();
    let _ = Command::new("/proc/self/exe").args(["drive", "serve", name, "--release", &server]).status();
}

/// The data from which the control socket answers.
struct Figures {
    directory: DriveDirectory,
    spec: Spec,
    engine: Arc<Engine>,
    attachment: OnceLock<Attachment>,
}

impl Figures {
    /// Does what the creator asks until it is gone, or until it has started a drive that it doesn't
    /// own. Returns whether it started the drive.
    fn follow(&self, creator: &UnixStream, mut lines: BufReader<UnixStream>) -> bool {
        while let Ok(request) = receive(&mut lines) {
            let answered = send(creator, &self.answer(request));
            if answered.is_err() || !self.spec.owned {
                break;
            }
        }
        self.attachment.get().is_some()
    }

    fn answer_all(self: &Arc<Self>, control: &UnixListener) {
        for client in control.incoming().flatten() {
            let figures = Arc::clone(self);
            thread::spawn(move || {
                let mut lines = BufReader::new(&client);
                while let Ok(request) = receive(&mut lines) {
                    if send(&client, &figures.answer(request)).is_err() {
                        break;
                    }
                }
            });
        }
    }

    fn answer(&self, request: Request) -> Reply {
        match request {
            Request::Start { device, limits, path } => {
                if self.attachment.set(Attachment { device, limits, path }).is_err() {
                    return Reply::Ready;
                }
                match self.engine.start(self.spec.profile.timing.queue_depth.value, path) {
                    Ok(()) => Reply::Ready,
                    Err(failed) => Reply::Refused { reason: self.failure(&failed) },
                }
            }
            Request::Stats => match self.attachment.get() {
                Some(attachment) => match self.stats(attachment) {
                    Ok(stats) => Reply::Stats(Box::new(stats)),
                    Err(failed) => Reply::Refused { reason: self.failure(&failed) },
                },
                None => Reply::Refused { reason: "the drive is still being created".to_owned() },
            },
            Request::Figures => match self.engine.figures() {
                Ok(model) => Reply::Figures(Box::new(DriveFigures {
                    size: self.spec.size,
                    counters: model.counters,
                    mapped: model.mapped,
                    processor: processor_time(),
                    lacked_room: self.engine.lacked_room(),
                })),
                Err(failed) => Reply::Refused { reason: self.failure(&failed) },
            },
        }
    }

    /// Returns the message to clients of a drive whose flash model failed.
    fn failure(&self, failed: &ModelFailed) -> String {
        let name = self.directory.name();
        format!("drive {name:?}: {failed}; copy its data, then remove it (trimtab drive rm {name})")
    }

    fn stats(&self, attachment: &Attachment) -> Result<DriveStats, ModelFailed> {
        let model = self.engine.figures()?;
        Ok(DriveStats {
            name: self.directory.name().to_owned(),
            device: attachment.device.clone(),
            profile: self.spec.profile.name.clone(),
            model: self.spec.profile.model.clone(),
            size: self.spec.size,
            clock: self.spec.clock,
            effective_spare: model.effective_spare,
            erase_block: self.spec.profile.geometry.erase_block.value,
            counters: model.counters,
            erase_spread: model.erase_spread,
            latency: model.latency,
            mapped: model.mapped,
            data_held: self.engine.data_held(),
            path: attachment.path,
            limits: attachment.limits,
            server: process::id(),
        })
    }
}
