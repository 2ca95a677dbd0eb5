//! What is pending, lent to a trim that a user started.

use std::time::{Duration, SystemTime};

use trimtab_core::{Extent, ExtentSet};

use super::{ManagedFileSystem, Work};
use crate::service::control::Piece;
use crate::service::server::ClientId;

/// What was lent, and to whom.
pub(super) struct Lease {
    to: ClientId,
    /// Each with the time since which it is free.
    extents: Vec<(Extent, Duration)>,
}

impl Lease {
    /// All of it, each extent with the time since which it is free.
    pub fn extents(&self) -> impl Iterator<Item = (Extent, Duration)> {
        self.extents.iter().copied()
    }
}

impl ManagedFileSystem {
    /// Hands over what is pending, to be trimmed by another.
    pub fn lease_pending(&mut self, to: ClientId, now: Duration) -> Result<Vec<Piece>, &'static str> {
        let Work::On { tender, whole: None } = &mut self.work else {
            return Err("the service doesn't know what is pending there");
        };
        if self.lease.is_some() {
            return Err("another trim of it is under way");
        }
        let extents: Vec<_> = tender.pending().iter().collect();
        tender.take_pending(now);
        let pieces = extents.iter().map(|(extent, _)| Piece::from(*extent)).collect();
        self.lease = Some(Lease { to, extents });
        Ok(pieces)
    }

    /// Takes back what was lent to `from`: what is left of it, or all where it doesn't say.
    pub fn end_lease(&mut self, from: ClientId, left: Option<&ExtentSet>) {
        let Some(lease) = self.lease.take_if(|lease| lease.to == from) else { return };
        if left.is_some() {
            self.last_trim = Some(SystemTime::now());
        }
        let Work::On { tender, .. } = &mut self.work else { return };
        for (extent, since) in lease.extents {
            match left {
                Some(left) => left.inside(extent).for_each(|part| tender.freed(since, part)),
                None => tender.freed(since, extent),
            }
        }
    }
}
