//! Helpers of the tests: drives that go when a test ends, however it ends.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use trimtab_core::profile::{DiscardedReads, Profile};
use trimtab_core::{Bytes, Extent};
use trimtab_drive::{Clock, CreateOptions, Drive, Room};
use trimtab_linux::ioctl;

pub use crate::common::possible;

pub const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");

/// Linux's `O_DIRECT` on the architectures that trimtab is built for here.
const O_DIRECT: i32 = 0x4000;

/// A name that no other test uses.
pub fn unique(stem: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{stem}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A drive that can be small, honours 4 KiB grains and reads as `reads` after a discard.
pub fn profile(reads: DiscardedReads) -> Profile {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    profile.geometry.mapping_page.value = Bytes(4096);
    profile.geometry.program_unit.value = Bytes(16 << 10);
    profile.geometry.erase_block.value = Bytes::MIB;
    profile.geometry.over_provisioning.value = 0.25;
    profile.geometry.channels.value = 2;
    profile.geometry.dies_per_channel.value = 1;
    profile.discard.advertised_granularity.value = Bytes(512);
    profile.discard.honoured_granularity.value = Bytes(4096);
    profile.discard.reads.value = reads;
    profile
}

pub fn options(profile: Profile, size: Bytes) -> CreateOptions {
    CreateOptions {
        name: unique("test"),
        profile,
        size,
        preconditioned: false,
        clock: Clock::Model,
        data: None,
        server: PathBuf::from(TRIMTAB),
        owned: true,
        room: Room::default(),
    }
}

/// A drive of this test's own.
pub fn drive(profile: Profile, size: Bytes) -> Drive {
    Drive::create(&options(profile, size)).unwrap()
}

/// Opens a block device past the page cache.
pub fn open_direct(device: &Path) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(device).unwrap()
}

/// A buffer that direct I/O takes.
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    pub fn new(length: usize) -> Self {
        let memory = vec![0; length + 4096];
        let start = memory.as_ptr().align_offset(4096);
        Self { memory, start, length }
    }

    pub fn filled(length: usize, byte: u8) -> Self {
        let mut buffer = Self::new(length);
        buffer.bytes_mut().fill(byte);
        buffer
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

pub fn read_at(device: &File, at: u64, length: usize) -> Vec<u8> {
    let mut buffer = Aligned::new(length);
    device.read_exact_at(buffer.bytes_mut(), at).unwrap();
    buffer.bytes().to_vec()
}

pub fn discard(device: &File, start: u64, length: u64) {
    ioctl::discard(device, Extent::at(Bytes(start), Bytes(length))).unwrap();
}

/// Numbers that look random and are the same at every run.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Runs the binary.
pub fn trimtab(arguments: &[&str]) -> Output {
    Command::new(TRIMTAB).args(arguments).output().unwrap()
}

/// Runs the binary, which has to succeed, and returns what it printed.
pub fn trimtab_prints(arguments: &[&str]) -> String {
    let output = trimtab(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the binary, which has to fail with exit status 1, and returns its one line of reason.
pub fn trimtab_refuses(arguments: &[&str]) -> String {
    let output = trimtab(arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert!(output.stdout.is_empty());
    let reason = String::from_utf8(output.stderr).unwrap();
    assert_eq!(reason.lines().count(), 1, "{reason}");
    reason
}

/// Runs a program of the system, which has to succeed.
pub fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until `done`, for at most ten seconds.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether anything of the drive `name` is left: its directory, a mount or a loop device.
pub fn is_left(name: &str) -> bool {
    let place = Path::new("/run/trimtab/drives").join(name);
    let mounted = fs::read_to_string("/proc/self/mountinfo").unwrap().contains(name);
    let attached = trimtab_linux::loop_device::attached(Path::new(trimtab_linux::SYSFS)).unwrap();
    let attached = attached.iter().any(|device| device.file.starts_with(&place));
    let exists =
        !matches!(fs::symlink_metadata(&place), Err(error) if error.kind() == io::ErrorKind::NotFound);
    exists || mounted || attached
}
