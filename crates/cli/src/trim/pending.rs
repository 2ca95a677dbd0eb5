//! What the service knows to be pending, taken over for a trim.

use std::path::Path;

use trimtab_core::ExtentSet;
use trimtab_core::units::Bytes;
use trimtab_keeper::service::control::{Control, RUN};

/// What was pending. Dropping it gives all of it back.
pub struct Pending {
    control: Control,
    extents: ExtentSet,
}

impl Pending {
    /// Takes over what is pending on the file system mounted at `mount`; none where there is no service that
    /// knows it.
    pub fn take(mount: &Path) -> Option<Self> {
        let mut control = Control::connect(Path::new(RUN)).ok()?;
        let extents = control.take_pending(mount).ok()?.into_iter().collect();
        Some(Self { control, extents })
    }

    /// The extents, in trim addresses.
    pub fn extents(&self) -> &ExtentSet {
        &self.extents
    }

    /// All of it is trimmed but extents shorter than `minimum`, which it gives back.
    pub fn trimmed(mut self, minimum: Bytes) {
        // A service that has ended meanwhile finds out anew what is pending.
        let _ = self.control.give_back(self.extents.iter().filter(|extent| extent.len() < minimum));
    }
}
