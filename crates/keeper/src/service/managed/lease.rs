//! Pending extents that a `trimtab trim` has taken over.

use std::time::{Duration, SystemTime};

use trimtab_core::{Extent, ExtentSet};

use super::{ManagedFileSystem, Work};
use crate::service::control::Piece;
use crate::service::server::ClientId;

/// Why pending extents can't be leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::service) enum LeaseError {
    /// No managed file system is mounted there.
    #[error("no file system on a block device is mounted there")]
    NotMounted,
    /// The service doesn't track the frees of the file system.
    #[error("the service doesn't know what is pending there")]
    Unknown,
    /// Another client has them.
    #[error("another trim of it is in progress")]
    Leased,
}

/// The leased extents, and the client that has them.
pub(super) struct Lease {
    client: ClientId,
    /// Each extent with the time since which it is free.
    extents: Vec<(Extent, Duration)>,
}

impl Lease {
    /// Returns all leased extents, each with the time since which it is free.
    pub fn extents(&self) -> impl Iterator<Item = (Extent, Duration)> {
        self.extents.iter().copied()
    }
}

impl ManagedFileSystem {
    /// Hands the pending extents to a client, which trims them.
    pub fn lease_pending(&mut self, client: ClientId, now: Duration) -> Result<Vec<Piece>, LeaseError> {
        let Work::On { driver, full_trim: None } = &mut self.work else { return Err(LeaseError::Unknown) };
        if self.lease.is_some() {
            return Err(LeaseError::Leased);
        }
        if self.wanted.is_some() {
            // Not all of it.
            return Err(LeaseError::Unknown);
        }
        let extents: Vec<_> = driver.pending().iter().collect();
        driver.take_pending(now);
        let pieces = extents.iter().map(|(extent, _)| Piece::from(*extent)).collect();
        self.lease = Some(Lease { client, extents });
        Ok(pieces)
    }

    /// Ends the lease of `client`, if it has one. Of the leased extents, those in `left` become pending
    /// again; all of them if `left` is none.
    pub fn end_lease(&mut self, client: ClientId, left: Option<&ExtentSet>) {
        let Some(lease) = self.lease.take_if(|lease| lease.client == client) else { return };
        if left.is_some() {
            self.statistics.last_trim = Some(SystemTime::now());
        }
        let Work::On { driver, .. } = &mut self.work else { return };
        for (extent, since) in lease.extents {
            match left {
                Some(left) => left.inside(extent).for_each(|part| driver.freed(since, part)),
                None => driver.freed(since, extent),
            }
        }
    }
}
