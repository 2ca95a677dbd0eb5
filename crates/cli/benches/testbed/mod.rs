//! A file system on an emulated drive in real time, for the benches of trims.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::Bytes;
use trimtab_core::profile::Profile;
use trimtab_drive::{Clock, CreateOptions, Drive, Room};
use trimtab_linux::mount;

pub const TRIMTAB: &str = env!("CARGO_BIN_EXE_trimtab");

/// A file system on a drive in real time, whose data is in memory.
pub struct Testbed {
    pub drive: Drive,
    pub place: PathBuf,
    fstype: String,
    memory: PathBuf,
}

impl Testbed {
    /// A new and empty one of `size` bytes, called `name` for this process.
    pub fn new(name: &str, fstype: &str, profile: &Profile, size: Bytes) -> Self {
        let name = format!("bench-{name}-{}", std::process::id());
        let place = std::env::temp_dir().join(&name);
        let memory = place.with_extension("memory");
        for directory in [&place, &memory] {
            fs::create_dir_all(directory).expect("a directory can be made");
        }
        // The drive's whole size has to fit, however little of it is ever held.
        mount::mount(Path::new("memory"), &memory, "tmpfs", "size=64g").expect("memory can be mounted");
        let drive = Drive::create(&CreateOptions {
            name,
            profile: profile.clone(),
            size,
            preconditioned: false,
            clock: Clock::Real { speed: 1.0 },
            data: Some(memory.join("data")),
            server: PathBuf::from(TRIMTAB),
            owned: true,
            room: Room::default(),
        })
        .expect("a drive can be created");
        let keep: &[&str] = match fstype {
            "ext4" => &["-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
            _ => &["-q", "-K"],
        };
        run(Command::new(format!("mkfs.{fstype}")).args(keep).arg(drive.device()));
        let testbed = Self { drive, place, fstype: fstype.to_owned(), memory };
        testbed.mount();
        testbed
    }

    pub fn mount(&self) {
        mount::mount(self.drive.device(), &self.place, &self.fstype, "nodiscard").expect("it can be mounted");
    }

    pub fn unmount(&self) {
        unmount(&self.place);
    }

    pub fn remove(self) {
        self.unmount();
        self.drive.remove().expect("the drive can be removed");
        unmount(&self.memory);
        // What is left are empty directories.
        for directory in [&self.place, &self.memory] {
            let _ = fs::remove_dir(directory);
        }
    }
}

/// Unmounts what others may have open for a moment.
fn unmount(place: &Path) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Err(error) = mount::unmount(place) {
        assert!(Instant::now() < deadline, "{error}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a program, which has to succeed.
pub fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
