//! The loop of the service.

mod answers;
mod lifecycle;

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use trimtab_core::error::chain;
use trimtab_linux::stack::{Machine, StackError};
use trimtab_linux::tracefs::{Freed, Frees, FreesOptions};

use super::config::{Config, ConfigError};
use super::context::Context;
use super::log::{Field, Log, LogEvent};
use super::managed::{ManagedFileSystem, Turn, put_back_knobs};
use super::mounts::MountWatch;
use super::notify::Manager;
use super::server::{Server, ServerError};
use super::signals::Signals;
use crate::failures::Failures;
use crate::state::Store;

/// When the service starts, by its own clock: what was freed long before is older.
const BEGINNING: Duration = Duration::from_secs(1 << 32);

/// What the service runs with.
pub struct Options {
    /// The configuration file; none for [`CONFIG`](super::config::CONFIG), which needn't be there.
    pub config: Option<PathBuf>,
    /// Where its sockets are.
    pub run: PathBuf,
    /// Where it keeps what it knows of file systems.
    pub store: Store,
    /// How it hears what is freed.
    pub frees: FreesOptions,
    /// Seconds by its own clock per second of this machine's: 1, or how much faster than real time the
    /// emulated drives run that it manages.
    pub speed: f64,
}

/// Why the service can't begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Its configuration can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its sockets can't be opened.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// What is mounted can't be found out.
    #[error("cannot find out what is mounted")]
    Mounts(#[from] StackError),
    /// It can't hear of signals or changes, or wait for them.
    #[error("cannot wait for {what}")]
    Wait {
        /// What for.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// The service: tends what is mounted until it is told to end.
pub struct Service {
    options: Options,
    config: Config,
    context: Rc<Context>,
    log: Log,
    manager: Manager,
    signals: Signals,
    server: Server,
    mounts: MountWatch,
    frees: Result<Frees, String>,
    /// When the kernel's buffers are read in any case.
    read_at: Option<Duration>,
    lost: u64,
    file_systems: Vec<ManagedFileSystem>,
    /// When what is mounted is looked at again, because not all of it could be told.
    mount_retry: Option<Retry>,
    started: (Instant, SystemTime),
}

/// Another try, and how long it is until the one after that.
#[derive(Debug, Clone, Copy)]
struct Retry {
    at: Duration,
    pause: Duration,
}

impl Service {
    /// Begins: what is asked of it from now on is answered once [`Self::run`] is called.
    ///
    /// # Errors
    /// Any [`ServiceError`]; nothing is left behind.
    pub fn start(options: Options, log: Log) -> Result<Self, ServiceError> {
        let waiting = |what| move |source| ServiceError::Wait { what, source };
        let config = Config::find(options.config.as_deref())?.unwrap_or_default();
        let signals = Signals::listen().map_err(waiting("signals"))?;
        let server = Server::open(&options.run, config.metrics())?;
        put_back_knobs(&options.run, log);
        let machine = Machine::live();
        let mounts = MountWatch::start(&machine).map_err(waiting("changes of what is mounted"))?;
        let failures = Failures::listen(&machine, &options.frees);
        let (store, run) = (options.store.clone(), options.run.clone());
        let context = Rc::new(Context { machine, store, run, failures, speed: options.speed });
        let frees = Frees::start(&options.frees).map_err(|error| chain(&error));
        if let Err(reason) = &frees {
            log.warning(
                LogEvent::FreesUnavailable,
                "free events unavailable; trimming all free space once a week",
                &[("reason", reason)],
            );
        }
        let mut service = Self {
            options,
            config,
            context,
            log,
            manager: Manager::of_environment(),
            signals,
            server,
            mounts,
            frees,
            read_at: None,
            lost: 0,
            file_systems: Vec::new(),
            mount_retry: None,
            started: (Instant::now(), SystemTime::now()),
        };
        service.apply_configuration()?;
        Ok(service)
    }

    /// Runs until it is told to end.
    ///
    /// # Errors
    /// [`ServiceError::Wait`].
    pub fn run(mut self) -> Result<(), ServiceError> {
        self.manager.ready();
        loop {
            self.serve_clients();
            if self.signals.take_reload() {
                _ = self.reload();
            }
            if self.signals.take_stop() {
                break;
            }
            self.wait()?;
            self.listen();
            self.take_turns();
        }
        self.manager.stopping();
        self.save_all();
        self.log.info(LogEvent::Stopped, "stopped", &[]);
        Ok(())
    }

    fn now(&self) -> Duration {
        BEGINNING + self.quickened(self.started.0.elapsed())
    }

    /// A span of this machine's time by the service's clock.
    fn quickened(&self, span: Duration) -> Duration {
        span.mul_f64(self.options.speed)
    }

    /// Sleeps until something happens or is due.
    fn wait(&mut self) -> Result<(), ServiceError> {
        let turns = self.file_systems.iter().filter_map(ManagedFileSystem::next_turn);
        let next = turns.chain(self.read_at).chain(self.mount_retry.map(|again| again.at)).min();
        let sleep = next.map(|next| next.saturating_sub(self.now()).div_f64(self.options.speed));
        let deadline = self.server.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let sleep = sleep.into_iter().chain(deadline).min();
        let off = self.file_systems.iter().filter(|managed| managed.off().is_some()).count();
        let managed = self.file_systems.len() - off;
        self.manager.status(format!("{managed} file systems managed, {off} not managed"));
        self.manager.alive(sleep);
        let mut awaited =
            vec![PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.mounts, PollFlags::PRI)];
        awaited.extend(self.server.poll_fds());
        let first_frees = awaited.len();
        if let Ok(frees) = &self.frees {
            awaited.extend(frees.files().map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN)));
        }
        let timeout = sleep.and_then(|sleep| Timespec::try_from(sleep).ok());
        match poll(&mut awaited, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                return Err(ServiceError::Wait { what: "what happens", source: errno.into() });
            }
        }
        let mounts_changed = awaited[1].revents().intersects(PollFlags::PRI | PollFlags::ERR);
        let is_told = awaited[first_frees..].iter().any(|file| !file.revents().is_empty());
        if is_told {
            self.read_at = Some(Duration::ZERO);
        }
        self.signals.clear();
        let now = self.now();
        if mounts_changed || self.mount_retry.is_some_and(|again| again.at <= now) {
            if mounts_changed {
                self.mount_retry = None;
            }
            if let Err(error) = self.update_mounts() {
                self.log.warning(
                    LogEvent::MountsUnreadable,
                    "cannot read the mounts; retrying",
                    &[("error", &chain(&error))],
                );
                self.schedule_retry();
            }
        }
        Ok(())
    }

    /// Takes in what was freed, where there may be something.
    fn listen(&mut self) {
        let (now, speed) = (self.now(), self.options.speed);
        let Ok(frees) = &mut self.frees else { return };
        if self.read_at.is_none_or(|at| at > now) {
            return;
        }
        let began = BEGINNING + frees.began().saturating_duration_since(self.started.0).mul_f64(speed);
        let mut heard = Vec::new();
        match frees.read(&mut heard) {
            Ok(more) => self.read_at = more.map(|more| now + more.mul_f64(speed)),
            Err(error) => {
                let reason = chain(&error);
                self.log.error(
                    LogEvent::FreesUnavailable,
                    "free-event stream lost; trimming all free space once a week",
                    &[("reason", &reason)],
                );
                self.frees = Err(reason);
                self.read_at = None;
                let managed = std::mem::take(&mut self.file_systems);
                self.file_systems =
                    managed.into_iter().map(|managed| self.follow(managed, false, now)).collect();
                return;
            }
        }
        let lost = frees.lost();
        for Freed { at, file_system, extent, .. } in heard {
            if let Some(managed) =
                self.file_systems.iter_mut().find(|managed| managed.found.number() == file_system)
            {
                managed.freed(began + at.mul_f64(speed), extent);
            }
        }
        if lost > self.lost {
            self.log.warning(
                LogEvent::FreeEventsLost,
                "free events were lost; taking all free space as pending",
                &[("lost", &(lost - self.lost))],
            );
            self.lost = lost;
            let mut all = std::mem::take(&mut self.file_systems);
            for managed in &mut all {
                if let Err(reason) = managed.add_all_free(now) {
                    self.fall_back_to_full_trims(managed, &reason, now);
                }
            }
            self.file_systems = all;
        }
    }

    /// Gives every file system its turn that wants one.
    fn take_turns(&mut self) {
        for place in 0..self.file_systems.len() {
            let now = self.now();
            let managed = &mut self.file_systems[place];
            if managed.next_turn().is_none_or(|next| next > now) {
                continue;
            }
            let turn = managed.turn(now);
            let mount = managed.found.mount.target.display();
            match turn {
                Turn::Nothing => {}
                Turn::Recovered => {
                    self.log.info(LogEvent::DiscardRecovered, "discards succeed again", &[("mount", &mount)]);
                }
                Turn::Failed(error) => {
                    let fields: [Field; 2] = [("mount", &mount), ("error", &chain(&error))];
                    self.log.warning(LogEvent::DiscardFailed, "discard failed; retrying later", &fields);
                }
                Turn::GivenUp(error) => {
                    let fields: [Field; 2] = [("mount", &mount), ("error", &chain(&error))];
                    self.log.warning(LogEvent::NoLongerManaged, "no longer managed", &fields);
                    if let Ok(frees) = &mut self.frees {
                        _ = frees.leave_out(&managed.found.mount);
                    }
                }
            }
        }
    }

    /// Reads the configuration again; what it had holds on where that fails.
    fn reload(&mut self) -> Result<(), String> {
        self.manager.reloading();
        let config = Config::find(self.options.config.as_deref()).map_err(|error| chain(&error));
        let done = config.and_then(|config| {
            let config = config.unwrap_or_default();
            self.server.set_metrics_address(config.metrics()).map_err(|error| chain(&error))?;
            self.config = config;
            self.apply_configuration().map_err(|error| chain(&error))
        });
        match &done {
            Ok(()) => self.log.info(LogEvent::ConfigurationLoaded, "configuration loaded", &[]),
            Err(error) => {
                self.log.error(
                    LogEvent::ConfigurationRejected,
                    "configuration rejected; the previous one stays in effect",
                    &[("error", error)],
                );
            }
        }
        self.manager.ready();
        done
    }
}
