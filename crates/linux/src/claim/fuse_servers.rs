//! The servers of the emulated drives below a device, and the files that they keep the data in.

use std::fs;
use std::path::Path;

use super::files::BackingFile;
use super::opened_kind::OpenedKind;
use super::processes::Opened;
use crate::identity::{self, Identity, Length};
use crate::mount::Namespace;

/// How the kernel names the files in memory that a server keeps data in.
pub(super) const MEMORY: &str = "/memfd:trimtab-drive (deleted)";

/// In words, a file system whose data may be anywhere.
const NO_SERVER: &str = "FUSE, whose server cannot be found";

/// Some of `files` may be on FUSE. Adds the files that the servers of these can write to and may keep the data in: files in
/// memory, and files as long as one of these or longer; all files of a server that has none of these. Returns the processes that are these servers, among those that have `opened`
/// files.
pub(super) fn add_kept(
    namespaces: &[Namespace],
    procfs: &Path,
    files: &mut Vec<BackingFile>,
    opened: &[Opened],
) -> Vec<u32> {
    let mut servers = Vec::new();
    for file in files.iter_mut() {
        let Some(connection) = file.identity.fuse else { continue };
        let directory = identity::drive_directory(namespaces, connection);
        let is_server = |opened: &&Opened| match opened.what {
            OpenedKind::Fuse(Some(theirs)) => theirs == connection,
            // Before Linux 6.18 the kernel does not say which connection it is.
            OpenedKind::Fuse(None) => {
                directory.as_ref().is_some_and(|directory| holds(procfs, opened.process, directory))
            }
            _ => false,
        };
        let before = servers.len();
        servers.extend(opened.iter().filter(is_server).map(|opened| opened.process));
        if servers.len() == before && file.identity.stacked.is_none() {
            file.identity.stacked = Some(NO_SERVER.to_owned());
        }
    }
    let is_as_long = |length: u64| {
        // A file that became longer keeps the data all the same.
        files.iter().filter(|file| file.identity.fuse.is_some()).any(|file| match file.length {
            Length::Exactly(least) | Length::AtLeast(least) => length >= least,
        })
    };
    let theirs = opened.iter().filter(|opened| servers.contains(&opened.process)).filter_map(|opened| {
        let OpenedKind::File(id) = opened.what else { return None };
        let path = opened.path();
        let identity = match identity::keeps_its_bytes(&opened.link) {
            true => Identity::plain(id),
            false => identity::identify(namespaces, id, &path),
        };
        let length = identity::look(&opened.link).map(|found| found.stx_size).ok();
        let is_kept = path.starts_with(MEMORY) || length.is_none_or(is_as_long);
        let length = length.map_or(Length::AtLeast(0), Length::Exactly);
        Some((opened.process, is_kept, BackingFile { id, path, identity, length, is_served: true }))
    });
    let theirs: Vec<_> = theirs.collect();
    let known: Vec<u32> =
        theirs.iter().filter(|(_, is_kept, _)| *is_kept).map(|(server, ..)| *server).collect();
    // Where none is long enough, the file with the data was made shorter.
    let kept = theirs.into_iter().filter(|(server, is_kept, _)| *is_kept || !known.contains(server));
    files.extend(kept.map(|(.., file)| file));
    servers
}

/// Whether `process` has the directory `directory` open and locked, as the server of an emulated drive has that drive's.
fn holds(procfs: &Path, process: u32, directory: &Path) -> bool {
    let process = procfs.join(process.to_string());
    let Ok(entries) = fs::read_dir(process.join("fd")) else { return false };
    let is_it = |entry: fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|place| place == directory)
            && fs::read_to_string(process.join("fdinfo").join(entry.file_name())).is_ok_and(|info| {
                info.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK"))
            })
    };
    entries.flatten().any(is_it)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;
    use crate::block::DeviceNumber;
    use crate::captured::Captured;
    use crate::identity::{FileId, Sameness};
    use crate::mount;

    const LENGTH: Length = Length::Exactly(4096);
    const CONNECTION: DeviceNumber = DeviceNumber { major: 0, minor: 25 };

    /// Adds to the file of the emulated drive `d` what its server has, which is one of the processes that have these open.
    fn added(procfs: &Path, length: Length, opened: &[Opened]) -> (Vec<u32>, Vec<BackingFile>) {
        let mounts = mount::parse(b"25 1 0:25 / /run/trimtab/drives/d/fuse rw - fuse trimtab rw\n");
        let namespaces = [Namespace::new("/".into(), None, mounts)];
        let id = FileId { device: CONNECTION, inode: 1 };
        let identity = identity::identify(&namespaces, id, Path::new("/none"));
        let mut files = vec![BackingFile { id, path: "/f".into(), identity, length, is_served: false }];
        let servers = add_kept(&namespaces, procfs, &mut files, opened);
        (servers, files)
    }

    fn memory() -> File {
        let file = File::from(memfd_create("data", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(4096).unwrap();
        file
    }

    fn link(file: &File) -> std::path::PathBuf {
        format!("/proc/self/fd/{}", file.as_raw_fd()).into()
    }

    fn opened(process: u32, file: &File) -> Opened {
        let what = OpenedKind::File(identity::id_of(&identity::look(&link(file)).unwrap()));
        Opened { process, link: link(file), what }
    }

    fn fuse(process: u32, connection: Option<u32>) -> Opened {
        Opened { process, link: "/dev/fuse".into(), what: OpenedKind::Fuse(connection) }
    }

    #[test]
    fn server_is_known_by_its_connection() {
        let machine = Captured::new();
        let (data, other, log) = (memory(), memory(), memory());
        data.set_len(5000).unwrap();
        log.set_len(100).unwrap();
        let all =
            [fuse(42, Some(25)), opened(42, &data), opened(42, &log), fuse(43, Some(26)), opened(43, &other)];
        let (servers, files) = added(&machine.procfs(), LENGTH, &all);
        assert_eq!(servers, [42]);
        let [drive, kept] = &files[..] else { panic!("{files:?}") };
        assert_eq!((drive.identity.stacked.as_deref(), kept.identity.stacked.as_deref()), (None, None));
        let identity = |file| {
            Identity::plain(match opened(0, file).what {
                OpenedKind::File(id) => id,
                what => panic!("{what:?}"),
            })
        };
        assert_eq!(kept.compare(&identity(&data)), Sameness::Unknown, "it may be another file of the server");
        assert_eq!(kept.compare(&identity(&other)), Sameness::Different);
        assert!(matches!(kept.length, Length::Exactly(5000)), "it became longer");
    }

    #[test]
    fn file_that_was_made_shorter_keeps_the_data() {
        let machine = Captured::new();
        let (data, other) = (memory(), memory());
        let (long, short) = (Length::Exactly(4097), Length::Exactly(4096));
        other.set_len(100).unwrap();
        let all = [fuse(42, Some(25)), opened(42, &data), opened(42, &other)];
        assert_eq!(added(&machine.procfs(), short, &all).1.len(), 2, "one is long enough");
        assert_eq!(added(&machine.procfs(), long, &all).1.len(), 3, "it may be either");
    }

    #[test]
    fn before_connections_have_numbers_the_server_is_known_by_the_directory_of_its_drive() {
        let mut machine = Captured::new();
        let data = memory();
        let lock = "lock:\t1: FLOCK  ADVISORY  WRITE 42 00:1a:9 0 EOF\n";
        // One has another drive's, and one has inherited it from somebody who had no lock.
        for (process, name, lock) in [(42, "d", lock), (43, "e", lock), (44, "d", "")] {
            machine = machine.file(&format!("proc/{process}/fdinfo/3"), format!("flags:\t0100000\n{lock}"));
            let fds = machine.procfs().join(process.to_string()).join("fd");
            fs::create_dir_all(&fds).unwrap();
            symlink(format!("/run/trimtab/drives/{name}"), fds.join("3")).unwrap();
        }
        let others = [43, 44].map(|process| [fuse(process, None), opened(process, &memory())]);
        let all = [&[fuse(42, None), opened(42, &data)][..], others.as_flattened()].concat();
        let (servers, files) = added(&machine.procfs(), LENGTH, &all);
        assert_eq!((servers, files.len()), (vec![42], 2));
    }

    #[test]
    fn drive_without_a_server_is_not_proven_unused() {
        let machine = Captured::new();
        let (servers, files) = added(&machine.procfs(), LENGTH, &[fuse(42, None), opened(42, &memory())]);
        assert_eq!((servers.len(), files.len()), (0, 1));
        assert_eq!(files[0].identity.stacked.as_deref(), Some(NO_SERVER));
    }

    #[test]
    fn data_may_be_elsewhere_where_its_file_system_may_keep_it_so() {
        let machine = Captured::new();
        // As one of an overlay, a file of procfs has no bytes of its own.
        let stacked = File::open("/proc/self/limits").unwrap();
        let all = [fuse(42, Some(25)), opened(42, &stacked)];
        let (_, files) = added(&machine.procfs(), Length::AtLeast(0), &all);
        assert_eq!(files[1].identity.stacked.as_deref(), Some("a file system that is mounted nowhere"));
    }
}
