//! The loop of the service.

mod answers;
mod lifecycle;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use trimtab_core::document::status::ThinPoolStatus;
use trimtab_core::error::chain;
use trimtab_linux::forked::Enders;
use trimtab_linux::stack::{Machine, StackError};
use trimtab_linux::tracefs::{Attempts, Freed, Frees, FreesOptions, TracefsError};

use lifecycle::BLOCKED_INTERVAL;

use super::backoff::Backoff;
use super::config::{Config, ConfigError};
use super::context::Context;
use super::log::{Field, Log, LogEvent};
use super::managed::{ManagedFileSystem, RunOutcome, restore_knobs};
use super::mounts::MountWatch;
use super::notify::Manager;
use super::passing::{New, Unmounted};
use super::server::{Server, ServerError};
use super::signals::Signals;
use super::timeout::SingleCall;
use crate::failures::Failures;
use crate::state::Store;

/// The start of the service by its own clock, late enough for older frees to have a time too.
const START: Duration = Duration::from_secs(1 << 32);

/// The options of the service.
pub struct Options {
    /// The configuration file; none for [`CONFIG`](super::config::CONFIG), which may be missing.
    pub config: Option<PathBuf>,
    /// The address that serves metrics instead of the configured one, which need not be loopback.
    pub metrics: Option<SocketAddr>,
    /// The directory of its sockets.
    pub run: PathBuf,
    /// The saved states of file systems.
    pub store: Store,
    /// The directory in which it logs each decision of smart; none to log none.
    pub decisions: Option<PathBuf>,
    /// How it receives free events.
    pub frees: FreesOptions,
    /// The speed of its clock: 1, or the speed of the emulated drives that it manages.
    pub speed: f64,
}

/// Why the service can't start or continue.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// Its configuration can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its sockets can't be opened.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// The mounts can't be read.
    #[error("cannot examine the mounts")]
    Mounts(#[from] StackError),
    /// It can't receive signals or events.
    #[error("cannot wait for {what}")]
    Wait {
        /// The events.
        what: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// The service. It manages all mounted file systems until it is told to end.
pub struct Service {
    options: Options,
    config: Config,
    context: Rc<Context>,
    log: Log,
    manager: Manager,
    signals: Signals,
    server: Server,
    mounts: MountWatch,
    /// Ends trims when somebody unmounts or freezes a file system.
    _attempts: Option<Attempts>,
    frees: Result<Frees, Rc<TracefsError>>,
    /// When the kernel's event buffers are read next; none to wait for events.
    read_at: Option<Duration>,
    lost: u64,
    file_systems: Vec<ManagedFileSystem>,
    /// Whether what is mounted from now on is new.
    is_started: bool,
    /// File systems that are left alone because they were mounted a moment ago.
    new: Vec<New>,
    /// File systems whose state is to be saved.
    unmounted: Vec<Unmounted>,
    /// The query of how full thin pools are, which may still run.
    pools: SingleCall<Vec<ThinPoolStatus>>,
    /// When the mounts are read again because some could not be examined.
    mount_retry: Option<Backoff>,
    /// When the storage of file systems that take no discards is examined again.
    examine_at: Duration,
    started: (Instant, SystemTime),
}

impl Service {
    /// Starts the service. Clients can connect from now on; [`Self::run`] serves them.
    ///
    /// # Errors
    /// Any [`ServiceError`]; nothing is left behind.
    pub fn start(options: Options, log: Log) -> Result<Self, ServiceError> {
        let waiting = |what| move |source| ServiceError::Wait { what, source };
        let config = Config::find(options.config.as_deref())?.unwrap_or_default();
        let signals = Signals::listen().map_err(waiting("signals"))?;
        let server = Server::open(&options.run, options.metrics.or(config.metrics()))?;
        restore_knobs(&options.run, log);
        let machine = Machine::live();
        let mounts = MountWatch::start(&machine).map_err(waiting("changes of the mounts"))?;
        let failures = Failures::listen(&machine, &options.frees);
        let (store, run) = (options.store.clone(), options.run.clone());
        let decisions = options.decisions.clone();
        let enders = Enders::default();
        let noticed = enders.clone();
        // Kernels without a function tracer refuse an unmount until a trim has ended by itself.
        let attempts = Attempts::watch(&options.frees, move || noticed.end_all()).ok();
        let speed = options.speed;
        let context = Rc::new(Context {
            machine,
            store,
            hung: Cell::default(),
            run,
            decisions,
            enders,
            failures,
            speed,
        });
        let frees = Frees::start(&options.frees).map_err(Rc::new);
        if let Err(error) = &frees {
            log.warning(
                LogEvent::FreesUnavailable,
                "free events unavailable; trimming all free space once a week",
                &[("reason", &chain(error.as_ref()))],
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
            _attempts: attempts,
            frees,
            read_at: None,
            lost: 0,
            file_systems: Vec::new(),
            is_started: false,
            new: Vec::new(),
            unmounted: Vec::new(),
            pools: SingleCall::default(),
            mount_retry: None,
            examine_at: START + BLOCKED_INTERVAL,
            started: (Instant::now(), SystemTime::now()),
        };
        service.apply_configuration()?;
        service.is_started = true;
        Ok(service)
    }

    /// Serves clients and trims until the service is told to end.
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
            self.read_frees();
            self.save_unmounted();
            self.examine_blocked();
            self.run_due();
        }
        self.manager.stopping();
        self.save_all();
        self.log.info(LogEvent::Stopped, "stopped", &[]);
        Ok(())
    }

    fn now(&self) -> Duration {
        START + self.scaled(self.started.0.elapsed())
    }

    /// Converts a span of wall time to the service's clock.
    fn scaled(&self, span: Duration) -> Duration {
        span.mul_f64(self.options.speed)
    }

    /// Waits until an event arrives or a run is due.
    fn wait(&mut self) -> Result<(), ServiceError> {
        let runs = self.file_systems.iter().filter_map(ManagedFileSystem::next_run);
        let passing = self.new.iter().map(|new| new.due).chain(self.unmounted.iter().map(|left| left.due));
        let others = [self.read_at, self.mount_retry.map(|retry| retry.at()), self.next_examination()];
        let next = runs.chain(passing).chain(others.into_iter().flatten()).min();
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
                return Err(ServiceError::Wait { what: "events", source: errno.into() });
            }
        }
        let mounts_changed = awaited[1].revents().intersects(PollFlags::PRI | PollFlags::ERR);
        let has_frees = awaited[first_frees..].iter().any(|file| !file.revents().is_empty());
        if has_frees {
            self.read_at = Some(Duration::ZERO);
        }
        self.signals.clear();
        let now = self.now();
        let is_due =
            self.mount_retry.map(|retry| retry.at()).into_iter().chain(self.new.iter().map(|new| new.due));
        if mounts_changed || is_due.min().is_some_and(|due| due <= now) {
            if mounts_changed {
                self.mount_retry = None;
            }
            if let Err(error) = self.update_mounts() {
                self.log.warning(
                    LogEvent::MountsUnreadable,
                    "cannot read the mounts; retrying later",
                    &[("error", &chain(&error))],
                );
                self.schedule_retry();
            }
        }
        Ok(())
    }

    /// Reads pending free events, if any are due.
    fn read_frees(&mut self) {
        let (now, speed) = (self.now(), self.options.speed);
        let Ok(frees) = &mut self.frees else { return };
        if self.read_at.is_none_or(|at| at > now) {
            return;
        }
        let began = START + frees.began().saturating_duration_since(self.started.0).mul_f64(speed);
        let mut events = Vec::new();
        match frees.read(&mut events) {
            Ok(more) => self.read_at = more.map(|more| now + more.mul_f64(speed)),
            Err(error) => {
                self.log.error(
                    LogEvent::FreesUnavailable,
                    "free-event stream lost; trimming all free space once a week",
                    &[("reason", &chain(&error))],
                );
                self.frees = Err(Rc::new(error));
                self.read_at = None;
                let managed = std::mem::take(&mut self.file_systems);
                self.file_systems =
                    managed.into_iter().map(|managed| self.follow(managed, None, false, now)).collect();
                self.unmounted.clear();
                return;
            }
        }
        let lost = frees.lost();
        for Freed { at, file_system, extent, .. } in events {
            let left = self.unmounted.iter_mut().map(|unmounted| &mut unmounted.managed);
            let mut all = self.file_systems.iter_mut().chain(left);
            if let Some(managed) = all.find(|managed| managed.found.number() == file_system) {
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
            // The state of what was unmounted is incomplete.
            self.unmounted.clear();
            self.file_systems.iter_mut().for_each(|managed| managed.add_all_free(now));
        }
    }

    /// Runs every file system whose next run is due.
    fn run_due(&mut self) {
        for index in 0..self.file_systems.len() {
            let now = self.now();
            let managed = &mut self.file_systems[index];
            if managed.next_run().is_none_or(|next| next > now) {
                continue;
            }
            let outcome = managed.run(now);
            let log_error = managed.take_log_error();
            let mount = managed.found.mount.target.display();
            if let Some(error) = log_error {
                let fields: [Field; 2] = [("mount", &mount), ("error", &error)];
                self.log.warning(LogEvent::DecisionsNotLogged, "decisions are no longer logged", &fields);
            }
            match outcome {
                RunOutcome::Unchanged => {}
                RunOutcome::ReadOnly => self.schedule_retry(),
                RunOutcome::Recovered => {
                    self.log.info(LogEvent::DiscardRecovered, "discards succeed again", &[("mount", &mount)]);
                }
                RunOutcome::Failed(error) => {
                    let fields: [Field; 2] = [("mount", &mount), ("error", &chain(&error))];
                    self.log.warning(LogEvent::DiscardFailed, "discard failed; retrying later", &fields);
                }
                RunOutcome::Unsupported(error) => {
                    let fields: [Field; 2] = [("mount", &mount), ("error", &chain(&error))];
                    self.log.warning(LogEvent::NoLongerManaged, "no longer managed", &fields);
                    if let Ok(frees) = &mut self.frees {
                        _ = frees.leave_out(&managed.found.mount);
                    }
                    // The doctor names the layer that blocks discards.
                    self.examine_at = now;
                }
            }
        }
    }

    /// Reads and applies the configuration again. If that fails, the previous one stays in effect.
    fn reload(&mut self) -> Result<(), ServiceError> {
        self.manager.reloading();
        let done = self.load_configuration();
        match &done {
            Ok(()) => self.log.info(LogEvent::ConfigurationLoaded, "configuration loaded", &[]),
            Err(error) => {
                self.log.error(
                    LogEvent::ConfigurationRejected,
                    "configuration rejected; the previous one stays in effect",
                    &[("error", &chain(error))],
                );
            }
        }
        self.manager.ready();
        done
    }

    fn load_configuration(&mut self) -> Result<(), ServiceError> {
        let config = Config::find(self.options.config.as_deref())?.unwrap_or_default();
        self.server.set_metrics_address(self.options.metrics.or(config.metrics()))?;
        self.config = config;
        Ok(self.apply_configuration()?)
    }
}
