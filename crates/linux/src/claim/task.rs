//! Tasks as procfs shows them.

use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::limited::in_time;
use crate::process::stat;

/// The list of what a process with this directory in procfs has mapped. A process whose memory map is held, as while it maps a
/// file of a FUSE that does not answer, shows none.
pub(super) fn maps(directory: &Path) -> io::Result<Vec<u8>> {
    let place = directory.join("maps");
    in_time(move || fs::read(place))
}

/// The threads of a process with this directory in procfs.
pub(super) fn threads(directory: &Path) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(directory.join("task")) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        entries => entries?.collect::<io::Result<Vec<_>>>()?,
    };
    Ok(entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Whether the main thread of a process has ended.
pub(super) fn is_zombie(directory: &Path) -> io::Result<bool> {
    Ok(stat(directory)?.first().is_some_and(|state| state == "Z"))
}

/// The kernel's flags of a task.
pub(super) fn flags(directory: &Path) -> io::Result<u32> {
    let flags = stat(directory)?.get(6).and_then(|flags| flags.parse().ok());
    flags.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether what an error is about ended meanwhile.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
}
