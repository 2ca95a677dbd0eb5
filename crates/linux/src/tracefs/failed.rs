//! Discards that a disk failed.

use trimtab_core::Bytes;

use super::buffers::Buffers;
use super::devices::KernelNumber;
use super::error::TracefsError;
use super::format::Field;
use super::frees::FreesOptions;
use super::instance::Instance;
use crate::block::DeviceNumber;

/// Linux 5.18 and later tell of each request that failed.
const EVENT: &str = "block/block_rq_error";
/// A page for each processor: of many failures the first will do.
const BUFFER: Bytes = Bytes(4 << 10);

/// Word from the kernel of discards that a disk failed. Those who ask for them don't hear of it: ext4 and
/// XFS say that a trim went well, and sysfs counts what failed as discarded. Dropping it leaves nothing
/// behind.
#[derive(Debug)]
pub struct FailedDiscards {
    device: Field,
    // These go before the instance.
    buffers: Buffers,
    _instance: Instance,
}

impl FailedDiscards {
    /// Begins to listen. Of `options` only the places count.
    ///
    /// # Errors
    /// [`TracefsError::NoEvents`] where the kernel doesn't tell; any other, with nothing left behind.
    pub fn listen(options: &FreesOptions) -> Result<Self, TracefsError> {
        let FreesOptions { tracefs, sysfs, procfs, .. } = options;
        let instance = Instance::create(tracefs, sysfs, procfs, BUFFER)?;
        // Kernels before 6.8 have such pages anyway.
        _ = instance.set("buffer_subbuf_size_kb", "4");
        let format = instance.format(EVENT)?;
        let device = format.and_then(|format| format.field("dev"));
        let device = device.ok_or_else(|| TracefsError::NoEvents { missing: EVENT.to_owned() })?;
        instance.enable(EVENT, "rwbs ~ \"D*\"")?;
        let buffers = Buffers::open(&instance, BUFFER)?;
        instance.set("tracing_on", "1")?;
        Ok(Self { device, buffers, _instance: instance })
    }

    /// The disks that failed discards since this was last called, some perhaps more than once.
    ///
    /// # Errors
    /// [`TracefsError::Read`] or [`TracefsError::Damaged`].
    pub fn take(&mut self) -> Result<Vec<DeviceNumber>, TracefsError> {
        let mut disks = Vec::new();
        let Self { device, buffers, .. } = self;
        buffers.read_all(|_, event| disks.push(KernelNumber(device.number(event) as u32).into()))?;
        Ok(disks)
    }
}
