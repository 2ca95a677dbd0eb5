//! The policy `smart`: the service itself, running beside the workload.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::status::{FileSystemStatus, State};
use trimtab_keeper::service::control;

use trimtab_guest::program::ProgramError;

use crate::error::{LabError, io_at};
use trimtab_core::interrupt::Interrupt;

/// The longest wait for the service to start, and to end.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The time from one check to the next during such a wait.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The options of the service for the run's file system.
pub struct ServiceOptions<'a> {
    /// The executable: trimtab itself.
    pub program: &'a Path,
    /// Where the file system is mounted.
    pub mount: &'a Path,
    /// The device that it is mounted from.
    pub device: &'a Path,
    /// The drive profile, as TOML; without one the service chooses.
    pub profile: Option<&'a str>,
    /// Drive seconds per second of this machine's clock.
    pub speed: f64,
}

/// `trimtab daemon` as a child process that manages the run's file system alone. It ends when this
/// is dropped.
pub struct Service {
    child: Child,
    mount: PathBuf,
    device: PathBuf,
    dir: TempDir,
}

impl Service {
    /// Starts it, and waits until it manages the file system.
    ///
    /// # Errors
    /// [`LabError::Service`] with the last line of its log if it ends or does not answer.
    pub fn start(options: &ServiceOptions, interrupt: &Interrupt) -> Result<Self, LabError> {
        let dir = tempfile::Builder::new().prefix("trimtab-service-").tempdir();
        let dir = dir.map_err(io_at(&std::env::temp_dir(), "make a directory in"))?;
        let at = |name: &str| dir.path().join(name);
        let mut config = format!(
            "[defaults]\npolicy = \"none\"\n[mount.{:?}]\npolicy = \"smart\"\n",
            options.mount.display().to_string()
        );
        if let Some(profile) = options.profile {
            fs::write(at("profile.toml"), profile).map_err(io_at(&at("profile.toml"), "write"))?;
            let _ = write!(
                config,
                "[drive.{:?}]\nprofile = {:?}\n",
                options.device.display().to_string(),
                at("profile.toml").display().to_string()
            );
        }
        fs::write(at("config.toml"), config).map_err(io_at(&at("config.toml"), "write"))?;
        let log = File::create(at("log")).map_err(io_at(&at("log"), "create"))?;
        let mut command = Command::new(options.program);
        command.arg("daemon").arg("--config").arg(at("config.toml"));
        command.arg("--run").arg(at("run")).arg("--state").arg(at("state"));
        command.arg("--speed").arg(options.speed.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let program = options.program.display().to_string();
        let child = command.spawn().map_err(|source| ProgramError::Spawn { program, source })?;
        let mut service =
            Self { child, mount: options.mount.to_owned(), device: options.device.to_owned(), dir };
        service.wait_until_managed(interrupt)?;
        Ok(service)
    }

    fn wait_until_managed(&mut self, interrupt: &Interrupt) -> Result<(), LabError> {
        let started = Instant::now();
        loop {
            interrupt.check()?;
            match self.status() {
                Some(status) if status.state == State::Off => {
                    return Err(self.failed(status.reason.unwrap_or_default()));
                }
                Some(_) => return Ok(()),
                None => {}
            }
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(self.failed(self.last_line()));
            }
            if started.elapsed() > TIMEOUT {
                return Err(self.failed(format!("it does not answer within {} s", TIMEOUT.as_secs())));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn failed(&self, reason: String) -> LabError {
        LabError::Service { mount: self.mount.clone(), reason }
    }

    /// Its status of the file system; none before it answers.
    fn status(&self) -> Option<FileSystemStatus> {
        let document = control::status(&self.dir.path().join("run")).ok()?;
        // A file system that is mounted at several places is listed with one of them.
        let is_ours = |fs: &FileSystemStatus| {
            Path::new(&fs.mount) == self.mount || Path::new(&fs.device) == self.device
        };
        document.file_systems.into_iter().find(is_ours)
    }

    fn last_line(&self) -> String {
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        log.lines().last().unwrap_or("it ended without a message").to_owned()
    }

    /// Bytes that were freed and are not discarded yet.
    ///
    /// # Errors
    /// [`LabError::Service`] if it has ended, or no longer manages the file system.
    pub fn pending(&self) -> Result<Bytes, LabError> {
        match self.status() {
            Some(status) if status.state != State::Off => Ok(status.pending),
            Some(status) => Err(self.failed(status.reason.unwrap_or_default())),
            None => Err(self.failed(self.last_line())),
        }
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends it and waits for that, so that it no longer has the mount open.
    pub fn finish(self) {
        drop(self);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let asked = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if asked.elapsed() > TIMEOUT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }
}
