//! Lists the files and devices that processes have open for writing.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use super::memory_map::Mapping;
use super::opened_kind::{OpenedKind, kind};
use super::task::{is_gone, is_zombie, maps, threads};
use super::{ClaimError, ring};
use crate::descriptors::share_descriptors;
use crate::identity;
use crate::limited::in_time;
use crate::mount;
use crate::process;

/// How often processes are listed until no new ones appear.
const MOST_ROUNDS: usize = 16;

/// How often a process is looked at until its io_urings add up, and the time between two looks.
const MOST_LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A file or device that a process has open for writing, or mapped so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opened {
    /// The process.
    pub process: u32,
    /// The link in procfs that leads to it, or its path.
    pub link: PathBuf,
    /// Its kind.
    pub what: OpenedKind,
}

/// The files and devices that are open for writing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Processes {
    /// All that was found.
    pub opened: Vec<Opened>,
    /// The files and devices that are open for reading alone.
    pub read: Vec<Opened>,
    /// How many processes could not be looked at.
    pub unseen: usize,
}

impl Processes {
    /// Looks at all processes of `procfs` but for this one.
    ///
    /// # Errors
    /// [`ClaimError::Mounts`], where they can't be listed; [`ClaimError::UnknownRing`]; [`ClaimError::SilentProcess`].
    pub fn of(procfs: &Path) -> Result<Self, ClaimError> {
        let mut all = Self::default();
        // The number that this process has there, which may belong to another PID namespace.
        let this = fs::read_link(procfs.join("self")).ok();
        let this = this.and_then(|link| link.to_str()?.parse().ok());
        let numbers_are_own = this == Some(std::process::id());
        let mut looked_at: BTreeSet<u32> = this.into_iter().collect();
        // A process that ends may leave its files to one that it has forked meanwhile.
        for _ in 0..MOST_ROUNDS {
            let mut new = mount::processes(procfs)?;
            new.retain(|process| looked_at.insert(*process));
            if new.is_empty() {
                break;
            }
            for process in new {
                let found = Found::of(procfs, process, numbers_are_own);
                // One is enough to refuse, and each takes a second to be sure of.
                if found.has_unknown_ring {
                    return Err(ClaimError::UnknownRing { process, name: process::name(procfs, process) });
                }
                if found.is_silent {
                    return Err(ClaimError::SilentProcess { process, name: process::name(procfs, process) });
                }
                all.add(process, found);
            }
        }
        Ok(all)
    }

    fn add(&mut self, process: u32, found: Found) {
        self.unseen += usize::from(found.is_partial);
        let opened = |(link, what)| Opened { process, link, what };
        self.opened.extend(found.opened.into_iter().map(opened));
        self.read.extend(found.read.into_iter().map(opened));
    }
}

impl Opened {
    /// Its path.
    pub fn path(&self) -> PathBuf {
        fs::read_link(&self.link).unwrap_or_else(|_| self.link.clone())
    }
}

/// All that could be found out about one process.
#[derive(Debug, Default)]
struct Found {
    opened: Vec<(PathBuf, OpenedKind)>,
    /// The files and devices that are open for reading alone.
    read: Vec<(PathBuf, OpenedKind)>,
    /// The io_urings that it has descriptors of, and those that it has mapped.
    rings: Vec<u64>,
    mapped_rings: Vec<u64>,
    /// Whether a thread of the kernel serves an io_uring of it.
    polls: bool,
    /// Whether it has an io_uring whose files can't be told.
    has_unknown_ring: bool,
    /// Whether there is more that could not be looked at.
    is_partial: bool,
    /// Whether its descriptors could not be listed, or not what they lead to.
    has_unlisted: bool,
    /// Whether what it has mapped was not told in time.
    is_silent: bool,
}

impl Found {
    /// Looks at the process. Its threads can be compared only where the numbers in `procfs` are those of this
    /// process' own PID namespace, as `numbers_are_own` says.
    fn of(procfs: &Path, process: u32, numbers_are_own: bool) -> Self {
        let once = || {
            let mut found = Self::default();
            let looked = found.look(procfs, process, numbers_are_own);
            found.note(looked);
            found
        };
        // A ring that is made or ended meanwhile is seen in parts.
        let mut found = once();
        for _ in 1..MOST_LOOKS {
            if found.has_unknown_ring || found.is_silent || !found.has_hidden_ring() {
                break;
            }
            thread::sleep(BETWEEN_LOOKS);
            found = once();
        }
        found.has_unknown_ring |= found.has_hidden_ring();
        found
    }

    /// Whether all of its descriptors could be listed, and none leads to an io_uring that it has.
    fn has_hidden_ring(&self) -> bool {
        let is_without_descriptor = self.mapped_rings.iter().any(|ring| !self.rings.contains(ring));
        !self.has_unlisted && (is_without_descriptor || (self.polls && self.rings.is_empty()))
    }

    fn look(&mut self, procfs: &Path, process: u32, numbers_are_own: bool) -> io::Result<()> {
        let directory = procfs.join(process.to_string());
        self.task(&directory);
        if self.is_silent {
            return Ok(());
        }
        // Procfs shows nothing of a main thread that has ended, or has given up its memory and is about to end, while
        // other threads keep all files open and mapped.
        let has_ended = is_zombie(&directory)? || maps(&directory).is_ok_and(|maps| maps.is_empty());
        for thread in threads(&directory)? {
            // A thread has a directory of its own, though none that is listed.
            let directory = procfs.join(thread.to_string());
            self.polls |= ring::is_poller(&directory);
            if has_ended {
                self.task(&directory);
            } else if thread != process && !(numbers_are_own && share_descriptors(process, thread)) {
                self.descriptors(&directory);
            }
        }
        Ok(())
    }

    /// Notes that something could not be looked at, unless it ended meanwhile.
    fn note(&mut self, looked: io::Result<()>) {
        let Err(error) = looked else { return };
        self.is_silent |= error.kind() == io::ErrorKind::TimedOut;
        self.is_partial |= !is_gone(&error);
    }

    /// Looks at a task with this directory in procfs.
    fn task(&mut self, directory: &Path) {
        self.descriptors(directory);
        let looked = self.mapped(directory);
        self.note(looked);
    }

    /// Looks at the file descriptors, up to an io_uring whose files can't be told.
    fn descriptors(&mut self, directory: &Path) {
        let links = fs::read_dir(directory.join("fd"))
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
        self.has_unlisted |= links.as_ref().is_err_and(|error| !is_gone(error));
        let links = links.unwrap_or_else(|error| {
            self.note(Err(error));
            Vec::new()
        });
        for link in links {
            if self.has_unknown_ring {
                break;
            }
            let looked = self.descriptor(directory, link);
            self.note(looked);
        }
    }

    fn descriptor(&mut self, directory: &Path, link: PathBuf) -> io::Result<()> {
        let info = directory.join("fdinfo").join(link.file_name().unwrap_or_default());
        let place = fs::read_link(&link);
        self.has_unlisted |=
            place.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        // The kernel names nothing whose path is too long; it is looked at all the same.
        if place.is_ok_and(|place| ring::is_ring(place.as_os_str())) {
            self.rings.push(identity::look(&link)?.stx_ino);
            match ring::registered(|| fs::read(&info), ring::has_paths(), &directory.join("root"))? {
                Some(files) => self.opened.extend(files),
                None => self.has_unknown_ring = true,
            }
            return Ok(());
        }
        if let Some(kind) = kind(&link)? {
            // Names in it need not be text.
            let info = fs::read(&info)?;
            let info = String::from_utf8_lossy(&info);
            match access(&info) {
                Access::Write => self.opened.push((link, with_connection(kind, &info))),
                Access::Read => self.read.push((link, kind)),
                Access::None => {}
            }
        }
        Ok(())
    }

    /// Looks at shared mappings, which outlive their descriptors; also at those that are read-only at the moment.
    fn mapped(&mut self, directory: &Path) -> io::Result<()> {
        let maps = maps(directory)?;
        // `7f00-7f01 rw-s 00000000 08:01 42     /path`.
        let mappings = maps.split(|byte| *byte == b'\n').filter_map(Mapping::parse);
        let (rings, shared): (Vec<_>, Vec<_>) = mappings
            .filter(|mapping| mapping.is_shared)
            .partition(|mapping| ring::is_ring(mapping.path.as_os_str()));
        self.mapped_rings.extend(rings.iter().map(|ring| ring.file.inode));
        if shared.is_empty() {
            return Ok(());
        }
        let links: Vec<_> = shared
            .iter()
            .map(|mapping| (directory.join("map_files").join(&mapping.link), mapping.is_writable))
            .collect();
        let places = links.clone();
        // The right to follow these takes more than that to see descriptors. The process may hold them back while it waits
        // for a file system that does not answer.
        let found = in_time(move || Ok(places.iter().map(mapped_to).collect::<Vec<_>>()))?;
        for ((mapping, (link, _)), found) in shared.iter().zip(links).zip(found) {
            match found {
                Ok(kind) => self.opened.extend(kind.map(|kind| (link, kind))),
                // It was changed, if the process has not ended.
                Err(error) if is_gone(&error) && directory.join("stat").exists() => {
                    let place =
                        directory.join("root").join(mapping.path.strip_prefix("/").unwrap_or(&mapping.path));
                    let found = kind(&place).ok().flatten().unwrap_or(OpenedKind::File(mapping.file));
                    self.opened.push((place, found));
                }
                error => self.note(error.map(drop)),
            }
        }
        Ok(())
    }
}

/// The kind of what is mapped, where the process may write to it; `is_writable` is whether it may at the moment.
fn mapped_to((link, is_writable): &(PathBuf, bool)) -> io::Result<Option<OpenedKind>> {
    // The link's own mode is how the file was opened: a mapping may become writable where that allows it.
    let may_write = *is_writable || fs::symlink_metadata(link)?.mode() & 0o200 != 0;
    if may_write { kind(link) } else { Ok(None) }
}

/// The access that a descriptor gives.
enum Access {
    Write,
    Read,
    /// It is for its path alone.
    None,
}

/// Returns the access of a descriptor with this `fdinfo`; for writing where that can't be told.
fn access(info: &str) -> Access {
    let flags = field(info, "flags").and_then(|flags| u32::from_str_radix(flags, 8).ok());
    let flags = OFlags::from_bits_retain(flags.unwrap_or(OFlags::RDWR.bits()));
    if flags.contains(OFlags::PATH) {
        Access::None
    } else if flags.intersects(OFlags::WRONLY | OFlags::RDWR) {
        Access::Write
    } else {
        Access::Read
    }
}

/// Since Linux 6.18, `fdinfo` of FUSE has the connection.
fn with_connection(kind: OpenedKind, info: &str) -> OpenedKind {
    match kind {
        OpenedKind::Fuse(_) => {
            OpenedKind::Fuse(field(info, "fuse_connection").and_then(|number| number.parse().ok()))
        }
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

    use rustix::fs::FileType;

    use super::*;
    use crate::block::DeviceNumber;
    use crate::captured::Captured;
    use crate::identity::FileId;

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
        let Processes { opened, read, .. } = Processes::of(&machine.procfs()).unwrap();
        assert_eq!(read.iter().map(|read| read.link.file_name().unwrap()).collect::<Vec<_>>(), ["3"]);
        let mut found: Vec<_> = opened.iter().map(|opened| opened.link.file_name().unwrap()).collect();
        found.sort();
        assert_eq!(found, ["4", "5"], "neither one for reading nor one for its path alone");
        assert!(opened.iter().all(|opened| (opened.process, opened.what) == (42, OpenedKind::File(id))));
        assert_eq!(process::name(&machine.procfs(), 42), "qemu-system-x86");
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
    fn search_ends_at_the_first_ring_whose_files_cannot_be_told() {
        let mut machine = Captured::new();
        for process in 40..42 {
            machine = machine
                .file(&format!("proc/{process}/stat"), format!("{process} (ring) S 1\n"))
                .file(&format!("proc/{process}/maps"), "");
            for fd in 3..6 {
                let fdinfo = format!("proc/{process}/fdinfo/{fd}");
                machine = machine.file(&fdinfo, "UserFiles:\t4\nUserBufs:\t0\n");
                let fds = machine.procfs().join(format!("{process}/fd"));
                fs::create_dir_all(&fds).unwrap();
                symlink("anon_inode:[io_uring]", fds.join(fd.to_string())).unwrap();
            }
            // The links of procfs lead to it whatever they read like.
            machine = machine.file(&format!("proc/{process}/fd/anon_inode:[io_uring]"), "");
        }
        let found = Found::of(&machine.procfs(), 40, false);
        assert_eq!((found.rings.len(), found.has_unknown_ring), (1, true));
        let error = Processes::of(&machine.procfs()).unwrap_err();
        assert!(matches!(error, ClaimError::UnknownRing { .. }), "{error}");
    }

    #[test]
    fn search_ends_at_a_process_that_does_not_show_what_it_has_mapped() {
        let machine = Captured::new()
            .file("proc/42/stat", "42 (x) S 1\n")
            .file("proc/42/fd/none", "")
            .file("proc/42/comm", "x\n");
        // Nobody writes to it.
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let maps = machine.procfs().join("42/maps");
        rustix::fs::mknodat(rustix::fs::CWD, &maps, FileType::Fifo, mode, 0).unwrap();
        let error = Processes::of(&machine.procfs()).unwrap_err();
        assert!(matches!(error, ClaimError::SilentProcess { process: 42, .. }), "{error}");
    }

    #[test]
    fn shared_mappings_that_can_be_written_to_are_found() {
        let maps = "00001000-00002000 rw-s 0 08:01 5   /x\n2000-3000 r--p 0 08:01 5 /x\n3000-4000 rw-p 0 08:01 5 /x\n\
                    5000-6000 rw-s 0 08:02 7   /a b\n6000-7000 rw-s 0 00:10 9   anon_inode:[io_uring]\n";
        let machine = Captured::new().file("x", "").file("proc/42/maps", maps).file("proc/42/fd/none", "");
        let machine =
            machine.file("proc/42/fdinfo/none", "flags:\t0100000\n").file("proc/42/stat", "42 (x) S 1\n");
        let links = machine.procfs().join("42/map_files");
        fs::create_dir_all(&links).unwrap();
        for range in ["1000-2000", "2000-3000", "3000-4000"] {
            symlink(machine.root().join("x"), links.join(range)).unwrap();
        }
        // A descriptor that cannot be looked at, as of another user's FUSE, is no ring.
        symlink("loop", machine.procfs().join("42/fd/loop")).unwrap();
        let found = Found::of(&machine.procfs(), 42, false);
        assert!(found.is_partial && found.has_unknown_ring, "none of its descriptors is that of the ring");
        let [(link, _), (changed, what)] = &found.opened[..] else { panic!("{found:?}") };
        assert!(link.ends_with("map_files/1000-2000"));
        // Its link is gone, so it is known by its numbers.
        assert!(changed.ends_with("42/root/a b"), "{changed:?}");
        assert_eq!(*what, OpenedKind::File(FileId { device: DeviceNumber { major: 8, minor: 2 }, inode: 7 }));
    }

    #[test]
    fn mappings_are_found_though_the_main_thread_has_given_up_its_memory() {
        let maps = "00001000-00002000 rw-s 0 08:01 5   /x\n";
        let machine = Captured::new()
            .file("x", "")
            .file("proc/42/stat", "42 (x) D 1\n")
            .file("proc/42/maps", "")
            .file("proc/42/fd/none", "")
            .file("proc/42/task/42/stat", "")
            .file("proc/42/task/43/stat", "")
            .file("proc/43/stat", "43 (x) S 1\n")
            .file("proc/43/maps", maps)
            .file("proc/43/fd/none", "");
        let links = machine.procfs().join("43/map_files");
        fs::create_dir_all(&links).unwrap();
        symlink(machine.root().join("x"), links.join("1000-2000")).unwrap();
        let found = Found::of(&machine.procfs(), 42, false);
        let [(link, _)] = &found.opened[..] else { panic!("{found:?}") };
        assert!(link.ends_with("43/map_files/1000-2000"));
    }
}
