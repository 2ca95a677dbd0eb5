//! The pending extents of the service, leased for a trim.

use std::path::Path;

use trimtab_core::interrupt::Interrupt;
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_keeper::service::control::{Control, ControlError};

/// Leased pending extents. Dropping it gives all of them back.
pub struct Pending {
    control: Control,
    extents: ExtentSet,
}

impl Pending {
    /// Leases the pending extents of the file system mounted at `mount` from the service whose sockets are in
    /// `run`; `None` if no service tracks them, or once `interrupt` is set.
    ///
    /// # Errors
    /// [`ControlError::Silent`] if the service does not answer.
    pub fn take(run: &Path, mount: &Path, interrupt: &Interrupt) -> Result<Option<Self>, ControlError> {
        let taken = Control::connect_until(run, interrupt).and_then(|mut control| {
            let extents = control.take_pending(mount)?.into_iter().collect();
            Ok(Self { control, extents })
        });
        match taken {
            Ok(pending) => Ok(Some(pending)),
            Err(error @ ControlError::Silent { .. }) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Returns the extents in trim addresses.
    pub fn extents(&self) -> &ExtentSet {
        &self.extents
    }

    /// Ends the lease when everything before `reached` is trimmed except `skipped`; gives back the rest.
    pub fn trimmed(mut self, reached: Bytes, skipped: &ExtentSet) {
        let mut left = self.extents.intersect(skipped);
        self.extents.inside(Extent::new(reached, Bytes(u64::MAX))).for_each(|extent| left.insert(extent));
        // If the service has ended meanwhile, its next start takes all free space as pending.
        let _ = self.control.give_back(left.iter());
    }
}
