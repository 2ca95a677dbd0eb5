//! Lists the files and devices that processes have open for writing.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;

use super::ClaimError;
use crate::block::DeviceNumber;
use crate::descriptors::share_descriptors;
use crate::identity::{self, FileId};
use crate::mount;

/// The device by which FUSE servers talk to the kernel.
const FUSE: DeviceNumber = DeviceNumber { major: 10, minor: 229 };

/// How often processes are listed until no new ones appear.
const MOST_ROUNDS: usize = 16;

/// The target of links to an io_uring.
const RING: &str = "anon_inode:[io_uring]";

/// How often the `fdinfo` of an io_uring is read while it is locked, and the time between two reads.
const MOST_READS: u32 = 2000;
const BETWEEN_READS: Duration = Duration::from_micros(500);

/// A file or device that a process has open for writing, or mapped so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opened {
    /// The process.
    pub process: u32,
    /// The link in procfs that leads to it, or its path.
    pub link: PathBuf,
    /// Its kind.
    pub what: What,
}

/// The kinds of open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Device(DeviceNumber),
    /// A character device, which may take commands for a drive.
    Character(DeviceNumber),
    File(FileId),
    /// The end of a FUSE connection: its number, where the kernel says it.
    Fuse(Option<u32>),
}

/// The files and devices that are open for writing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Processes {
    /// All that was found.
    pub opened: Vec<Opened>,
    /// How many processes could not be looked at.
    pub unseen: usize,
    /// A process with an io_uring that was too busy to be read.
    busy_ring: Option<u32>,
}

impl Processes {
    /// Looks at all processes of `procfs` but for this one.
    ///
    /// # Errors
    /// [`ClaimError::Mounts`], where they can't be listed; [`ClaimError::BusyRing`].
    pub fn of(procfs: &Path) -> Result<Self, ClaimError> {
        let mut all = Self::default();
        // The number that this process has there, which may belong to another PID namespace.
        let this = fs::read_link(procfs.join("self")).ok();
        let this = this.and_then(|link| link.to_str()?.parse().ok()).unwrap_or(std::process::id());
        let mut looked_at = BTreeSet::from([this]);
        // A process that ends may leave its files to one that it has forked meanwhile.
        for _ in 0..MOST_ROUNDS {
            let mut new = mount::processes(procfs)?;
            new.retain(|process| looked_at.insert(*process));
            if new.is_empty() {
                break;
            }
            new.into_iter().for_each(|process| all.look_at(procfs, process));
        }
        match all.busy_ring {
            Some(process) => Err(ClaimError::BusyRing { process, name: name(procfs, process) }),
            None => Ok(all),
        }
    }

    fn look_at(&mut self, procfs: &Path, process: u32) {
        match process_opened(procfs, process) {
            Ok(found) => {
                let opened = found.into_iter().map(|(link, what)| Opened { process, link, what });
                self.opened.extend(opened);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.busy_ring = Some(process),
            Err(error) => self.unseen += usize::from(!is_gone(&error)),
        }
    }
}

/// Returns the name of a process.
pub(super) fn name(procfs: &Path, process: u32) -> String {
    let text = fs::read_to_string(procfs.join(process.to_string()).join("comm")).unwrap_or_default();
    text.trim_end_matches('\n').escape_debug().to_string()
}

impl Opened {
    /// Its path.
    pub fn path(&self) -> PathBuf {
        fs::read_link(&self.link).unwrap_or_else(|_| self.link.clone())
    }
}

/// The files that a process can write to.
fn process_opened(procfs: &Path, process: u32) -> io::Result<Vec<(PathBuf, What)>> {
    let directory = procfs.join(process.to_string());
    let mut all = task_opened(&directory)?;
    // Procfs shows nothing of a main thread that has ended, while other threads keep all files open.
    let has_ended = is_zombie(&directory)?;
    for thread in threads(&directory)? {
        // A thread has a directory of its own, though none that is listed.
        let directory = procfs.join(thread.to_string());
        let found = match has_ended {
            true => task_opened(&directory),
            false if thread == process || share_descriptors(process, thread) => continue,
            false => descriptors(&directory),
        };
        match found {
            Ok(found) => all.extend(found),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// The threads of a process with this directory in procfs.
fn threads(directory: &Path) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(directory.join("task")) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    Ok(entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The files that a task with this directory in procfs can write to.
fn task_opened(directory: &Path) -> io::Result<Vec<(PathBuf, What)>> {
    Ok([descriptors(directory)?, mapped(directory)?].concat())
}

/// Whether the main thread of a process has ended.
fn is_zombie(directory: &Path) -> io::Result<bool> {
    // `42 (name) Z 1 ...`; the name may have brackets too.
    let stat = fs::read(directory.join("stat"))?;
    let end = stat.iter().rposition(|byte| *byte == b')').unwrap_or_default();
    Ok(stat.get(end + 2) == Some(&b'Z'))
}

/// Whether what an error is about ended meanwhile.
fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}

/// Through its file descriptors.
fn descriptors(directory: &Path) -> io::Result<Vec<(PathBuf, What)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory.join("fd"))? {
        let link = entry?.path();
        let number = link.file_name().unwrap_or_default();
        if fs::read_link(&link).is_ok_and(|place| place == Path::new(RING)) {
            match ring_info(|| fs::read(directory.join("fdinfo").join(number))) {
                Ok(info) => all.extend(registered(&info, &directory.join("root"))),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
            continue;
        }
        // What can't be looked at any more was closed, or its server is gone.
        let Ok(Some(kind)) = kind(&link) else { continue };
        // Names in it need not be text.
        match fs::read(directory.join("fdinfo").join(number)) {
            Ok(info) => {
                let info = String::from_utf8_lossy(&info);
                if writes(&info) {
                    all.push((link, with_connection(kind, &info)));
                }
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Reads the `fdinfo` of an io_uring until it lists all registered files: the kernel leaves them out while the ring is
/// locked, which a busy one is most of the time.
///
/// # Errors
/// `WouldBlock` where it listed none in [`MOST_READS`], though there may be some; else the error of `read`.
fn ring_info(read: impl Fn() -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    for _ in 1..MOST_READS {
        let info = read()?;
        if lists_all(&info) {
            return Ok(info);
        }
        thread::sleep(BETWEEN_READS);
    }
    // A table with empty places lists fewer files than it has places.
    let info = read()?;
    let mut lines = info.split(|byte| *byte == b'\n').skip_while(|line| !line.starts_with(b"UserFiles:"));
    match lines.nth(1) {
        Some(line) if line.starts_with(b" ") => Ok(info),
        _ if lists_all(&info) => Ok(info),
        _ => Err(io::ErrorKind::WouldBlock.into()),
    }
}

/// Whether `fdinfo` of an io_uring lists as many registered files as it says there are.
fn lists_all(info: &[u8]) -> bool {
    let mut lines = info.split(|byte| *byte == b'\n').skip_while(|line| !line.starts_with(b"UserFiles:"));
    let count = lines.next().and_then(|line| {
        let number = line.rsplit(|byte| byte.is_ascii_whitespace()).next()?;
        std::str::from_utf8(number).ok()?.parse::<usize>().ok()
    });
    count.is_some_and(|count| lines.take_while(|line| line.starts_with(b" ")).count() >= count)
}

/// The files that are registered with an io_uring of this `fdinfo`, for writing or not. They are known by their
/// paths, which the process that has the root `root` may see.
fn registered(info: &[u8], root: &Path) -> Vec<(PathBuf, What)> {
    // `UserFiles:\t2`, `    0: /path`, `    1: /path`, `UserBufs:\t0`.
    let mut lines = info.split(|byte| *byte == b'\n').skip_while(|line| !line.starts_with(b"UserFiles:"));
    lines.next();
    let listed = lines.take_while(|line| line.starts_with(b" ")).filter_map(|line| {
        let start = line.windows(2).position(|window| window == b": ")? + 2;
        let path = mount::unescape(&line[start..]);
        let place = root.join(path.strip_prefix("/").ok()?);
        Some((place.clone(), kind(&place).ok()??))
    });
    listed.collect()
}

/// Through shared mappings, which outlive their descriptors; also those that are read-only at the moment.
fn mapped(directory: &Path) -> io::Result<Vec<(PathBuf, What)>> {
    let maps = fs::read(directory.join("maps"))?;
    let mut all = Vec::new();
    for line in maps.split(|byte| *byte == b'\n') {
        // `7f00-7f01 rw-s 00000000 08:01 42 /path`.
        let mut words = line.split(|byte| *byte == b' ');
        let (Some(range), Some([_, now, _, b's'])) = (words.next(), words.next()) else { continue };
        let link = directory.join("map_files").join(OsStr::from_bytes(range));
        // The link's own mode is how the file was opened: a mapping may become writable where that allows it.
        let may_write = || fs::symlink_metadata(&link).is_ok_and(|link| link.mode() & 0o200 != 0);
        if *now != b'w' && !may_write() {
            continue;
        }
        // The right to follow these takes more than that to see descriptors.
        if let Ok(Some(kind)) = kind(&link) {
            all.push((link, kind));
        }
    }
    Ok(all)
}

/// Returns the target of `link`, if that is a device, a regular file or FUSE.
fn kind(link: &Path) -> io::Result<Option<What>> {
    let found = identity::look(link)?;
    let number = DeviceNumber { major: found.stx_rdev_major, minor: found.stx_rdev_minor };
    Ok(match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::BlockDevice => Some(What::Device(number)),
        FileType::RegularFile => Some(What::File(identity::id_of(&found))),
        FileType::CharacterDevice if number == FUSE => Some(What::Fuse(None)),
        FileType::CharacterDevice => Some(What::Character(number)),
        _ => None,
    })
}

/// Whether a descriptor with this `fdinfo` can be written to.
fn writes(info: &str) -> bool {
    let flags = field(info, "flags").and_then(|flags| u32::from_str_radix(flags, 8).ok());
    flags.is_none_or(|flags| {
        let flags = OFlags::from_bits_retain(flags);
        !flags.contains(OFlags::PATH) && flags.intersects(OFlags::WRONLY | OFlags::RDWR)
    })
}

/// Since Linux 6.18, `fdinfo` of FUSE has the connection.
fn with_connection(kind: What, info: &str) -> What {
    match kind {
        What::Fuse(_) => What::Fuse(field(info, "fuse_connection").and_then(|number| number.parse().ok())),
        kind => kind,
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| *key == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::captured::Captured;

    #[test]
    fn descriptors_that_can_be_written_to_are_found() {
        let mut machine = Captured::new().file("disk.img", "");
        let image = machine.root().join("disk.img");
        for (fd, flags) in [("3", "0100000"), ("4", "0100001"), ("5", "02100002"), ("6", "012000002")] {
            machine = machine
                .file(
                    &format!("proc/42/fdinfo/{fd}"),
                    // The name of a network interface is any bytes.
                    [b"iff:\ta\xff\n", format!("flags:\t{flags}\n").as_bytes()].concat(),
                )
                .file("proc/42/comm", "qemu-system-x86\n")
                .file("proc/42/stat", "42 (qemu-system-x86) S 1\n")
                .file("proc/42/maps", "");
            let fds = machine.procfs().join("42/fd");
            fs::create_dir_all(&fds).unwrap();
            symlink(&image, fds.join(fd)).unwrap();
        }
        let id = identity::file_at(&image).unwrap();
        let opened = Processes::of(&machine.procfs()).unwrap().opened;
        let mut found: Vec<_> = opened.iter().map(|opened| opened.link.file_name().unwrap()).collect();
        found.sort();
        assert_eq!(found, ["4", "5"], "neither one for reading nor one for its path alone");
        assert!(opened.iter().all(|opened| (opened.process, opened.what) == (42, What::File(id))));
        assert_eq!(name(&machine.procfs(), 42), "qemu-system-x86");
    }

    #[test]
    fn processes_that_fork_while_they_are_listed_are_found() {
        let machine = Captured::new().file("disk.img", "");
        let (procfs, image) = (machine.procfs(), machine.root().join("disk.img"));
        // The first, and all that it forks, are read only once the next is there, which alone has the file open.
        let add = move |process: usize, is_last: bool| {
            let directory = procfs.join(process.to_string());
            for inner in ["fd", "fdinfo"] {
                fs::create_dir_all(directory.join(inner)).unwrap();
            }
            fs::write(directory.join("maps"), "").unwrap();
            if is_last {
                fs::write(directory.join("stat"), "50 (x) S 1\n").unwrap();
                fs::write(directory.join("fdinfo/3"), "flags:\t0100002\n").unwrap();
                symlink(&image, directory.join("fd/3")).unwrap();
            } else {
                let (fifo, mode) = (directory.join("stat"), rustix::fs::Mode::from_raw_mode(0o600));
                rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
            }
            directory.join("stat")
        };
        let (first, last) = (42, 42 + MOST_ROUNDS - 1);
        let mut stat = add(first, false);
        // This waits for ever where one of them isn't looked at.
        std::thread::spawn(move || {
            for process in first + 1..=last {
                let mut reader = fs::OpenOptions::new().write(true).open(&stat).unwrap();
                stat = add(process, process == last);
                reader.write_all(b"42 (x) S 1\n").unwrap();
            }
        });
        let opened = Processes::of(&machine.procfs()).unwrap().opened;
        let found: Vec<_> = opened.iter().map(|opened| opened.process as usize).collect();
        assert_eq!(found, [last]);
    }

    #[test]
    fn files_registered_with_io_uring_are_found() {
        let machine = Captured::new().file("a b", "").file("c", "");
        let info = "SqThread:\t-1\nUserFiles:\t3\n    0: /a\\040b\n    1: /gone\n    2: /c\nUserBufs:\t1\n    0: /c\n";
        let found = registered(info.as_bytes(), machine.root());
        let paths: Vec<_> =
            found.iter().map(|(path, _)| path.strip_prefix(machine.root()).unwrap()).collect();
        assert_eq!(paths, [Path::new("a b"), Path::new("c")]);
        assert!(registered(b"pos:\t0\n", machine.root()).is_empty());
    }

    #[test]
    fn busy_ring_is_read_until_it_lists_its_files() {
        let full = "UserFiles:\t1\n    0: /c\nUserBufs:\t0\n";
        for busy in ["SqThread:\t-1\n", "UserFiles:\t1\nUserBufs:\t0\n", "UserFiles:\t2\n    0: /c\n"] {
            let reads = std::cell::Cell::new(0);
            let info = ring_info(|| {
                reads.set(reads.get() + 1);
                Ok(if reads.get() < 50 { busy } else { full }.as_bytes().to_vec())
            });
            assert_eq!((info.unwrap().as_slice(), reads.get()), (full.as_bytes(), 50));
        }
        let always = |text: &'static str| ring_info(move || Ok(text.as_bytes().to_vec()));
        assert_eq!(always("UserFiles:\t0\n").unwrap(), b"UserFiles:\t0\n");
        let sparse = "UserFiles:\t5\n    3: /c\nUserBufs:\t0\n";
        assert_eq!(always(sparse).unwrap(), sparse.as_bytes());
        for locked in ["SqThread:\t-1\n", "UserFiles:\t1\nUserBufs:\t0\n"] {
            assert_eq!(always(locked).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
        assert!(is_gone(&ring_info(|| Err(Errno::NOENT.into())).unwrap_err()));
    }

    #[test]
    fn shared_mappings_that_can_be_written_to_are_found() {
        let maps = "1000-2000 rw-s 0 08:01 5 /x\n2000-3000 r--p 0 08:01 5 /x\n3000-4000 rw-p 0 08:01 5 /x\n";
        let machine = Captured::new().file("x", "").file("proc/42/maps", maps).file("proc/42/fd/none", "");
        let machine =
            machine.file("proc/42/fdinfo/none", "flags:\t0100000\n").file("proc/42/stat", "42 (x) S 1\n");
        let links = machine.procfs().join("42/map_files");
        fs::create_dir_all(&links).unwrap();
        for range in ["1000-2000", "2000-3000", "3000-4000"] {
            symlink(machine.root().join("x"), links.join(range)).unwrap();
        }
        let opened = Processes::of(&machine.procfs()).unwrap().opened;
        assert_eq!(opened.len(), 1, "{opened:?}");
        assert!(opened[0].link.ends_with("map_files/1000-2000"));
    }
}
