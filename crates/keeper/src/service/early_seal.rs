//! The seal of a file system that was just mounted, which is kept until its trims begin.

use trimtab_linux::generation::{Seal, SealError, seal_just_mounted};
use trimtab_linux::mount::Mount;

use super::context::Context;
use super::timeout::{NoAnswer, with_timeout};

/// The seal of a file system at the time when it was mounted.
#[derive(Debug)]
pub(super) struct EarlySeal(pub Result<Result<Seal, SealError>, NoAnswer>);

impl EarlySeal {
    /// Reads it from the device of the file system of `mount`, which is not opened.
    pub fn read(context: &Context, mount: &Mount) -> Self {
        let (sysfs, mount) = (context.machine.sysfs(), mount.clone());
        Self(with_timeout(move || seal_just_mounted(&sysfs, &mount)))
    }
}
