//! What the service knows to be pending, taken over for a trim.

use std::path::Path;

use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_keeper::service::control::Control;

/// What was pending. Dropping it gives all of it back.
pub struct Pending {
    control: Control,
    extents: ExtentSet,
}

impl Pending {
    /// Takes over what is pending on the file system mounted at `mount` from the service whose sockets are in
    /// `run`; none where there is no service that knows it.
    pub fn take(run: &Path, mount: &Path) -> Option<Self> {
        let mut control = Control::connect(run).ok()?;
        let extents = control.take_pending(mount).ok()?.into_iter().collect();
        Some(Self { control, extents })
    }

    /// The extents, in trim addresses.
    pub fn extents(&self) -> &ExtentSet {
        &self.extents
    }

    /// All before `reached` is trimmed but what is `spared`: gives back the rest.
    pub fn trimmed(mut self, reached: Bytes, spared: &ExtentSet) {
        let mut left = self.extents.intersect(spared);
        self.extents.inside(Extent::new(reached, Bytes(u64::MAX))).for_each(|extent| left.insert(extent));
        // A service that has ended meanwhile finds out anew what is pending.
        let _ = self.control.give_back(left.iter());
    }
}
