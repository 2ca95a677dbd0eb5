//! Carries out a policy beside the workload.

use trimtab_core::Bytes;
use trimtab_core::document::Trim;

use super::service::Service;
use super::trimmer::Trimmer;
use crate::error::LabError;

/// Carries out a policy beside the workload.
pub enum PolicyHost {
    /// The file system itself, by its mount options, or nobody.
    FileSystem,
    /// A thread that calls FITRIM.
    Trimmer(Trimmer),
    /// The service.
    Service(Box<Service>),
}

impl PolicyHost {
    /// The workload begins a pause. The service and the file system find that out by themselves.
    pub fn pause_begins(&self) {
        if let Self::Trimmer(trimmer) = self {
            trimmer.pause_begins();
        }
    }

    /// Bytes that were freed and wait for a discard; `None` if nobody counts them.
    ///
    /// # Errors
    /// [`LabError::Service`] if the service has ended.
    pub fn pending(&self) -> Result<Option<Bytes>, LabError> {
        match self {
            Self::Service(service) => service.pending().map(Some),
            Self::FileSystem | Self::Trimmer(_) => Ok(None),
        }
    }

    /// The process that carries it out; none where no process of its own does.
    pub fn process(&self) -> Option<u32> {
        match self {
            Self::Service(service) => Some(service.process()),
            Self::FileSystem | Self::Trimmer(_) => None,
        }
    }

    /// Ends it, and returns the trims that it made itself.
    ///
    /// # Errors
    /// [`LabError::Trim`] if one of them failed.
    pub fn finish(self) -> Result<Vec<Trim>, LabError> {
        match self {
            Self::FileSystem => Ok(Vec::new()),
            Self::Trimmer(trimmer) => trimmer.finish(),
            Self::Service(service) => {
                service.finish();
                Ok(Vec::new())
            }
        }
    }
}
