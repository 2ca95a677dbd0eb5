//! The door to emulated drives: create, open, list, ask, remove.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use serde::{Deserialize, Serialize};
use trimtab_core::profile::Profile;
use trimtab_core::{Bytes, Extent, SECTOR};
use trimtab_linux::block::BlockDevice;
use trimtab_linux::child::inherit_nothing;
use trimtab_linux::{CGROUPS, PROCFS, SYSFS, environment, ioctl, loop_device, mount};

use crate::DriveError;
use crate::directory::{self, DriveDirectory, Registry};
use crate::path;
use crate::protocol::{
    Clock, DriveFigures, DriveStats, PathTimes, QueueLimits, Reply, Request, Room, Spec, receive, send,
};
use crate::timeout;

/// The least requests that the queue of a loop device can hold.
const LEAST_REQUESTS: u32 = 4;

/// How many times faster than the wall clock a drive can run: slower than this, the kernel takes it
/// for hung.
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-3..=1e6;

/// The longest discard of the block layer: 2^32 - 1 bytes in whole sectors.
const LARGEST_DISCARD: Bytes = Bytes(u32::MAX as u64 / SECTOR.0 * SECTOR.0);

/// The options of a new drive.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateOptions {
    /// Its name: letters, digits, dashes and underscores, up to 32, the first no dash.
    pub name: String,
    /// How it behaves.
    pub profile: Profile,
    /// Its size: a whole multiple of the profile's mapping page and of 4 KiB.
    pub size: Bytes,
    /// Whether it is a used drive, every page of whose flash was written before; see
    /// [`Device::precondition`](trimtab_ftl::Device::precondition).
    pub preconditioned: bool,
    /// How its time runs.
    pub clock: Clock,
    /// Where its data goes: a sparse file that must not exist, or memory where this is none. The
    /// file is deleted with the drive.
    pub data: Option<PathBuf>,
    /// The program that serves it. It is run as `PROGRAM drive serve NAME` and as
    /// `PROGRAM drive serve NAME --release PID`, and has to call [`serve`](crate::serve) and
    /// [`release`](crate::release).
    pub server: PathBuf,
    /// Whether the drive goes when the [`Drive`] is dropped or its process dies, however it dies:
    /// file systems mounted from it are unmounted, and the directories they were mounted on removed
    /// where they are empty.
    pub owned: bool,
    /// When it takes room for its data.
    pub room: Room,
}

/// An emulated drive.
#[derive(Debug)]
pub struct Drive {
    directory: DriveDirectory,
    device: PathBuf,
    /// The server of an owned drive takes it down when this closes.
    _life_line: Option<UnixStream>,
}

/// Whether a drive's server is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveState {
    /// It is.
    Running,
    /// It was killed, or ended by a panic. Whoever finds that out cleans up after it.
    Dead,
}

/// A drive in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its block device; none where the drive is dead.
    pub device: Option<PathBuf>,
    /// Whether its server is there.
    pub state: DriveState,
}

/// The drives there are, in order of name; those found dead are cleaned up and listed a last time.
///
/// # Errors
/// [`DriveError::NotRoot`], or what reading the directory of drives gives.
pub fn list() -> Result<Vec<Listed>, DriveError> {
    require_root()?;
    let registry = Registry::lock()?;
    let dead = registry.clean_up()?.into_iter().map(|directory| Listed {
        name: directory.name().to_owned(),
        device: None,
        state: DriveState::Dead,
    });
    let running = registry.places()?.into_iter().filter(|directory| !directory.is_dead().unwrap_or(true));
    let running = running.map(|directory| {
        let device = directory.device()?;
        Ok(Listed { name: directory.name().to_owned(), device, state: DriveState::Running })
    });
    let mut all: Vec<_> = dead.map(Ok).chain(running).collect::<Result<_, DriveError>>()?;
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Takes down the drive `name`, also one whose block device was detached by somebody else.
///
/// # Errors
/// [`DriveError::Unknown`] where there is none, or as for [`Drive::remove`].
pub fn remove(name: &str) -> Result<(), DriveError> {
    require_root()?;
    let registry = Registry::lock()?;
    let directory = find(&registry, name)?;
    match directory.device()? {
        Some(device) => Drive { directory, device, _life_line: None }.remove_from(&registry),
        None => directory.release(),
    }
}

/// The directory of the drive `name`, after cleaning up.
fn find(registry: &Registry, name: &str) -> Result<DriveDirectory, DriveError> {
    let directory = DriveDirectory::named(name)?;
    registry.clean_up()?;
    if directory.exists() {
        return Ok(directory);
    }
    let drives = registry.places()?.iter().map(|directory| directory.name().to_owned()).collect();
    Err(DriveError::Unknown { name: name.to_owned(), drives })
}

impl Drive {
    /// Creates a drive and starts its server. On failure nothing is left behind.
    ///
    /// # Errors
    /// Any [`DriveError`]: what was asked for can't be had, or the machine can't do it.
    pub fn create(options: &CreateOptions) -> Result<Self, DriveError> {
        require_root()?;
        let directory = DriveDirectory::named(&options.name)?;
        File::open("/dev/fuse").map_err(DriveError::NoFuse)?;
        check(options)?;
        let data = options.data.as_deref().map(absolute).transpose()?;
        let registry = Registry::lock()?;
        registry.clean_up()?;
        if directory.exists() {
            return Err(DriveError::Exists { name: options.name.clone() });
        }
        check_room(options, data.as_deref())?;
        let created = directory.create().and_then(|()| start(&directory, options, data));
        if created.is_err() {
            // The first failure is the one to report.
            let _ = directory.release();
        }
        created
    }

    /// The running drive of this name.
    ///
    /// # Errors
    /// [`DriveError::Unknown`] where there is none.
    pub fn open(name: &str) -> Result<Self, DriveError> {
        require_root()?;
        let directory = find(&Registry::lock()?, name)?;
        let device = directory.device()?.ok_or_else(|| DriveError::Detached { name: name.to_owned() })?;
        Ok(Self { directory, device, _life_line: None })
    }

    /// Its block device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.directory.name()
    }

    /// An empty directory to mount a file system of the drive on. It is removed with the drive, also
    /// after its owner was killed.
    pub fn mount_point(&self) -> PathBuf {
        self.directory.mount_point()
    }

    /// Its figures at this moment, once the memory of all that was discarded is given back.
    ///
    /// # Errors
    /// [`DriveError::NoAnswer`] where its server was killed, [`DriveError::Silent`] where it is stopped or
    /// stuck, [`DriveError::Refused`] where its flash model failed.
    pub fn stats(&self) -> Result<DriveStats, DriveError> {
        match self.ask(&Request::Stats)? {
            Reply::Stats(stats) => Ok(*stats),
            _ => Err(self.no_answer(io::ErrorKind::InvalidData.into())),
        }
    }

    /// The figures of its flash model at this moment, which nobody waits for.
    ///
    /// # Errors
    /// As [`stats`](Self::stats).
    pub fn figures(&self) -> Result<DriveFigures, DriveError> {
        match self.ask(&Request::Figures)? {
            Reply::Figures(figures) => Ok(*figures),
            _ => Err(self.no_answer(io::ErrorKind::InvalidData.into())),
        }
    }

    fn ask(&self, request: &Request) -> Result<Reply, DriveError> {
        let server = UnixStream::connect(self.directory.socket()).map_err(|source| self.no_answer(source))?;
        send(&server, request).map_err(|source| self.no_answer(source))?;
        timeout::await_answer(self.name(), &server)?;
        answer(self.name(), receive(&mut BufReader::new(&server)))
    }

    fn no_answer(&self, source: io::Error) -> DriveError {
        DriveError::NoAnswer { name: self.name().to_owned(), source }
    }

    /// Takes the drive down: its block device, its server and its data go.
    ///
    /// # Errors
    /// [`DriveError::Mounted`] or [`DriveError::InUse`], and then nothing has happened;
    /// [`DriveError::Lingers`] where a program merely has the block device open.
    pub fn remove(self) -> Result<(), DriveError> {
        self.remove_from(&Registry::lock()?)
    }

    fn remove_from(self, _: &Registry) -> Result<(), DriveError> {
        if let Some(mounted) = mount::mounts_of(Path::new(PROCFS), &self.device)?.into_iter().next() {
            return Err(DriveError::Mounted {
                name: self.name().to_owned(),
                device: self.device,
                target: mounted.target,
            });
        }
        self.claim()?;
        self.directory.release()
    }

    /// Asks for the block device for itself alone, which fails where another mount namespace, swap
    /// or a device above has it.
    fn claim(&self) -> Result<(), DriveError> {
        let exclusively = rustix::fs::OFlags::EXCL.bits() as i32;
        match OpenOptions::new().read(true).custom_flags(exclusively).open(&self.device) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let holder = directory::holder(&self.device);
                Err(DriveError::InUse { name: self.name().to_owned(), device: self.device.clone(), holder })
            }
            _ => Ok(()),
        }
    }
}

fn require_root() -> Result<(), DriveError> {
    if rustix::process::geteuid().is_root() { Ok(()) } else { Err(DriveError::NotRoot) }
}

fn absolute(path: &Path) -> Result<PathBuf, DriveError> {
    std::path::absolute(path).map_err(DriveError::file("find", path))
}

/// Checks the options before anything is done.
fn check(options: &CreateOptions) -> Result<(), DriveError> {
    let multiple = options.profile.geometry.mapping_page.value.max(Bytes(4096));
    if options.size == Bytes::ZERO || !options.size.0.is_multiple_of(multiple.0) {
        return Err(DriveError::BadSize { size: options.size, multiple });
    }
    let granularity = options.profile.discard.advertised_granularity.value;
    if directory::least_limit(granularity) > LARGEST_DISCARD {
        return Err(DriveError::BadGranularity { granularity });
    }
    match options.clock {
        Clock::Real { speed } if !SPEEDS.contains(&speed) => Err(DriveError::BadSpeed { speed }),
        _ => Ok(()),
    }
}

/// Refuses a drive whose data could outgrow what holds it, unless the caller wants that: a full disk or memory found
/// later takes file systems, or other programs, with it.
fn check_room(options: &CreateOptions, data: Option<&Path>) -> Result<(), DriveError> {
    let size = options.size;
    let (place, available, advice) = match data {
        None => {
            let available = environment::available_memory(Path::new(PROCFS), Path::new(CGROUPS))?;
            let advice = match options.room {
                Room::Kept | Room::Pool(_) => "choose a smaller size",
                _ => "choose a smaller size, a file for the data (--data FILE), or --sparse",
            };
            ("memory".to_owned(), available, advice)
        }
        Some(path) if path.exists() => return Err(DriveError::DataExists { path: path.to_owned() }),
        Some(path) => {
            let place = path.parent().unwrap_or(path);
            let disk = rustix::fs::statvfs(place)
                .map_err(|errno| DriveError::file("look at", place)(errno.into()))?;
            let available = Bytes(disk.f_bavail * disk.f_frsize);
            (place.display().to_string(), available, "choose a smaller size, another disk, or --sparse")
        }
    };
    let size = match options.room {
        Room::Pool(memory) => memory,
        _ => size,
    };
    if size > available && options.room != Room::Sparse {
        return Err(DriveError::NoRoom { size, place, available, advice });
    }
    Ok(())
}

/// Sends `message` to the server of the drive `name` and waits for its answer.
fn ask(name: &str, server: &UnixStream, message: &impl Serialize) -> Result<Reply, DriveError> {
    answer(name, send(server, message).and_then(|()| receive(&mut BufReader::new(server))))
}

/// Returns the answer of the server of the drive `name`.
fn answer(name: &str, received: io::Result<Reply>) -> Result<Reply, DriveError> {
    match received.map_err(|source| DriveError::NoAnswer { name: name.to_owned(), source })? {
        Reply::Refused { reason } => Err(DriveError::Refused { reason }),
        reply => Ok(reply),
    }
}

/// Starts the server and puts a block device on its file.
fn start(
    directory: &DriveDirectory,
    options: &CreateOptions,
    data: Option<PathBuf>,
) -> Result<Drive, DriveError> {
    let life_line = start_server(directory, options)?;
    let spec = Spec {
        profile: options.profile.clone(),
        size: options.size,
        preconditioned: options.preconditioned,
        clock: options.clock,
        data,
        owned: options.owned,
        room: options.room,
    };
    ask(&options.name, &life_line, &spec)?;
    let device = loop_device::attach(&directory.file(), SECTOR)?;
    let limits = set_limits(&device, &options.profile)?;
    let path = match options.clock {
        Clock::Model => PathTimes::default(),
        Clock::Real { .. } => path::measure(&device)?,
    };
    let request = Request::Start { device: device.clone(), limits, path };
    ask(&options.name, &life_line, &request)?;
    let life_line = options.owned.then_some(life_line);
    Ok(Drive { directory: directory.clone(), device, _life_line: life_line })
}

/// Runs the server; it reads what to serve from the socket that is its standard input, and answers
/// there.
fn start_server(directory: &DriveDirectory, options: &CreateOptions) -> Result<UnixStream, DriveError> {
    let failed = |source| DriveError::Start { executable: options.server.clone(), source };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new(&options.server);
    command.args(["drive", "serve", directory.name()]).current_dir("/");
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
    // It outlives its creator.
    inherit_nothing(&mut command);
    let mut server = command.spawn().map_err(failed)?;
    // The command holds the server's end of the socket.
    drop(command);
    // A long-lived creator leaves no zombies.
    thread::spawn(move || server.wait());
    Ok(ours)
}

/// Tells the kernel what the drive takes.
fn set_limits(device: &Path, profile: &Profile) -> Result<QueueLimits, DriveError> {
    let block = BlockDevice::open(Path::new(SYSFS), device)?;
    directory::reset_limits(&block)?;
    // The server refuses this one, whereupon the loop driver drops "write zeroes" for good; the
    // kernel then writes a sector of zeros.
    let opened = OpenOptions::new().write(true).open(device).map_err(DriveError::file("open", device))?;
    ioctl::zero_out(&opened, Extent::at(Bytes::ZERO, SECTOR))
        .map_err(|errno| DriveError::file("write to", device)(errno.into()))?;
    if block.discard_limits()?.write_zeroes_max != Bytes::ZERO {
        return Err(DriveError::WriteZeroes);
    }
    let longest = profile.discard.command_limit.value.min(LARGEST_DISCARD);
    block.set_discard_max(directory::whole_grains(longest, block.discard_limits()?.granularity))?;
    let depth = profile.timing.queue_depth.value;
    block.set_queue_requests(depth.clamp(LEAST_REQUESTS, directory::MOST_REQUESTS))?;
    let limits = block.discard_limits()?;
    Ok(QueueLimits {
        discard_granularity: limits.granularity,
        discard_max: limits.max,
        requests: block.queue_requests()?,
    })
}
