//! Reading files without being held up by what they are.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens the regular file at `path`, and returns at once if it is something else: a pipe without a writer
/// would otherwise be waited for. `options` may have no flags of their own.
///
/// # Errors
/// As [`OpenOptions::open`]; [`ErrorKind::InvalidInput`] of what is not a regular file.
pub fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Reads the regular file at `path`, which may hold `most` bytes. The bytes themselves are counted: files of
/// procfs and files that grow are longer than their metadata say.
///
/// # Errors
/// As [`open_regular`]; [`ErrorKind::FileTooLarge`] of a file that holds more.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path, OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        Err(io::Error::new(ErrorKind::FileTooLarge, format!("it holds more than {most} bytes")))
    } else {
        Ok(bytes)
    }
}

/// Reads the regular file at `path`, which may hold `most` bytes, as text.
///
/// # Errors
/// As [`read_regular`]; [`ErrorKind::InvalidData`] of what is not UTF-8.
pub fn read_regular_text(path: &Path, most: u64) -> io::Result<String> {
    let bytes = read_regular(path, most)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn regular_files_are_read_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_regular(&path, 5).unwrap(), b"12345");
        assert_eq!(read_regular(&path, 4).unwrap_err().kind(), ErrorKind::FileTooLarge);
        // Its metadata say that it is empty.
        assert_eq!(fs::metadata("/proc/self/maps").unwrap().len(), 0);
        assert_eq!(
            read_regular(Path::new("/proc/self/maps"), 100).unwrap_err().kind(),
            ErrorKind::FileTooLarge
        );
    }

    #[test]
    fn pipes_devices_and_directories_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        for path in [&pipe, Path::new("/dev/zero"), dir.path()] {
            assert_eq!(read_regular(path, 5).unwrap_err().kind(), ErrorKind::InvalidInput, "{path:?}");
        }
        let written = open_regular(&pipe, OpenOptions::new().write(true).create(true).truncate(false));
        assert!(written.is_err());
    }
}
