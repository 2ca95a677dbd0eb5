//! The files and devices that are registered with io_urings, which may write to them without a descriptor.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::opened_kind::{OpenedKind, kind};
use super::task;
use crate::{environment, mount};

/// The target of links to an io_uring.
const RING: &str = "anon_inode:[io_uring]";

/// How often the `fdinfo` of an io_uring is read while it is locked, and the time between two reads.
const MOST_READS: u32 = 2000;
const BETWEEN_READS: Duration = Duration::from_micros(500);

/// Beginnings of what a kernel that lists paths has for what is neither a file nor a device.
const OTHERS: [&[u8]; 3] = [b"socket:[", b"pipe:[", b"anon_inode:"];

/// The end of the path of a file that was removed, whose name may belong to another file by now.
const REMOVED: &[u8] = b" (deleted)";

/// Whether a link in procfs or a mapping with this name leads to an io_uring.
pub(super) fn is_ring(name: &OsStr) -> bool {
    name == RING
}

/// The flag of tasks that the kernel made for an io_uring (`PF_IO_WORKER` in `include/linux/sched.h`).
const IO_WORKER: u32 = 0x10;

/// The function of the kernel in which the workers of io_urings wait, which take no requests by themselves.
const WORKER: &str = "io_wq_worker";

/// Whether the task with this directory in procfs is the thread of the kernel that serves an io_uring. Its name tells nothing: a
/// process may name all its threads as it likes.
pub(super) fn is_poller(directory: &Path) -> bool {
    let is_of_ring = task::flags(directory).is_ok_and(|flags| flags & IO_WORKER != 0);
    let stack = || fs::read_to_string(directory.join("stack")).unwrap_or_default();
    is_of_ring && !stack().contains(WORKER)
}

/// Returns whether this kernel lists registered files by their paths, as Linux 6.18 and later do. Earlier ones list names
/// without their directories, and a file may be named like a socket.
pub(super) fn has_paths() -> bool {
    environment::kernel_is_at_least((6, 18))
}

/// Returns the files that are registered with an io_uring whose `fdinfo` is what `read` returns, for writing or not;
/// none where that can't be told. Any file makes it so where the kernel lists them without paths (`has_paths` is false).
/// Files are known by their paths: as this process sees them, or as a process with the root `root` does.
///
/// # Errors
/// The error of `read`.
pub(super) fn registered(
    read: impl Fn() -> io::Result<Vec<u8>>,
    has_paths: bool,
    root: &Path,
) -> io::Result<Option<Vec<(PathBuf, OpenedKind)>>> {
    let Some(info) = complete(read)? else { return Ok(None) };
    let mut all = Vec::new();
    let (_, entries) = entries(&info);
    if !has_paths && !entries.is_empty() {
        return Ok(None);
    }
    for line in entries {
        let Some(colon) = line.windows(2).position(|window| window == b": ") else { return Ok(None) };
        let path = mount::unescape(&line[colon + 2..]);
        if OTHERS.iter().any(|other| path.as_os_str().as_bytes().starts_with(other)) {
            continue;
        }
        let inner = path.strip_prefix("/").ok().filter(|_| !path.as_os_str().as_bytes().ends_with(REMOVED));
        let Some(inner) = inner else { return Ok(None) };
        let places = [root.join(inner), path.clone()];
        // The path of a mount point that is gone may lead to a directory.
        let places = places.into_iter().filter(|place| !place.is_dir());
        let found: Vec<_> = places.filter_map(|place| Some((kind(&place).ok()?, place))).collect();
        if found.is_empty() {
            return Ok(None);
        }
        all.extend(found.into_iter().filter_map(|(kind, place)| Some((place, kind?))));
    }
    Ok(Some(all))
}

/// Returns how many places the table of registered files has, where `fdinfo` says it, and its lines on them, from
/// `UserFiles:\t2`, `    0: /path`, `    1: /path`, `UserBufs:\t0`.
fn entries(info: &[u8]) -> (Option<usize>, Vec<&[u8]>) {
    let mut lines = info.split(|byte| *byte == b'\n').skip_while(|line| !line.starts_with(b"UserFiles:"));
    let count = lines.next().and_then(|line| {
        let number = line.rsplit(|byte| byte.is_ascii_whitespace()).next()?;
        std::str::from_utf8(number).ok()?.parse().ok()
    });
    (count, lines.take_while(|line| !line.starts_with(b"UserBufs:") && !line.is_empty()).collect())
}

/// Reads the `fdinfo` of an io_uring until it lists the registered files: the kernel leaves them all out while the
/// ring is locked, which a busy one is most of the time. None where [`MOST_READS`] listed none, though there may be
/// some: tables with empty places look the same.
fn complete(read: impl Fn() -> io::Result<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
    for _ in 0..MOST_READS {
        let info = read()?;
        let (count, entries) = entries(&info);
        if count == Some(0) || !entries.is_empty() {
            return Ok(Some(info));
        }
        thread::sleep(BETWEEN_READS);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::captured::Captured;

    #[test]
    fn files_registered_with_io_uring_are_found() {
        let machine = Captured::new().file("a b", "").file("c", "");
        let found = |lines: &[&str]| {
            let lines: String = lines.iter().map(|line| format!("    0: {line}\n")).collect();
            let info = format!("SqThread:\t-1\nUserFiles:\t0\n{lines}UserBufs:\t1\n    0: /c\n");
            let found = registered(|| Ok(info.clone().into_bytes()), true, machine.root()).unwrap()?;
            let names = found.iter().map(|(path, _)| path.strip_prefix(machine.root()).unwrap().to_owned());
            Some(names.collect::<Vec<_>>())
        };
        assert_eq!(found(&["/a\\040b", "/c"]), Some(vec!["a b".into(), "c".into()]));
        assert_eq!(found(&["socket:[12]", "/c", "pipe:[7]"]), Some(vec!["c".into()]));
        assert_eq!(found(&[]), Some(Vec::new()));
        let far = b"UserFiles:\t10002\n10001: /c\nUserBufs:\t0\n".to_vec();
        assert_eq!(
            registered(|| Ok(far.clone()), true, machine.root()).unwrap().map(|found| found.len()),
            Some(1)
        );
        // The kernel may show names alone, and a path may lead nowhere or elsewhere.
        for unknown in ["c", "/gone", "/c\\040(deleted)", "", "/", "<none>"] {
            assert_eq!(found(&["/c", unknown]), None, "{unknown}");
        }
    }

    #[test]
    fn pollers_are_known_by_the_kernels_flag() {
        let poller = "[<0>] io_sq_thread+0x3f1/0x810\n[<0>] ret_from_fork+0x31/0x50\n";
        let worker = "[<0>] io_wq_worker+0x2f3/0x390\n[<0>] ret_from_fork+0x31/0x50\n";
        for (stack, flags, is) in [
            (poller, 0x0040_0050, true),
            ("", 0x0040_0050, true),
            (worker, 0x0040_0050, false),
            (poller, 0x0040_0040, false),
        ] {
            let stat = format!("42 (iou-wrk-1) b) S 1 1 1 0 -1 {flags} 0 0\n");
            let machine = Captured::new().file("proc/42/stack", stack).file("proc/42/stat", stat);
            assert_eq!(is_poller(&machine.procfs().join("42")), is, "{stack}, {flags:#x}");
        }
    }

    #[test]
    fn names_without_paths_tell_nothing() {
        for name in ["socket:[12]", "pipe:[7]", "/c"] {
            let info = format!("UserFiles:\t1\n    0: {name}\nUserBufs:\t0\n").into_bytes();
            assert_eq!(registered(|| Ok(info.clone()), false, Path::new("/")).unwrap(), None, "{name}");
        }
        let empty = b"UserFiles:\t0\nUserBufs:\t0\n".to_vec();
        assert_eq!(registered(|| Ok(empty.clone()), false, Path::new("/")).unwrap(), Some(Vec::new()));
    }

    #[test]
    fn files_are_looked_for_in_both_roots() {
        let machine = Captured::new().file("c", "").file("jail/other", "");
        let path = machine.root().join("c");
        let info = format!("UserFiles:\t1\n    0: {}\nUserBufs:\t0\n", path.display());
        let found = registered(|| Ok(info.clone().into_bytes()), true, &machine.root().join("jail"))
            .unwrap()
            .unwrap();
        assert_eq!(found.iter().map(|(place, _)| place).collect::<Vec<_>>(), [&path]);
    }

    #[test]
    fn busy_ring_is_read_until_it_lists_its_files() {
        let full = "UserFiles:\t1\n    0: /c\nUserBufs:\t0\n";
        for busy in ["SqThread:\t-1\n", "UserFiles:\t1\nUserBufs:\t0\n"] {
            let reads = std::cell::Cell::new(0);
            let info = complete(|| {
                reads.set(reads.get() + 1);
                Ok(if reads.get() < 50 { busy } else { full }.as_bytes().to_vec())
            });
            assert_eq!((info.unwrap().unwrap().as_slice(), reads.get()), (full.as_bytes(), 50));
        }
        let always = |text: &'static str| complete(move || Ok(text.as_bytes().to_vec())).unwrap();
        assert_eq!(always("UserFiles:\t0\n").unwrap(), b"UserFiles:\t0\n");
        let sparse = "UserFiles:\t5\n    3: /c\nUserBufs:\t0\n";
        assert_eq!(always(sparse).unwrap(), sparse.as_bytes());
        for locked in ["SqThread:\t-1\n", "UserFiles:\t1\nUserBufs:\t0\n"] {
            assert_eq!(always(locked), None);
        }
        let gone = complete(|| Err(Errno::NOENT.into())).unwrap_err();
        assert_eq!(Errno::from_io_error(&gone), Some(Errno::NOENT));
    }
}
