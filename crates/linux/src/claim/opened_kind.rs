//! The kinds of files and devices that processes have open.

use std::io;
use std::path::Path;

use rustix::fs::FileType;

use crate::block::DeviceNumber;
use crate::identity::{self, FileId};

/// The device by which FUSE servers talk to the kernel.
const FUSE: DeviceNumber = DeviceNumber { major: 10, minor: 229 };

/// The kinds of open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenedKind {
    Device(DeviceNumber),
    /// A character device, which may take commands for a drive.
    Character(DeviceNumber),
    File(FileId),
    /// The end of a FUSE connection: its number, where the kernel says it.
    Fuse(Option<u32>),
}

/// Returns the target of `link`, if that is a device, a regular file or FUSE.
pub(super) fn kind(link: &Path) -> io::Result<Option<OpenedKind>> {
    let found = identity::look(link)?;
    let number = DeviceNumber { major: found.stx_rdev_major, minor: found.stx_rdev_minor };
    Ok(match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::BlockDevice => Some(OpenedKind::Device(number)),
        FileType::RegularFile => Some(OpenedKind::File(identity::id_of(&found))),
        FileType::CharacterDevice if number == FUSE => Some(OpenedKind::Fuse(None)),
        FileType::CharacterDevice => Some(OpenedKind::Character(number)),
        _ => None,
    })
}
