//! Helpers of the tests of the bench: devices that go when a test ends, and runs on them.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::BenchDocument;
use trimtab_core::profile::Profile;
use trimtab_drive::{Clock, CreateOptions, Drive, Room};
use trimtab_linux::loop_device;

use crate::common;

/// Kept for reading by each test, and for writing by those that run alone.
static RUNNING: RwLock<()> = RwLock::new(());

/// The part of [`RUNNING`] that a test keeps until its thread ends.
enum Presence {
    Beside(#[expect(dead_code, reason = "its end is what matters")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "its end is what matters")] RwLockWriteGuard<'static, ()>),
}

thread_local! {
    static PRESENCE: RefCell<Option<Presence>> = const { RefCell::new(None) };
}

/// Whether a test can run here; waits for those that run alone.
pub fn possible() -> bool {
    PRESENCE.take();
    PRESENCE.set(Some(Presence::Beside(RUNNING.read().unwrap_or_else(PoisonError::into_inner))));
    common::possible()
}

/// Whether a test can run here; waits until no other does, and keeps others waiting until it ends.
pub fn possible_alone() -> bool {
    PRESENCE.take();
    PRESENCE.set(Some(Presence::Alone(RUNNING.write().unwrap_or_else(PoisonError::into_inner))));
    common::possible()
}

pub const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");

/// Tests that measure wall time take turns, so that they don't disturb each other; so do those that copy all
/// mounts into a new namespace, and those that need a device as soon as they unmounted it.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held while a loop device is attached: who is told of a free one opens it for writing, although another was
/// faster, and a bench of it would be refused for that.
pub fn attaching() -> MutexGuard<'static, ()> {
    static ATTACHING: Mutex<()> = Mutex::new(());
    ATTACHING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An emulated drive of this test's own.
pub fn drive(profile: Profile, size: Bytes, clock: Clock) -> Drive {
    drive_in(profile, size, clock, None)
}

/// An emulated drive whose data are in the file `data`, if one is given.
pub fn drive_in(profile: Profile, size: Bytes, clock: Clock, data: Option<PathBuf>) -> Drive {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let _attaching = attaching();
    let turn = NEXT.fetch_add(1, Ordering::Relaxed);
    Drive::create(&CreateOptions {
        name: format!("bench-{}-{turn}", std::process::id()),
        profile,
        size,
        preconditioned: false,
        clock,
        data,
        server: PathBuf::from(TRIMTAB),
        owned: true,
        room: Room::default(),
    })
    .unwrap()
}

/// A loop device over a sparse file.
pub struct Loop {
    pub device: PathBuf,
    pub file: PathBuf,
    _dir: TempDir,
}

impl Loop {
    pub fn new(size: Bytes) -> Self {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("backing");
        fs::File::create(&file).unwrap().set_len(size.0).unwrap();
        let _attaching = attaching();
        let device = loop_device::attach(&file, Bytes(512)).unwrap();
        Self { device, file, _dir: dir }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = loop_device::detach(&self.device);
    }
}

/// A bench of `device`, which may be a file behind a loop device, with these further arguments.
pub fn bench(device: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(TRIMTAB);
    command.arg("bench").arg(device).arg("--destroy-data").arg(device).arg("--allow-part").args(arguments);
    command
}

/// Runs a bench, which has to succeed, and returns its results and the words that it printed.
pub fn results(device: &Path, arguments: &[&str]) -> (BenchDocument, String) {
    let dir = TempDir::new().unwrap();
    let json = dir.path().join("bench.json");
    let output = bench(device, arguments).arg("--json").arg(&json).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    (saved(&json), text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The results in a file.
pub fn saved(json: &Path) -> BenchDocument {
    serde_json::from_slice(&fs::read(json).unwrap()).unwrap()
}

/// The one line that a bench says when it fails, with its exit status. It may first name what it could not
/// look at, which depends on the machine, and what it slows.
pub fn refusal(output: &Output) -> (Option<i32>, String) {
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    let asides = ["trimtab: not known: ", "trimtab: will be slowed: "];
    let is_aside = |line: &&str| asides.iter().any(|aside| line.starts_with(aside));
    let reason: String = said.split_inclusive('\n').filter(|line| !is_aside(line)).collect();
    assert_eq!(reason.lines().count(), 1, "{reason}");
    (output.status.code(), reason)
}

/// Runs a program of the system, which has to succeed.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}
