//! Shared by the tests of record: a mounted file system on a drive of the test's own, and traces.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::profile::Profile;
use trimtab_core::trace::{EventKind, TraceEvent, TraceHeader, TraceSource};
use trimtab_drive::{Clock, CreateOptions, Drive, Room};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::{SYSFS, mount};
use trimtab_trace::TraceFile;

pub use crate::common::possible;

pub const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");

/// An emulated drive of this test's own.
pub fn drive(size: Bytes) -> Drive {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let turn = NEXT.fetch_add(1, Ordering::Relaxed);
    Drive::create(&CreateOptions {
        name: format!("record-{}-{turn}", std::process::id()),
        profile: Profile::named("ocz-agility-3").unwrap(),
        size,
        preconditioned: true,
        clock: Clock::Model,
        data: None,
        server: PathBuf::from(TRIMTAB),
        owned: true,
        room: Room::default(),
    })
    .unwrap()
}

/// A file system that is unmounted when this is dropped.
pub struct Mounted {
    pub target: PathBuf,
    _dir: TempDir,
}

impl Mounted {
    /// Makes a file system on `drive` and mounts it with `options`.
    pub fn new(drive: &Drive, fs: &str, options: &str) -> Self {
        let dir = TempDir::new().unwrap();
        let target = dir.path().canonicalize().unwrap();
        let output = Command::new(format!("mkfs.{fs}")).arg("-q").arg(drive.device()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        mount::mount(drive.device(), &target, fs, options).unwrap();
        Self { target, _dir: dir }
    }

    pub fn path(&self) -> &str {
        self.target.to_str().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = mount::unmount(&self.target).or_else(|_| mount::unmount_lazily(&self.target));
    }
}

/// Runs `trimtab record` with these arguments.
pub fn record(arguments: &[&str]) -> Output {
    Command::new(TRIMTAB).arg("record").args(arguments).output().unwrap()
}

/// Runs `trimtab record` and asserts success; returns stderr.
pub fn recorded(arguments: &[&str]) -> String {
    let output = record(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    said
}

/// A whole trace.
pub struct Trace {
    pub header: TraceHeader,
    pub events: Vec<TraceEvent>,
}

impl Trace {
    pub fn read(path: &Path) -> Self {
        let mut file = TraceFile::open(path).unwrap();
        let (mut events, mut batch) = (Vec::new(), Vec::new());
        loop {
            file.next_batch(&mut batch).unwrap();
            if batch.is_empty() {
                return Self { header: file.header().clone(), events };
            }
            events.append(&mut batch);
        }
    }

    /// How many events of a kind the device had, and the bytes they name.
    pub fn total(&self, device: &str, kind: EventKind) -> (u64, Bytes) {
        let place = self.header.devices.iter().position(|known| known.name == device);
        let ours = self
            .events
            .iter()
            .filter(|event| event.kind == kind && Some(usize::from(event.device.0)) == place);
        ours.fold((0, Bytes::ZERO), |(count, bytes), event| (count + 1, bytes + event.extent.len()))
    }
}

/// The device in sysfs.
pub fn block(drive: &Drive) -> BlockDevice {
    BlockDevice::open(Path::new(SYSFS), drive.device()).unwrap()
}

/// Returns the tracefs instances of trimtab that exist.
pub fn instances() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/kernel/tracing/instances");
    let names = entries.into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("trimtab-")).collect()
}
