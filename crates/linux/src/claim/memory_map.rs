//! The lines of `maps`, by which procfs lists what a process has mapped.

use std::path::PathBuf;

use crate::block::DeviceNumber;
use crate::identity::FileId;
use crate::mount;

/// A line of `maps`.
pub(super) struct Mapping {
    /// The name of its link in `map_files`.
    pub link: String,
    pub is_shared: bool,
    pub is_writable: bool,
    pub file: FileId,
    pub path: PathBuf,
}

impl Mapping {
    /// Reads `7f00-7f01 rw-s 00000000 08:01 42     /path`.
    pub fn parse(line: &[u8]) -> Option<Self> {
        // The sixth word is the rest of the line: a path, which may have blanks in it.
        let mut words = line.splitn(6, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (range, mode, _offset, device, inode) = (word()?, word()?.as_bytes(), word()?, word()?, word()?);
        let (from, to) = range.split_once('-')?;
        let (major, minor) = device.split_once(':')?;
        let hexadecimal = |number: &str| u64::from_str_radix(number, 16).ok();
        let part = |number: &str| u32::from_str_radix(number, 16).ok();
        let device = DeviceNumber { major: part(major)?, minor: part(minor)? };
        Some(Self {
            // Without the zeros with which `maps` fills up short addresses.
            link: format!("{:x}-{:x}", hexadecimal(from)?, hexadecimal(to)?),
            is_shared: mode.get(3) == Some(&b's'),
            is_writable: mode.get(1) == Some(&b'w'),
            file: FileId { device, inode: inode.parse().ok()? },
            path: mount::unescape(words.next().unwrap_or_default().trim_ascii_start()),
        })
    }
}
