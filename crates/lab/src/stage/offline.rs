//! Activities that work on the whole file system: it is made, checked or grown by its own programs.

use std::path::Path;
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::StepKind;
use trimtab_core::interrupt::Interrupt;

use super::Stage;
use crate::error::LabError;
use crate::fs::FileSystem;
use crate::mkfs::MakeOptions;

impl Stage<'_> {
    /// Makes a new file system, over the drive's first `1 / part` where that is given, as the activity `name`. All
    /// files are gone then. It discards if the policy is one by which the file system discards.
    ///
    /// # Errors
    /// [`LabError::MountIsUsers`] in a directory of the user's, or what the programs say.
    pub fn make_file_system(&mut self, name: &str, part: Option<u64>) -> Result<(), LabError> {
        let testbed = &mut self.recorder()?.testbed;
        let (fs, _) = testbed.own()?;
        let size = match (part, testbed.drive()?) {
            (Some(part), Some(drive)) => Some(Bytes(drive.size.0 / part)),
            _ => None,
        };
        if let Some(size) = size.filter(|size| *size < fs.least_size()) {
            return Err(LabError::TooSmall { size, fs, least: fs.least_size() });
        }
        self.work.forget_all();
        self.offline(name, |fs, discards, device, _| {
            fs.make_as(device, &MakeOptions { discards, size, is_lazy: false })
        })
    }

    /// Checks the file system, unmounted, as the activity `name`.
    ///
    /// # Errors
    /// [`LabError::MountIsUsers`] in a directory of the user's, or what the programs say.
    pub fn check_file_system(&mut self, name: &str) -> Result<(), LabError> {
        self.offline(name, |fs, discards, device, interrupt| fs.check(device, discards, interrupt))
    }

    /// Grows the file system to its whole device as the activity `name`.
    ///
    /// # Errors
    /// [`LabError::MountIsUsers`] in a directory of the user's, or what the programs say.
    pub fn grow_file_system(&mut self, name: &str) -> Result<(), LabError> {
        let (fs, _) = self.recorder()?.testbed.own()?;
        if !fs.grows_mounted() {
            return self.offline(name, |fs, _, device, interrupt| fs.grow(device, interrupt));
        }
        self.step(name, StepKind::Activity, |stage| {
            let mount = stage.recorder()?.testbed.mount_point().to_owned();
            fs.grow(&mount, stage.work.interrupt()).map(|()| Duration::ZERO)
        })
    }

    /// Does `action` as an activity while the file system is not mounted; unmounting and mounting it is not part
    /// of the activity's time.
    fn offline(
        &mut self,
        name: &str,
        action: impl FnOnce(FileSystem, bool, &Path, &Interrupt) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let testbed = &mut self.recorder()?.testbed;
        let ((fs, discards), device) = (testbed.own()?, testbed.source());
        testbed.take_offline()?;
        self.step(name, StepKind::Activity, |stage| {
            action(fs, discards, &device, stage.work.interrupt()).map(|()| Duration::ZERO)
        })?;
        self.recorder()?.testbed.bring_online()
    }
}
