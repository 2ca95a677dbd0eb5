//! Services and file systems that are removed when a test ends.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::StatusDocument;
use trimtab_core::document::status::{FileSystemStatus, State};
use trimtab_core::profile::{Profile, builtin_text};
use trimtab_drive::{Clock, CreateOptions, Drive, Room};
use trimtab_keeper::service::control;
use trimtab_linux::block::{BlockCounters, BlockDevice};
use trimtab_linux::{SYSFS, loop_device, mount};

pub use crate::common::possible;

pub const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");

/// How large volumes usually are.
pub const SIZE: Bytes = Bytes(512 << 20);

/// Held shared while a drive is created, and exclusively while a test has a dead drive, which the next
/// creation would clean up.
pub static DRIVES: RwLock<()> = RwLock::new(());

/// A file system on a device of its own.
pub struct Volume {
    pub device: PathBuf,
    pub target: PathBuf,
    pub fstype: String,
    dir: TempDir,
    drive: Option<Drive>,
}

impl Volume {
    /// A file system that is not mounted yet.
    pub fn new(fstype: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("backing");
        Self::on_file(fstype, &file, SIZE, dir)
    }

    /// A larger one whose loop device is a disk of its own, whatever this machine's are like.
    pub fn in_memory(fstype: &str) -> Self {
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let file = dir.path().join("backing");
        Self::on_file(fstype, &file, Bytes::GIB, dir)
    }

    /// One on a loop device over a new file of this size, and mounted in `dir`.
    pub fn on_file(fstype: &str, file: &Path, size: Bytes, dir: TempDir) -> Self {
        File::create(file).unwrap().set_len(size.0).unwrap();
        Self::on(fstype, loop_device::attach(file, Bytes(512)).unwrap(), dir, None)
    }

    /// One that is mounted from an emulated drive which behaves like `profile`.
    pub fn on_drive(fstype: &str, mut profile: Profile, clock: Clock) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let _making = DRIVES.read().unwrap_or_else(PoisonError::into_inner);
        profile.geometry.over_provisioning.value = 0.25;
        let drive = Drive::create(&CreateOptions {
            name: format!("daemon-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)),
            profile,
            size: SIZE,
            preconditioned: false,
            clock,
            data: None,
            server: PathBuf::from(TRIMTAB),
            owned: true,
            room: Room::default(),
        });
        let drive = drive.unwrap();
        let volume = Self::on(fstype, drive.device().to_owned(), TempDir::new().unwrap(), Some(drive));
        volume.mount();
        volume
    }

    fn on(fstype: &str, device: PathBuf, dir: TempDir, drive: Option<Drive>) -> Self {
        let target = dir.path().join("mounted");
        fs::create_dir(&target).unwrap();
        let volume = Self { device, target, fstype: fstype.to_owned(), dir, drive };
        // Otherwise the kernel initializes the ext4 in the background, and its writes disturb the test.
        let at_once: &[_] =
            if fstype == "ext4" { &["-E", "lazy_itable_init=0,lazy_journal_init=0"] } else { &[] };
        run(Command::new(format!("mkfs.{fstype}")).arg("-q").args(at_once).arg(&volume.device));
        volume
    }

    pub fn mounted(fstype: &str) -> Self {
        let volume = Self::new(fstype);
        volume.mount();
        volume
    }

    /// Mounts it; btrfs so that it doesn't discard by itself.
    pub fn mount(&self) {
        let options = if self.fstype == "btrfs" { "nodiscard" } else { "" };
        mount::mount(&self.device, &self.target, &self.fstype, options).unwrap();
    }

    /// The server of the drive that it is on.
    pub fn server(&self) -> Pid {
        let drive = self.drive.as_ref().expect("it is on a drive");
        Pid::from_raw(drive.stats().unwrap().server as i32).unwrap()
    }

    /// Unmounts it. Retries, because a child that another test just forked has this test's files open until it executes.
    pub fn unmount(&self) {
        let deadline = Instant::now() + Duration::from_millis(500);
        while let Err(error) = mount::unmount(&self.target) {
            assert!(Instant::now() < deadline, "{error}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn remount(&self, options: &str) {
        run(Command::new("mount").args(["-o", options]).arg(&self.target));
    }

    pub fn block(&self) -> BlockDevice {
        BlockDevice::open(Path::new(SYSFS), &self.device).unwrap()
    }

    pub fn counters(&self) -> BlockCounters {
        self.block().counters().unwrap()
    }

    /// Writes a file of this many bytes, which is on the device afterwards.
    pub fn write(&self, name: &str, size: Bytes) -> PathBuf {
        let path = self.target.join(name);
        let bytes: Vec<u8> = (0..size.0).map(|at| (at ^ (at >> 8)) as u8).collect();
        fs::write(&path, bytes).unwrap();
        self.sync();
        path
    }

    /// Writes many small files, and deletes every second of them; returns the bytes that this frees.
    pub fn fray(&self) -> Bytes {
        self.fray_into(32)
    }

    /// The same, for this many free pieces.
    pub fn fray_into(&self, pieces: usize) -> Bytes {
        let names: Vec<_> =
            (0..pieces * 2).map(|number| self.target.join(format!("small-{number}"))).collect();
        names.iter().for_each(|path| fs::write(path, vec![7; 16 << 10]).unwrap());
        self.sync();
        names.iter().step_by(2).for_each(|path| fs::remove_file(path).unwrap());
        self.sync();
        Bytes(pieces as u64 * (16 << 10))
    }

    pub fn delete(&self, name: &str) {
        fs::remove_file(self.target.join(name)).unwrap();
        self.sync();
    }

    pub fn sync(&self) {
        trimtab_linux::trim::sync(&self.target).unwrap();
    }

    /// How it is called in a configuration.
    pub fn table(&self) -> String {
        format!("[mount.\"{}\"]\n", self.target.display())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        while mount::unmount(&self.target).is_err() && Instant::now() < deadline {
            if !fs::read_to_string("/proc/self/mountinfo")
                .unwrap()
                .contains(self.dir.path().to_str().unwrap())
            {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        if self.drive.is_none() {
            let _ = loop_device::detach(&self.device);
        }
    }
}

/// Runs a program, which has to succeed.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A service that manages only the configured file systems.
pub struct Daemon {
    pub child: Child,
    pub dir: TempDir,
}

impl Daemon {
    pub fn start(config: &str) -> Self {
        Self::start_with(config, |_| {})
    }

    /// One with a change to its command.
    pub fn start_with(config: &str, change: impl FnOnce(&mut Command)) -> Self {
        let dir = TempDir::new().unwrap();
        // Others may ask for the status.
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        Self::start_in(dir, config, change)
    }

    /// Starts a service in the directory of an earlier one.
    pub fn start_in(dir: TempDir, config: &str, change: impl FnOnce(&mut Command)) -> Self {
        configure(&dir, config);
        let mut command = Command::new(TRIMTAB);
        command.arg("daemon").arg("--config").arg(dir.path().join("config.toml"));
        command.arg("--run").arg(dir.path().join("run")).arg("--state").arg(dir.path().join("state"));
        let log = File::options().create(true).append(true).open(dir.path().join("log")).unwrap();
        command.stderr(log).stdout(Stdio::null()).stdin(Stdio::null());
        change(&mut command);
        let mut daemon = Self { child: command.spawn().unwrap(), dir };
        wait_until("the service answers", || {
            assert!(daemon.child.try_wait().unwrap().is_none(), "it ended: {}", daemon.log());
            control::status(&daemon.run()).is_ok()
        });
        daemon
    }

    pub fn run(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    pub fn configure(&self, config: &str) {
        configure(&self.dir, config);
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    pub fn logged(&self, part: &str) -> usize {
        self.log().lines().filter(|line| line.contains(part)).count()
    }

    pub fn status(&self) -> StatusDocument {
        control::status(&self.run()).unwrap()
    }

    /// Returns the status of the volume; `None` if the service doesn't know it.
    pub fn status_of(&self, volume: &Volume) -> Option<FileSystemStatus> {
        let target = volume.target.display().to_string();
        let found = self.status().file_systems.into_iter().find(|fs| fs.mount == target);
        if let Some(fs) = &found {
            let needs_reason =
                matches!(fs.state, State::Waiting | State::Trimming | State::Failing | State::Off);
            assert!(fs.reason.is_some() || !needs_reason, "a state without its reason: {fs:#?}");
        }
        found
    }

    /// Waits until it is managed the volume so, for at most thirty seconds.
    pub fn wait_for(&self, volume: &Volume, what: &str, mut is_so: impl FnMut(&FileSystemStatus) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let status = self.status_of(volume);
            if status.as_ref().is_some_and(&mut is_so) {
                return;
            }
            assert!(Instant::now() < deadline, "timed out waiting until {what}: {status:#?}\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until what was free on the volume when it began is trimmed: what is freed meanwhile would go with it.
    pub fn wait_for_first_trims(&self, volume: &Volume) {
        self.wait_for(volume, "what was free is trimmed", |fs| {
            fs.trimmed > Bytes::MIB && fs.pending < Bytes::MIB
        });
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it as a service manager does; returns its exit code.
    pub fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.child.wait().unwrap().code()
    }

    /// Kills it, and hands over its directory.
    pub fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.dir, TempDir::new().unwrap())
    }

    /// The tracefs instances that it has.
    pub fn instances(&self) -> usize {
        instances(self.pid())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.stop();
        }
    }
}

/// Writes the configuration; file systems that it does not name are not managed.
fn configure(dir: &TempDir, config: &str) {
    let text = format!("{config}\n[defaults]\npolicy = \"none\"\nmin_mount_age = \"0s\"\n");
    fs::write(dir.path().join("config.toml"), text).unwrap();
}

/// The tracefs instances of the process with this number.
pub fn instances(pid: u32) -> usize {
    let entries = fs::read_dir("/sys/kernel/tracing/instances").unwrap().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("trimtab-{pid}-")))
        .count()
}

/// The table of a configuration that has a volume managed, however busy others keep its drive.
pub fn smart(volume: &Volume) -> String {
    volume.table() + "policy = \"smart\"\nmax_busy_share = 1.0\n"
}

/// The same, trimmed as soon as something is freed.
pub fn eager(volume: &Volume) -> String {
    smart(volume) + "max_age = \"1s\"\n"
}

/// The table of a configuration that has all that is free of a volume trimmed once a week.
pub fn weekly(volume: &Volume) -> String {
    volume.table() + "policy = \"batched:1w\"\nmax_busy_share = 1.0\n"
}

/// Returns a configuration for `volume` in which small extents stay pending for an hour: by its profile, the
/// drive ignores discards below 1 GiB, and its pool, if it is one, has larger chunks.
pub fn patient(volume: &Volume, dir: &Path) -> String {
    let (small, large) = ("value = \"512 B\", source = \"Samsung", "value = \"1 GiB\", source = \"Samsung");
    let profile = builtin_text("nvme-tlc").unwrap().replace(small, large);
    let path = dir.join("patient.toml");
    fs::write(&path, profile).unwrap();
    format!("{}profile = \"{}\"\n", smart(volume), path.display())
}

/// Waits until `done`, for at most thirty seconds.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the error of a verb that must fail with exactly one line.
pub fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}
